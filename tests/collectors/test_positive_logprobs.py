"""Log-probs above 0 are told of while training, once, with the form that they most likely have."""

from pathlib import Path

import numpy as np
import pytest

from ratioscope import Collector

LOGPROBS = -np.random.default_rng(0).exponential(size=(4, 20)) - 0.01
FORMS = {
    "exp(logp)": (np.exp(LOGPROBS), "80 of 80 old_logprobs are above 0", "probabilities (exp(logp))"),
    "-logp": (-LOGPROBS, "80 of 80 old_logprobs are above 0", "negated log-probs (-logp)"),
    "some": (
        np.where(np.arange(20) < 1, 0.5, LOGPROBS),
        "4 of 80 old_logprobs are above 0, up to 0.5",
        "others are below",
    ),
}


@pytest.mark.parametrize(("form", "writer"), [*((form, "thread") for form in FORMS), ("-logp", "process")])
def test_the_first_step_with_positive_log_probs_is_told_with_their_form(
    tmp_path: Path, form: str, writer: str, caplog: pytest.LogCaptureFixture
) -> None:
    values, share, words = FORMS[form]
    with Collector(tmp_path / "run", writer=writer) as collector:  # type: ignore[arg-type]
        for step, old in enumerate((LOGPROBS, values, values)):
            collector.log(step=step, rollout_logprobs=LOGPROBS, old_logprobs=old)
    told = [record.message for record in caplog.records if "above 0" in record.message]
    assert len(told) == 1 and told[0].startswith(f"step 1: {share}") and words in told[0] and "rollout" not in told[0]


def test_a_positive_value_behind_the_mask_or_of_rounding_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mask = np.arange(20) < np.full((4, 1), 10)
    with Collector(tmp_path / "run", writer="thread") as collector:
        old = np.where(mask, np.minimum(LOGPROBS + 0.02, 1e-7), 3.0)
        collector.log(step=0, rollout_logprobs=LOGPROBS, old_logprobs=old, mask=mask, lengths=[20] * 4)
    assert not any("above 0" in record.message for record in caplog.records)


def test_plus_infinity_alone_is_no_warning_without_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Collector(tmp_path / "run", writer="thread") as collector:
        for step, value in enumerate((np.inf, 0.5)):
            collector.log(
                step=step, rollout_logprobs=LOGPROBS, old_logprobs=np.where(np.arange(20) < 1, value, LOGPROBS)
            )
    told = [record.message for record in caplog.records if "A log-prob is at most 0" in record.message]
    assert len(told) == 1 and told[0].startswith("step 1: 4 of 80 old_logprobs are above 0, up to 0.5")
