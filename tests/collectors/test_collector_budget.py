"""Token rows under a budget: whole sequences, the same in every process, the worst always; and the control file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sizes import examples
from support.step_arrays import ROWS, TOKENS, step_arrays
from support.written_run import commit_lines, token_rows

from ratioscope import Collector, open_run
from ratioscope.collectors.budget import CONTROL_FILE, Budget, Spending
from ratioscope.collectors.watching.recording import Recording
from ratioscope.collectors.writing.sampling import chosen
from ratioscope.errors import ConfigError
from ratioscope.record import arrow_schema


def table(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    made = [
        {
            "attempt": 0,
            "step": 1,
            "sequence_id": f"s{row}",
            "rollout_logprobs": (rollout := random.normal(-1, 0.3, 5)).tolist(),
            "old_logprobs": (rollout + random.normal(0, 0.1, 5)).tolist(),
        }
        for row in range(rows)
    ]
    return pa.Table.from_pylist(made, schema=arrow_schema())


@examples(50)
@given(st.integers(1, 60), st.floats(0, 1), st.floats(0, 1), st.integers(0, 5), st.integers(0, 99))
def test_a_smaller_share_keeps_a_part_of_a_larger_one(rows: int, a: float, b: float, worst: int, seed: int) -> None:
    small, large = sorted((a, b))
    found = [
        set(chosen(table(rows, seed), share, worst=worst, seed=0)["sequence_id"].to_pylist())
        for share in (small, large)
    ]
    assert found[0] <= found[1] and len(found[0]) >= min(worst, rows)


@examples(50)
@given(st.integers(1, 60), st.floats(0, 0.99), st.integers(0, 99))
def test_minibatches_of_one_sequence_are_kept_or_left_out_together(rows: int, share: float, seed: int) -> None:
    facts = table(rows, seed)
    update = facts.drop_columns(["rollout_logprobs", "old_logprobs"])
    update = update.append_column("rollout_logprobs", pa.nulls(rows, arrow_schema().field("rollout_logprobs").type))
    update = update.append_column("old_logprobs", facts["old_logprobs"]).select(facts.column_names)
    kept = [set(chosen(rows_of, share, worst=0, seed=seed)["sequence_id"].to_pylist()) for rows_of in (facts, update)]
    assert kept[0] == kept[1]


def test_about_as_many_are_kept_as_the_share_says_and_each_with_its_probability() -> None:
    found = chosen(table(4000, 0), 0.25, worst=8, seed=3)
    assert len(found) == pytest.approx(1000, abs=4 * np.sqrt(4000 * 0.25 * 0.75))
    probabilities: list[Any] = found["inclusion_probability"].to_pylist()
    assert sorted(set(probabilities)) == [0.25, 1.0] and probabilities.count(1.0) == 8
    other = chosen(table(4000, 0), 0.25, worst=8, seed=4)
    assert set(found["sequence_id"].to_pylist()) != set(other["sequence_id"].to_pylist())


def test_the_step_stays_in_its_budget_and_its_statistics_are_of_every_token(tmp_path: Path) -> None:
    limit = 30_000
    with Collector(tmp_path / "run", budget=Budget(step_bytes=limit, worst=2)) as collector:
        for step in range(1, 8):
            collector.log(step=step, **step_arrays(step, outlier=11))
    with Collector(tmp_path / "whole") as everything:
        for step in range(1, 8):
            everything.log(step=step, **step_arrays(step, outlier=11))
    files = [line for line in commit_lines(tmp_path / "run", "commit") if "rows" in line]
    assert [line["rows"] + line["left_out"] for line in files] == [ROWS] * 7
    assert all(line["bytes"] < 1.5 * limit for line in files[2:])
    rows = token_rows(tmp_path / "run").to_pylist()
    assert {f"{step}/11" for step in range(1, 8)} <= {row["sequence_id"] for row in rows}  # the worst of each step
    counts = collector.counts
    assert counts.sequences.left_out > 0 == counts.sequences.pending == counts.sequences.dropped
    assert counts.sequences.written == len(rows) and counts.tokens.offered == 7 * ROWS * TOKENS
    sampled, whole = open_run(tmp_path / "run"), open_run(tmp_path / "whole")
    assert sampled.metrics().equals(whole.metrics())
    assert sampled.exact()


def test_what_is_computed_from_kept_rows_is_an_estimate_of_all(tmp_path: Path) -> None:
    """The statistics are deleted: what is left are the rows, and they stand for all."""
    with Collector(tmp_path / "run", budget=Budget(step_bytes=40_000, worst=2)) as collector:
        for step in range(6):
            collector.log(step=step, **step_arrays(step, rows=200))
    exact = open_run(tmp_path / "run").metrics()
    for file in (tmp_path / "run" / "statistics").iterdir():
        file.unlink()
    run = open_run(tmp_path / "run")
    estimated = run.metrics()
    assert not run.exact()
    for truth, found in zip(exact.to_dicts(), estimated.to_dicts(), strict=True):
        assert found["mismatch/tokens"] == pytest.approx(truth["mismatch/tokens"], rel=0.5)
        assert abs(found["mismatch/kl_k3"] - truth["mismatch/kl_k3"]) < 5 * found["mismatch/kl_k3_se"]


def test_a_run_budget_is_never_used_up() -> None:
    budget, spending = Budget(run_bytes=1_000_000), Spending()
    for step in range(2000):
        share = spending.share(budget, step, 10_000)
        spending.spend(step, int(share * 120_000), int(share * 10_000))
        assert 0 < share <= 1
    assert spending.total < 1_000_000


def test_parts_of_a_step_share_its_budget() -> None:
    budget, spending = Budget(step_bytes=1000), Spending()
    first = spending.share(budget, 1, 100)
    spending.spend(1, 900, 75)
    assert first == pytest.approx(1000 / 1200) and spending.share(budget, 1, 100) < 0.2
    assert spending.share(budget, 2, 100) > 0.5


def test_the_control_file_turns_collection_down_and_up_while_it_runs(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Collector(run) as collector:
        for step, wanted in (
            (1, None),
            (2, {"step_bytes": 0, "worst": 3}),
            (3, "broken"),
            (4, {"unknown": 1}),
            (5, None),
        ):
            control = run / CONTROL_FILE
            if wanted is None:
                control.unlink(missing_ok=True)
            else:
                control.write_text(wanted if isinstance(wanted, str) else json.dumps(wanted))
            collector.log(step=step, **step_arrays(step))
            assert collector.flush()
    kept = {line["step"]: line["rows"] for line in commit_lines(run, "commit") if "rows" in line}
    assert kept == {1: ROWS, 2: 3, 3: 3, 4: 3, 5: ROWS}
    told = [(line["step"], line["note"]) for line in commit_lines(run, "event") if line["event"] == "control"]
    assert [step for step, _ in told] == [2, 3, 4, 5]
    assert "step_bytes 0, worst 3" in told[0][1] and "not followed" in told[1][1] and "'unknown': 1" in told[2][1]
    assert open_run(run).metrics()["mismatch/sequences"].to_list() == [ROWS] * 5


@pytest.mark.parametrize("wrong", [{"step_bytes": -1}, {"worst": 1.5}, {"disk_reserve": None}, {"seed": True}])
def test_a_budget_that_makes_no_sense_is_told_what_does(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} is .*; wanted a whole number"):
        Budget(**wrong)


def test_a_budget_reaches_the_collector_of_an_attachment(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "run", {"budget": Budget(step_bytes=0, worst=4)}, "mine")
    recording.log(step=1, **step_arrays(1))
    assert recording.close()
    assert recording.collector.counts.sequences.written == 4
