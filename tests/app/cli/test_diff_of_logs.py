"""`ratioscope diff` of scalar logs: the trainer's numbers that both hold, and the settings that differ, the known ones first."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import ROOT

from ratioscope.app.cli import OK, USAGE, main
from ratioscope.app.presentation.difference import Difference, differing_settings, plain_difference
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.logged_comparison import FEWEST, LoggedNumbers, _error, logged_numbers
from ratioscope.ingest.run import open_run
from ratioscope.metrics.analysis.comparison import Compared, Estimate

Captured = pytest.CaptureFixture[str]
WEEKS = ROOT / "tests" / "data" / "scalars" / "settings" / "wandb"
"""Two offline runs that W&B wrote: verl's numbers, and configs that differ in four settings."""


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    runs = tmp_path_factory.mktemp("weeks") / "runs"
    assert main(["import", str(WEEKS), "-o", str(runs), "--dialect", "verl@0.9.1"]) == OK
    return runs / "good-week", runs / "bad-week"


def said(capsys: Captured, *argv: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["diff", *map(str, argv), "--json"]) == OK
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def log_of(folder: Path, name: str, values: dict[str, list[float]], first: int = 1, **options: str) -> Path:
    """A run of a table of numbers by step."""
    columns = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    lines = [json.dumps({"step": first + at, **row}) for at, row in enumerate(columns)]
    (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    more = [part for key, value in options.items() for part in (f"--{key}", value)]
    assert main(["import", str(folder / f"{name}.jsonl"), "-o", str(folder / name), *more]) == OK
    return folder / name


def test_two_weeks_of_wandb_differ_in_exactly_four_settings_the_known_ones_first(
    weeks: tuple[Path, Path], capsys: Captured
) -> None:
    found = said(capsys, *weeks)["settings"]
    part = "config.actor_rollout_ref"
    assert [(row["setting"], row["A"], row["B"], row["known"]) for row in found] == [
        (f"{part}.rollout.top_p", "1", "0.9", "known fault"),
        ("config.async_training.staleness_threshold", "0.1", "0.5", "remedy"),
        (f"{part}.actor.optim.lr", "0.000001", "0.000003", None),
        (f"{part}.rollout.gpu_memory_utilization", "0.6", "0.8", None),
    ]
    assert (
        found[0]["effect"].startswith("B alone has a known fault.") and "older than the trainer's" in found[1]["effect"]
    )


def test_the_numbers_of_both_logs_are_compared_the_gap_first(weeks: tuple[Path, Path], capsys: Captured) -> None:
    found = said(capsys, *weeks)
    assert found["direction"] == "worse" and found["gap"] == "mismatch"
    assert found["sentence"].startswith("It got worse: B's mismatch/kl_k3 is 3 times higher: ")
    numbers = {row["metric"]: row for row in found["metrics"]}
    assert set(numbers) == {"mismatch/kl_k3", "mismatch/prob_diff", "critic/score/mean", "perf/mfu"}
    assert [*numbers][0] == "mismatch/kl_k3" and [*numbers][2:] == ["critic/score/mean", "perf/mfu"]
    k3 = numbers["mismatch/kl_k3"]
    of_a, of_b = (open_run(week).metrics()["mismatch/kl_k3"].to_numpy() for week in weeks)
    assert k3["a_error"] is None and (k3["a"], k3["b"]) == pytest.approx((of_a.mean(), of_b.mean()))
    means = [block.mean() for block in np.array_split(of_b - of_a, 5)]
    assert k3["error"] == pytest.approx(np.std(means, ddof=1) / math.sqrt(5))
    assert numbers["critic/score/mean"]["p_adjusted"] < 0.001 < 0.05 < numbers["perf/mfu"]["p_adjusted"]
    assert said(capsys, *reversed(weeks))["direction"] == "better"


def test_the_terminal_names_numbers_errors_and_settings(weeks: tuple[Path, Path], capsys: Captured) -> None:
    assert main(["diff", *map(str, weeks)]) == OK
    printed = capsys.readouterr().out
    assert printed.startswith("It got worse: ") and "no metric" not in printed and "critic/score/mean" in printed
    assert "means over 30 steps that both have" in printed and "On no two adjacent steps" not in printed
    assert "Settings that differ (4); 2 known to act on the gap, first:" in printed


def test_logs_without_a_metric_of_ours_are_compared_by_the_trainers_numbers(tmp_path: Path, capsys: Captured) -> None:
    """TRL's mean of absolute differences is a mean over processes, so it is none of ours: it still answers which run is worse."""
    name = "sampling/sampling_logp_difference/mean"
    noise = np.random.default_rng(0).normal(0, 0.001, 40)
    a = log_of(tmp_path, "a", {name: [*(0.01 + noise[:20])], "reward": [*noise[20:]]})
    b = log_of(tmp_path, "b", {name: [*(0.03 + noise[20:])], "reward": [*noise[:20]]})
    found = said(capsys, a, b)
    assert found["direction"] == "worse" and found["gap"] == "mismatch", "what it comes close to"
    assert f"B's {name} is 3" in found["sentence"] and [row["metric"] for row in found["metrics"]] == [name, "reward"]


def test_steps_that_do_not_meet_are_compared_as_wholes(tmp_path: Path, capsys: Captured) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 40)
    a = log_of(tmp_path, "a", {"loss": [*(1 + noise[:20])]})
    b = log_of(tmp_path, "b", {"loss": [*(2 + noise[20:])]}, first=101)
    (row,) = said(capsys, a, b)["metrics"]
    assert row["a_error"] > 0 and row["p"] < 0.01 and not logged_numbers(open_run(a), open_run(b)).is_paired
    assert row["difference"] == pytest.approx(1 + noise[20:].mean() - noise[:20].mean())


def test_logs_of_two_trainers_share_only_metrics_of_ours(tmp_path: Path) -> None:
    steps = [0.1, 0.2, 0.3, 0.4]
    a = log_of(tmp_path, "a", {"mismatch/mismatch_k3_kl": steps, "loss": steps}, dialect="verl@0.9.1")
    b = log_of(tmp_path, "b", {"ratioscope/mismatch/kl_k3": steps, "loss": steps}, dialect="ratioscope")
    c = log_of(tmp_path, "c", {"mismatch_kl/all/mean": steps, "loss": steps}, dialect="prime_rl")
    assert [one.metric for one in logged_numbers(open_run(a), open_run(b)).compared] == ["mismatch/kl_k3", "loss"]
    assert [one.metric for one in logged_numbers(open_run(a), open_run(c)).compared] == []


def test_a_recorded_run_is_compared_with_a_log_by_the_metrics_of_both(tmp_path: Path, capsys: Captured) -> None:
    recorded, random = tmp_path / "recorded", np.random.default_rng(0)
    with Collector(recorded) as collector:
        for step in range(1, 9):
            rollout = [(-random.exponential(1.0, 40)).tolist() for _ in range(6)]
            old = [[x - abs(0.1 * random.normal()) for x in row] for row in rollout]
            collector.log(step=step, rollout_logprobs=rollout, old_logprobs=old)
        collector.flush(timeout=60)
    own = open_run(recorded).metrics()["mismatch/kl_k3"]
    b = log_of(tmp_path, "b", {"mismatch/mismatch_k3_kl": [10 * x for x in own]}, dialect="verl")
    found = said(capsys, recorded, b)
    (row,) = found["metrics"]
    assert row["metric"] == "mismatch/kl_k3" and row["ratio"] == pytest.approx(10) and found["direction"] == "worse"


def test_nothing_in_common_is_said(tmp_path: Path, capsys: Captured) -> None:
    a, b = log_of(tmp_path, "a", {"x": [1.0, 2.0]}), log_of(tmp_path, "b", {"y": [1.0, 2.0]})
    assert said(capsys, a, b)["sentence"] == "Nothing is compared, because A and B have no number in common."
    same = said(capsys, a, a)
    assert same["direction"] == "unclear" and same["sentence"].startswith("The gap is not compared")
    assert main(["diff", str(a), str(b), "--gap", "drift"]) == USAGE


def test_the_short_table_is_judged_over_all_numbers_as_json_is() -> None:
    """p = 0.002 of one is sure among 15 numbers, and not among 40."""
    rows = [Compared(f"n{at}", Estimate(0.0, 1.0, 1), Estimate(0.0 if at else 4.37, 1.0, 1)) for at in range(40)]
    few, many = (
        Difference(
            "mismatch", tuple(rows[:size]), None, None, differing_settings([{}], [{}]), LoggedNumbers((), {}, 9, True)
        )
        for size in (15, 40)
    )
    assert few.table["result"][0] == "differs" and few.table["metric"].to_list() == many.table["metric"].to_list()
    assert many.table["result"][0] == "may be chance"
    assert plain_difference(many)["metrics"][0]["p_adjusted"] > 0.05 > plain_difference(few)["metrics"][0]["p_adjusted"]


def test_few_steps_have_no_error_and_numbers_that_are_not_finite_do_not_count(tmp_path: Path) -> None:
    few = [0.1, 0.2, 0.3][: FEWEST - 1]
    a = open_run(log_of(tmp_path, "a", {"x": few, "y": [math.nan, math.inf, 1.0]}))
    b = open_run(log_of(tmp_path, "b", {"x": [2 * x for x in few], "y": [1.0, 2.0, 3.0]}))
    found = {one.metric: one for one in logged_numbers(a, b).compared}
    assert math.isnan(found["x"].error) and math.isnan(found["x"].p) and found["y"].a.value == 1


@given(st.integers(0, 10**6), st.integers(FEWEST, 60))
def test_the_error_of_a_course_is_that_of_the_means_of_its_blocks(seed: int, steps: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(0, 1, steps)
    error, blocks = _error(values)
    means = [values[[at for at in range(steps) if place(at, steps, blocks) == block]].mean() for block in range(blocks)]
    assert blocks == math.isqrt(steps) and error == pytest.approx(np.std(means, ddof=1) / math.sqrt(blocks))


def place(at: int, steps: int, blocks: int) -> int:
    """The block of a step, where the first blocks have one step more if they cannot be equal."""
    size, more = divmod(steps, blocks)
    return at // (size + 1) if at < more * (size + 1) else more + (at - more * (size + 1)) // size
