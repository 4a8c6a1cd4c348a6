"""Windows into long sequences: their tokens are those of the whole, at their places, and a diagnosis keeps few of them."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from ratioscope import Collector
from ratioscope.app.pages import worst
from ratioscope.ingest.analysis import evidence
from ratioscope.ingest.analysis.diagnosis import diagnosis_of, plain_diagnosis
from ratioscope.ingest.rows.token_frame import token_counts, token_frame
from ratioscope.ingest.rows.windows import Span, cut, windows
from ratioscope.ingest.run import Run, open_run

LENGTHS = (1000, 7, 0, 130, 400)
WORST = 870
"""Position of the largest |x| of the longest sequence."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("long") / "run"
    draws = np.random.default_rng(0)
    rollout = [-draws.exponential(size=length).astype(np.float32) for length in LENGTHS]
    old = [side + draws.normal(0, 0.01, len(side)).astype(np.float32) for side in rollout]
    old[0][WORST] -= 3
    ids = [np.arange(length) for length in LENGTHS]
    with Collector(folder, writer="thread") as collector:
        for step in range(2):
            collector.log(
                step=step, rollout_logprobs=rollout, old_logprobs=old, token_ids=ids, advantages=np.ones(len(LENGTHS))
            )
    return open_run(folder)


def test_windows_begin_with_a_sequence_and_end_with_it() -> None:
    found = windows(np.array([10, 400, 401, 1000]), 400)
    assert found.row.tolist() == [0, 1, *[2] * 4, *[3] * 4]
    assert found.start[[0, 1, 2, 5, 6, 9]].tolist() == [0, 0, 0, 301, 0, 900]
    assert found.length[[0, 1, 2, 5, 6, 9]].tolist() == [10, 400, *[100] * 4]
    ends = (found.start + found.length)[:-1][np.diff(found.row) == 0]
    assert (ends <= found.start[1:][np.diff(found.row) == 0]).all(), "no token is in two windows"


@pytest.mark.parametrize("length", [401, 999, 5000])
def test_each_token_of_a_long_sequence_is_in_a_window_with_the_chance_that_the_window_says(length: int) -> None:
    found = windows(np.full(3000, length), 400)
    change = np.zeros(length + 1)
    np.add.at(change, found.start, 1 / found.share)
    np.add.at(change, found.start + found.length, -1 / found.share)
    # Tiles are chosen evenly, not by dice: the mean of 3,000 choices is nearer than that of as many throws.
    np.testing.assert_allclose(np.cumsum(change)[:-1] / 3000, 1, atol=0.02)


def test_tokens_of_windows_are_those_of_the_whole_at_their_places(run: Run) -> None:
    records = run.rows(0)
    lengths = token_counts(records)
    spans = windows(lengths, 120)
    columns = ("position", "token_id", "rollout_logprob", "old_logprob", "advantage", "mismatch", "sequence_id")
    parts = token_frame(cut(records, spans), columns)
    start = pl.Series(np.repeat(spans.start, spans.length))
    parts = parts.with_columns(pl.col("position") + start)
    whole = token_frame(records, columns)
    assert len(parts) == spans.length.sum() > 3 * 90
    assert (parts["token_id"] == parts["position"]).all()
    assert_frame_equal(
        parts, whole.join(parts.select("sequence_id", "position"), on=("sequence_id", "position"), how="semi")
    )


def test_a_list_of_another_length_is_cut_nowhere(run: Run) -> None:
    records = run.rows(0)
    place = records.schema.get_field_index("entropy")
    field = records.schema.field(place)
    short = pa.array([[0.5] * 3] * len(records), field.type)
    parts = cut(records.set_column(place, field, short), windows(token_counts(records), 120))
    assert parts["entropy"].null_count == len(parts) and parts["old_logprobs"].null_count == 0


def test_a_diagnosis_keeps_a_bounded_part_of_each_sequence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "LONGEST", 120)
    found = evidence.evidence_of(run, "mismatch").evidence
    read = np.bincount(found.row)
    assert read[1] == 7 and (read <= 120).all() and (read[[0, 3, 4]] > 90).all()
    assert found.position[found.row == 0].max() == 999 and set(found.facts["length"][found.row == 0]) == {1000}
    assert found.sampled and found.weights.max() == pytest.approx(16 * found.weights.min()), (
        "2 of 32 tiles of the longest"
    )


def test_a_diagnosis_states_the_gap_of_metrics_though_it_reads_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constants stand at the ends of long sequences, which are always in a window."""
    monkeypatch.setattr(evidence, "LONGEST", 400)
    monkeypatch.setattr(evidence, "MOST_TOKENS", 12_000)
    draws, bad, tokens = np.random.default_rng(1), 0, 0
    with Collector(tmp_path / "run", writer="thread") as collector:
        for step in range(4):
            lengths = [4000] * 6 * (step > 0) + [int(n) for n in draws.integers(100, 300, 40)]
            old = [-draws.exponential(1.2, n).astype(np.float32) for n in lengths]
            rollout = [side + draws.normal(0, 0.01, len(side)).astype(np.float32) for side in old]
            for side in rollout[: 6 * (step > 0)]:
                side[-60:] = 0
                bad += 60
            tokens += sum(lengths)
            collector.log(
                step=step, rollout_logprobs=rollout, old_logprobs=old, token_ids=[np.arange(n) for n in lengths]
            )
    run = open_run(tmp_path / "run")
    found = evidence.evidence_of(run, "mismatch").evidence
    result = diagnosis_of(run)
    (own, error), item = result.read_kl_k3, result.diagnosis.likely[0]
    exact = run.metrics(by=())["mismatch/kl_k3"][0]
    assert result.diagnosis.gap == pytest.approx(exact) and plain_diagnosis(result)["kl_k3"] == pytest.approx(exact)
    assert abs(own - exact) < 3 * error and 0 < error < 0.3 * exact and result.left_out > 0
    assert item.cause.code == "filler_values" or item.cause.code == "unscored_tokens"
    share, apart = found.mean(found.earlier == 0), found.error(found.earlier == 0)
    assert abs(share - bad / tokens) < 3 * apart < bad / tokens and " ± " in item.effect and " ± " in item.proof
    assert f"over all tokens of these steps K3 is {exact:.3g}" in result.read


def test_a_span_is_a_slice_of_its_sequence(run: Run) -> None:
    ids = run.sequences(1)["sequence_id"].to_list()
    asked = [
        Span(ids[0], first=WORST - 5, most=10),
        Span(ids[1], first=3, most=99),
        Span(ids[4]),
        Span(ids[2], first=5),
    ]
    found = run.spans(1, asked)
    for span, frame in zip(asked, found, strict=True):
        whole = run.sequence(1, span.sequence_id)
        assert_frame_equal(frame, whole.slice(span.first, span.most))
    assert [len(frame) for frame in found] == [10, 4, 400, 0]


def test_a_report_shows_the_tokens_around_the_worst_one(run: Run) -> None:
    items = worst.worst_sequences(run, run.metrics(), "mismatch", text=True)
    longest = next(item for item in items if item.length == 1000)
    assert len(longest.tokens) == worst.TOKENS_SHOWN and WORST in longest.tokens["position"].to_list()
    assert f"at {WORST}: -2.99" in worst.worst_tokens(longest, "mismatch", 1)[0].replace("−", "-")
    assert worst.sequence_facts(longest).endswith("shown: positions 400 to 999")
    assert not any("shown:" in worst.sequence_facts(item) for item in items if item.length < 600)
