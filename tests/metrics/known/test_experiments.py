"""The table of experiments, and the choice of the cheapest one for what is open."""

import re

from hypothesis import given
from hypothesis import strategies as st

from ratioscope.metrics.diagnosis.catalogue import CAUSE, CAUSES
from ratioscope.metrics.diagnosis.evidence import FACTS
from ratioscope.metrics.known.experiments import UNEXPLAINED, experiments, next_experiment

ON_RECORD = {*FACTS, "token_ids", "prompt_ids", "digests", "referee", "synced", "fixed_weights", "parity"}
NAMED = {
    "reported_raw": "a mean weight that is not 1 proves that the engine's log-probs are not those it sampled from",
    "truncation": "a mean weight below 1 with a one-sided gap proves that sampling excludes tokens",
    "banned_tokens": "the same",
    "version_lag": "the versions on record tell it",
    "train_mode": "the trainer gives the same token after the same ids several log-probs, and the sampler one",
}
"""Cause whose title names a side without a fact of the whole run -> why its own signature tells it."""


def test_every_row_is_of_known_causes_and_facts() -> None:
    for each in experiments():
        assert set(each.settles) <= {*CAUSE, UNEXPLAINED}, each.code
        assert {*each.needs, *each.done} <= ON_RECORD, each.code
        assert each.do.endswith(".") and each.cost > 0 and each.settles
    assert len({each.code for each in experiments()}) == len(experiments())


def test_no_title_names_a_side_that_its_signature_does_not_tell() -> None:
    for cause in CAUSES:
        one_sided = re.search(r"\b(engine|trainer)\b", cause.title) and not re.search(r"engine beside", cause.title)
        assert not one_sided or cause.code in NAMED, cause.title
        for side, title in cause.sided.items():
            assert side in title and cause.title_at(side) == title and cause.title_at(None) == cause.title


CODES = st.lists(st.sampled_from(sorted(CAUSE)), min_size=1, max_size=4, unique=True)


@given(first=CODES, others=st.sets(st.sampled_from(sorted(CAUSE))), known=st.sets(st.sampled_from(sorted(ON_RECORD))))
def test_what_is_told_can_be_done_was_not_done_and_settles_a_likely_cause(
    first: list[str], others: set[str], known: set[str]
) -> None:
    found = next_experiment(first, others, known, "Look.")
    assert found is not None, "the check of the first cause is always there"
    assert set(found.needs) <= known and not set(found.done) & known
    assert set(found.settles) & set(first) and set(found.settles) <= {*first, *others}


def test_an_experiment_that_was_done_is_told_no_more() -> None:
    codes = ["adapter_scale", "never_synced"]
    before = next_experiment(codes, (), {"lag"}, "")
    assert before is not None and before.code == "digests" and set(before.settles) == set(codes)
    after = next_experiment(codes, (), {"lag", "digests"}, "")
    assert after is not None and after.code == "sync_each_step"
    assert next_experiment([], {"stuck_replica"}, (), "") is None
    found = next_experiment([UNEXPLAINED], (), {"token_ids", "prompt_ids"}, "")
    assert found is not None and found.code == "rescore_try"
