"""Comparisons against scipy and by their laws; pairs by prompt against a loop over the rows."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # it ships no types
from support.edge_runs import made

from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.run_comparison import METRICS, merged_tables, of_metric, prompt_table
from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.run import Run, open_run
from ratioscope.metrics.analysis.comparison import Compared, Estimate, Paired, holm, over_runs, paired, student_tail

VALUES = st.floats(-1e6, 1e6)
ERRORS = st.floats(1e-9, 1e6)
ESTIMATES = st.builds(Estimate, VALUES, ERRORS, st.just(1))


@given(st.floats(0, 60), st.one_of(st.floats(1, 500), st.just(math.inf)))
def test_tails_of_student_are_those_of_scipy(t: float, freedom: float) -> None:
    wanted = 2 * (stats.norm.sf(t) if math.isinf(freedom) else stats.t.sf(t, freedom))
    assert student_tail(t, freedom) == pytest.approx(wanted, rel=1e-9, abs=1e-300)


@given(st.lists(VALUES, min_size=2, max_size=6), st.lists(VALUES, min_size=2, max_size=6))
def test_several_runs_a_side_are_compared_as_welch_does(a: list[float], b: list[float]) -> None:
    one, other = (over_runs([Estimate(value, 1.0, 1) for value in side]) for side in (a, b))
    found = Compared("m", one, other)
    if len(set(a)) == 1 or len(set(b)) == 1 or np.std(a) < 1e-6 or np.std(b) < 1e-6:
        return  # scipy warns of lost precision where a side has no spread
    wanted: Any = stats.ttest_ind(b, a, equal_var=False)
    assert found.z == pytest.approx(wanted.statistic, rel=1e-6, abs=1e-9)
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-6, abs=1e-12)


@given(ESTIMATES, ESTIMATES)
def test_swapping_the_sides_turns_the_sign_and_nothing_else(a: Estimate, b: Estimate) -> None:
    there, back = Compared("m", a, b), Compared("m", b, a)
    assert (
        there.difference == -back.difference and there.error == back.error and there.z == -back.z and there.p == back.p
    )
    if not math.isnan(there.ratio):
        # The ratio of the least float to 2 is 0, and that of 2 to the least float is infinite.
        assert there.ratio == pytest.approx(1 / back.ratio if back.ratio else math.inf)


@given(ESTIMATES)
def test_a_side_against_itself_shows_no_difference(a: Estimate) -> None:
    same = Compared("m", a, a)
    assert same.difference == 0 and same.z == 0 and same.p == 1


def test_errors_that_are_not_known_give_a_difference_and_no_z() -> None:
    for a, b in ((Estimate(1.0, math.nan, 1), Estimate(3.0, 0.1, 1)), (Estimate(1.0, 0.0, 1), Estimate(3.0, 0.0, 1))):
        found = Compared("m", a, b)
        assert found.difference == 2 and found.ratio == 3 and math.isnan(found.z) and math.isnan(found.p)
    lost = Compared("m", Estimate(), Estimate(1.0, 0.1, 1))
    assert math.isnan(lost.difference) and math.isnan(lost.z) and math.isnan(lost.ratio)
    endless = Compared("m", Estimate(math.inf, math.nan, 1), Estimate(math.inf, math.nan, 1))
    assert math.isnan(endless.difference) and math.isnan(endless.z)
    assert math.isnan(Compared("m", Estimate(-1.0, 0.1, 1), Estimate(1.0, 0.1, 1)).ratio)


def test_a_single_run_keeps_its_error_and_several_have_the_one_between_them() -> None:
    assert over_runs([]) == Estimate() or math.isnan(over_runs([]).value)
    assert over_runs([Estimate(), Estimate(2.0, 0.5, 1)]) == Estimate(2.0, 0.5, 1)
    three = over_runs([Estimate(1.0, 9.0, 1), Estimate(2.0, 9.0, 1), Estimate(3.0, 9.0, 1)])
    assert (three.value, three.runs) == (2.0, 3) and three.error == pytest.approx(1 / math.sqrt(3))
    assert math.isnan(over_runs([Estimate(math.inf, 1.0, 1), Estimate(2.0, 1.0, 1)]).error)


@given(st.lists(st.one_of(st.floats(0, 1), st.just(math.nan)), max_size=20))
def test_holm_is_that_of_its_definition(chances: list[float]) -> None:
    adjusted = holm(chances)
    known = sorted(chance for chance in chances if not math.isnan(chance))
    for chance, found in zip(chances, adjusted, strict=True):
        assert math.isnan(found) == math.isnan(chance)
        if math.isnan(chance):
            continue
        rank = known.index(chance)
        last = max(at for at, other in enumerate(known) if other == chance)
        bounds = [min(1.0, other * (len(known) - at)) for at, other in enumerate(known[: last + 1])]
        assert chance <= found <= 1 and found >= max(bounds[: rank + 1]) and found == max(bounds[: rank + 1])


@given(
    st.dictionaries(st.text(max_size=3), VALUES, max_size=12), st.dictionaries(st.text(max_size=3), VALUES, max_size=12)
)
def test_pairs_are_those_of_a_loop(a: dict[str, float], b: dict[str, float]) -> None:
    found = paired(_frame(a), _frame(b))
    apart = [b[key] - a[key] for key in a if key in b]
    assert (found.pairs, found.only_a, found.only_b) == (len(apart), len(a) - len(apart), len(b) - len(apart))
    if len(apart) > 1:
        assert found.difference == pytest.approx(np.mean(apart), rel=1e-9, abs=1e-6)
        assert found.error == pytest.approx(stats.sem(apart), rel=1e-6, abs=1e-6)
    back = paired(_frame(b), _frame(a))
    assert back.pairs == found.pairs and (not apart or back.difference == pytest.approx(-found.difference))


def test_pairing_sees_what_the_spread_of_prompts_hides() -> None:
    draws = np.random.default_rng(0)
    easy = draws.lognormal(0, 2, 200)
    a = {str(at): value for at, value in enumerate(easy)}
    b = {key: value * 0.9 for key, value in a.items()}
    found = paired(_frame(a), _frame(b))
    apart = Compared("m", *(Estimate(float(np.mean(list(s.values()))), stats.sem(list(s.values())), 1) for s in (a, b)))
    assert abs(found.z) > 3 > abs(apart.z) and found.b == pytest.approx(0.9 * found.a)


def test_one_pair_has_no_error_and_none_has_no_difference() -> None:
    assert math.isnan(paired(_frame({"k": 1.0}), _frame({"k": 2.0})).error)
    none = paired(_frame({"k": math.nan, "l": 1.0}), _frame({"k": 1.0}))
    assert isinstance(none, Paired) and none.pairs == 0 and math.isnan(none.difference) and math.isnan(none.z)


def test_prompts_are_measured_as_a_loop_over_their_sequences_does(tmp_path: Path) -> None:
    run = _prompted(tmp_path / "run", 0.1)
    told: list[tuple[int, int]] = []
    table = prompt_table(
        run, range(1, 3), "prompt_text", "mismatch", progress=lambda *at: told.append(at), cache=Cache(None)
    )
    rows = pl.concat([run.sequences(step) for step in (1, 2)])
    assert (
        told == [(1, 2), (2, 2)]
        and table["sequences"].to_list() == [4, 4]
        and table["tokens"].sum() == rows["length"].sum()
    )
    for metric in METRICS:
        wanted = sorted(
            float(np.average(part[f"mismatch/{metric}"], weights=part["mismatch/tokens"]))
            for _, part in rows.group_by("prompt_text")
        )
        assert sorted(of_metric(table, metric)["value"].to_list()) == pytest.approx(wanted)
    whole = merged_tables(
        [prompt_table(run, range(step, step + 1), "prompt_text", "mismatch", cache=Cache(None)) for step in (1, 2)]
    )
    assert whole["key"].to_list() == table["key"].to_list() and whole["kl_k3"].to_list() == pytest.approx(
        table["kl_k3"].to_list()
    )


def test_prompts_are_read_once_and_then_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, cache = _prompted(tmp_path / "run", 0.1), Cache(tmp_path / "cache")
    first = prompt_table(run, range(0, 3), "prompt_text", "mismatch", cache=cache)
    other = prompt_table(run, range(0, 3), "group_id", "mismatch", cache=cache)
    assert len(other) == 0 and len(prompt_table(run, range(0, 3), "prompt_text", "drift", cache=cache)) == 0
    monkeypatch.setattr(Run, "sequences", None)
    assert prompt_table(run, range(0, 3), "prompt_text", "mismatch", cache=cache).equals(first)


def test_equal_prompts_of_two_runs_are_partners(tmp_path: Path) -> None:
    tables = [
        of_metric(
            prompt_table(
                _prompted(tmp_path / f"{size}", size), range(0, 3), "prompt_text", "mismatch", cache=Cache(None)
            ),
            "kl_k3",
        )
        for size in (0.05, 0.5)
    ]
    found = paired(*tables)
    assert found.pairs == 2 and found.only_a == found.only_b == 0 and found.b > found.a


def test_a_real_run_against_itself_pairs_to_nothing_at_all(runs: Path) -> None:
    run = open_run(made(runs, "healthy"))
    table = of_metric(prompt_table(run, range(0, 9), "sequence_id", "mismatch", cache=Cache(None)), "kl_k3")
    found = paired(table, table)
    assert found.pairs == len(table) > 0 and found.difference == 0 == found.error and math.isnan(found.z)


def _frame(values: dict[str, float]) -> pl.DataFrame:
    return pl.DataFrame(
        {"key": list(values), "value": list(values.values())}, schema={"key": pl.String, "value": pl.Float64}
    )


def _prompted(folder: Path, size: float) -> Run:
    """Two prompts, each sampled twice at three steps."""
    draws = np.random.default_rng(1)
    with Collector(folder) as collector:
        for step in range(3):
            rollout = [(-draws.exponential(1.0, length)).tolist() for length in (4, 7, 3, 9)]
            old = [[-abs(value + size * float(draws.normal())) for value in row] for row in rollout]
            ids = [f"{step}-{row}-{size}" for row in range(4)]
            collector.log(
                step=step,
                rollout_logprobs=rollout,
                old_logprobs=old,
                sequence_ids=ids,
                prompt_texts=["p", "q", "p", "q"],
            )
    return open_run(folder)
