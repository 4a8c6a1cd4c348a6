"""`ratioscope diff`: whether a change helped, by pairs of prompts or by whole runs, since when, and what was changed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.read_run import read_run
from support.recorded import recorded

from ratioscope import record_readings
from ratioscope.app import cli
from ratioscope.app.cli import main
from ratioscope.app.cli.commands.demo import sample_runs
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.run_comparison import paired_runs, parting
from ratioscope.ingest.run import open_run
from ratioscope.metrics.analysis.comparison import APART, first_apart

Captured = pytest.CaptureFixture[str]


def written(
    folder: Path, shifts: list[float], *, prompts: bool = True, seed: int = 0, rows: int = 12, **config: Any
) -> Path:
    """A run whose log-ratios at step k have this mean and little noise, with the same prompts at each step."""
    random = np.random.default_rng(seed)
    with Collector(folder, name=folder.name, config=config) as collector:
        for step, shift in enumerate(shifts):
            rollout = [(-random.exponential(1.0, 40)).tolist() for _ in range(rows)]
            old = [[x - abs(shift + 0.01 * random.normal()) for x in row] for row in rollout]
            named: dict[str, Any] = {"group_ids": [f"p{row}" for row in range(rows)]} if prompts else {}
            collector.log(step=step, rollout_logprobs=rollout, old_logprobs=old, **named)
        collector.flush(timeout=60)
    return folder


def said(capsys: Captured, *argv: object) -> dict[str, Any]:
    assert main(["diff", *map(str, argv), "--json"]) == cli.OK
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def test_a_fix_helped_by_pairs_of_prompts_since_a_step_with_the_setting_and_both_diagnoses(capsys: Captured) -> None:
    stale, healthy = sample_runs()["stale"], sample_runs()["healthy"]
    found = said(capsys, stale, healthy)
    assert found["direction"] == "better" and found["sentence"].startswith("It helped: B's KL is 47 times lower")
    assert found["paired"]["key"] == "prompt_text" and found["paired"]["pairs"] == 40 and found["paired"]["z"] < -3
    assert found["first_apart"]["step"] == 21
    assert [row["setting"] for row in found["settings"]] == ["config.scenario"]
    assert found["a"]["severity"] == "act" and "Weight syncs broke" in found["a"]["answer"]
    assert found["b"]["severity"] == "healthy" and "rounding noise" in found["b"]["answer"]
    assert said(capsys, healthy, stale)["direction"] == "worse"


def test_the_terminal_answers_in_the_first_line_and_names_settings(capsys: Captured, tmp_path: Path) -> None:
    a, b = written(tmp_path / "a", [0.3] * 4, lr=1), written(tmp_path / "b", [0.02] * 4, seed=1, lr=2)
    assert main(["diff", str(a), str(b)]) == cli.OK
    printed = capsys.readouterr().out
    assert printed.startswith("It helped: ") and "config.lr  1 → 2" in printed
    assert "Pair by pair" in printed and "group_id" in printed and "Apart since step 0" in printed


def test_equal_runs_show_no_clear_change_and_are_apart_nowhere(capsys: Captured, tmp_path: Path) -> None:
    a = written(tmp_path / "a", [0.1] * 4)
    same = said(capsys, a, a)
    assert same["direction"] == "unclear" and "have the same KL" in same["sentence"] and same["first_apart"] is None
    other = said(capsys, a, written(tmp_path / "b", [0.1] * 4, seed=1))
    assert other["direction"] == "unclear" and other["settings"] == []


def test_runs_without_prompts_in_common_are_compared_as_a_whole(capsys: Captured, tmp_path: Path) -> None:
    a, b = (written(tmp_path / name, [shift] * 3, prompts=False) for name, shift in (("a", 0.3), ("b", 0.02)))
    found = said(capsys, a, b)
    assert found["paired"] is None and found["direction"] == "better"
    main(["diff", str(a), str(b)])
    assert "Not paired: no two prompts" in capsys.readouterr().out
    assert said(capsys, a, b, "--pair-by", "sequence_id")["paired"]["key"] == "sequence_id"


def test_the_runs_part_where_one_of_them_changes(tmp_path: Path) -> None:
    a = open_run(written(tmp_path / "a", [0.05] * 8))
    b = open_run(written(tmp_path / "b", [0.05] * 5 + [0.4] * 3, seed=1))
    found = parting(a, b, "mismatch")
    assert found is not None and (found.step, found.compared) == (5, 8) and found.b > 10 * found.a
    pairs = paired_runs(a, b, "mismatch")
    assert pairs is not None and pairs.key == "group_id" and pairs.pairs.pairs == 12 and pairs.pairs.z > 3


@given(st.lists(st.tuples(*[st.floats(1e-4, 2.0)] * 4), max_size=12))
def test_the_first_step_apart_is_that_of_a_plain_loop(rows: list[tuple[float, float, float, float]]) -> None:
    a, a_error, b, b_error = (np.array([row[at] for row in rows]) for at in range(4))
    z = [np.log(y / x) / np.hypot(ex / x, ey / y) for x, ex, y, ey in rows]
    pairs = zip(z, z[1:], strict=False)
    wanted = next((at for at, (p, q) in enumerate(pairs) if min(abs(p), abs(q)) >= APART and p * q > 0), None)
    assert first_apart(a, a_error, b, b_error) == wanted


def test_unknown_errors_are_never_apart() -> None:
    one, nan = np.ones(3), np.full(3, np.nan)
    assert first_apart(one, nan, 9 * one, nan) is None


@pytest.mark.parametrize(
    ("more", "advice"), [(("--gap", "drift"), "both runs have mismatch"), (("--pair-by", "x"), "prompt_text, group_id")]
)
def test_wrong_choices_are_refused(tmp_path: Path, capsys: Captured, more: tuple[str, str], advice: str) -> None:
    a = written(tmp_path / "a", [0.1] * 2)
    assert main(["diff", str(a), str(a), *more]) == cli.USAGE
    assert advice in capsys.readouterr().err


def test_runs_without_a_common_gap_and_of_other_gaps(tmp_path: Path, capsys: Captured) -> None:
    with Collector(tmp_path / "empty"):
        pass
    a = recorded("trl_vllm_stale4", tmp_path / "a", steps=4)
    assert main(["diff", str(a), str(tmp_path / "empty")]) == cli.UNREADABLE
    assert "no gap in common" in capsys.readouterr().err
    found = said(capsys, a, a, "--gap", "drift")
    assert (
        found["gap"] == "drift" and found["paired"]["metric"] == "abs_log_ratio" and found["paired"]["difference"] == 0
    )


def test_two_runs_are_compared_on_the_gap_of_a_reading(capsys: Captured, tmp_path: Path) -> None:
    a, b = read_run(tmp_path / "a"), read_run(tmp_path / "b")
    found = said(capsys, a, b, "--gap", "rollout:referee", "--pair-by", "group_id")
    assert found["gap"] == "rollout:referee" and found["direction"] == "unclear"
    k3 = next(row for row in found["metrics"] if row["metric"] == "kl_k3")
    assert k3["a"] == k3["b"] == open_run(a).metrics((), gap="rollout:referee")["rollout:referee/kl_k3"][0]
    x = open_run(a).tokens([0, 1, 2, 3], ["rollout:referee", "sequence_id"]).collect().drop_nulls()
    assert found["paired"]["pairs"] == 4 and found["paired"]["difference"] == 0 and len(x)
    rows = open_run(a).rows(0, ["old_logprobs"])
    lists: list[list[float]] = rows["old_logprobs"].to_pylist()  # type: ignore[assignment]
    keys = {name: rows[name] for name in ("attempt", "step", "sequence_id")}
    record_readings(b, "referee", keys | {"logprobs": [[x - 5.0 for x in each] for each in lists]}, {})
    again = said(capsys, a, b, "--gap", "rollout:referee", "--pair-by", "group_id")
    assert again["direction"] == "worse" and again["paired"]["difference"] > 1, (
        "the prompts of an older reading are not reused"
    )


def test_a_reading_that_a_run_lacks_is_refused_with_the_gaps_of_both(capsys: Captured, tmp_path: Path) -> None:
    a, b = read_run(tmp_path / "a"), written(tmp_path / "b", [0.1] * 2)
    assert main(["diff", str(a), str(b), "--gap", "rollout:referee"]) == cli.USAGE
    err = capsys.readouterr().err
    assert "b has no such reading; both runs have mismatch" in err and "ratioscope rescore" in err
