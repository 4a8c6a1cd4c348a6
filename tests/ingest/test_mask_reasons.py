"""The loss's own reasons for tokens that it left out: their shares, and their words beside the run's own correction."""

from pathlib import Path

import pytest

from ratioscope import Collector, open_run
from ratioscope.ingest.analysis.own_correction import (
    COLUMNS,
    own_correction_of,
    plain_own_correction,
    reasons_in_words,
    shares_by_reason,
)
from ratioscope.ingest.analysis.step_rows import columns_of
from ratioscope.ingest.run import Run

FOUR = [-1.0, -2.0, -0.5, -0.1]


def recorded(folder: Path, reasons: list[list[int] | None] | None) -> Run:
    with Collector(folder, strict=True) as collector:
        collector.log(
            step=1, rollout_logprobs=[FOUR, FOUR], old_logprobs=[FOUR, FOUR], mask=[[1, 1, 1, 0], [1, 1, 1, 1]],
            sequence_ids=["a", "b"], mask_reasons=reasons,
        )  # fmt: skip
    return open_run(folder)


def shares_of(run: Run) -> dict[str, float]:
    return shares_by_reason(columns_of(run, step, COLUMNS) for step in run.steps)


def test_shares_are_of_sampled_tokens_with_reasons(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", [[0, 2, 2, 2], None])
    assert shares_of(run) == {"high": pytest.approx(2 / 3)}  # the fourth token was not sampled, b has no reasons
    found = own_correction_of(run, run.steps)
    assert found.words.endswith("the loss's own reasons for leaving tokens out: high 67%")
    assert plain_own_correction(found)["reasons"] == {"high": pytest.approx(2 / 3)}


def test_a_loss_that_kept_all_says_so_and_one_without_reasons_says_nothing(tmp_path: Path) -> None:
    kept, silent = recorded(tmp_path / "kept", [[0] * 4, [0] * 4]), recorded(tmp_path / "silent", None)
    assert shares_of(kept) == {"kept": 1.0} and "left no token out" in own_correction_of(kept, kept.steps).words
    assert shares_of(silent) == {} == own_correction_of(silent, silent.steps).reasons
    assert "reasons" not in own_correction_of(silent, silent.steps).words


def test_small_shares_keep_their_digits() -> None:
    assert reasons_in_words({"veto": 0.0004, "off_policy": 0.5}).endswith("veto 0.04%, off policy 50%")
    assert reasons_in_words({}) == ""
