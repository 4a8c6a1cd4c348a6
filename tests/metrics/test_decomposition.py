"""total = mismatch + drift in mean log-ratios, held against runs; and said where it does not hold."""

from pathlib import Path

import polars as pl
import pytest
from support.edge_runs import made

from ratioscope import Collector, open_run
from ratioscope.metrics.analysis.staleness import decomposition


def test_the_parts_of_a_real_run_add_up_on_every_step(tmp_path: Path) -> None:
    run = open_run(made(tmp_path, "stale"))
    found = decomposition(run.metrics())
    assert found["step"].to_list() == run.steps and found["holds"].all()
    assert found["residual"].abs().max() < 1e-12  # type: ignore[operator]
    tokens = run.tokens([run.steps[3]]).select("total", "mismatch", "drift").collect()
    for gap in tokens.columns:
        assert found[gap][3] == pytest.approx(tokens[gap].mean(), rel=1e-6)
        assert found[f"{gap}_se"].equals(run.metrics()[f"{gap}/mean_log_ratio_se"].alias(f"{gap}_se"))
    assert found["tokens"][3] == len(tokens)


def test_gaps_of_different_tokens_do_not_add_up_and_that_is_said(tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector:
        for step, tail in ((0, -2.0), (1, float("nan"))):
            collector.log(
                step=step,
                minibatch=0,
                rollout_logprobs=[[-1.0, -2.0]],
                old_logprobs=[[-1.5, tail]],
                current_logprobs=[[-1.25, -4.0]],
            )
    found = decomposition(open_run(tmp_path / "run").metrics())
    assert found["holds"].to_list() == [True, False]
    assert found["residual"][0] == 0 and found["residual"][1] == pytest.approx((-0.25 - 2.0) / 2 - (-0.5 + 0.25))


def test_a_run_of_one_gap_has_no_parts(tmp_path: Path) -> None:
    frame = open_run(made(tmp_path, "bypass")).metrics()
    assert decomposition(frame).is_empty() and decomposition(frame.clear()).is_empty()
    empty = decomposition(pl.DataFrame({"step": [1]}))
    assert empty.schema == decomposition(open_run(made(tmp_path, "stale")).metrics()).schema
