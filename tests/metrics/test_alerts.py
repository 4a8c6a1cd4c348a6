"""Alerts: laws of opening and closing, an oracle written another way, and the alerts of real runs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edge_runs import made

from ratioscope.ingest.analysis.grades import signal_grades
from ratioscope.ingest.run import open_run
from ratioscope.metrics.grading.alerts import RULES, Alert, Rules, alert_frame, alerts, merged_gaps
from ratioscope.metrics.grading.finding import Severity
from ratioscope.metrics.grading.severity import GRADE, grades_of
from ratioscope.metrics.grading.signals import SIGNALS

K3 = next(signal for signal in SIGNALS if signal.name == "kl_k3")
VALUES = st.sampled_from([0.0, 0.005, 0.0079, 0.0081, 0.0099, 0.01, 0.02, 0.099, 0.1, 0.5])
SERIES = st.lists(VALUES, max_size=40)
ANY_RULES = st.builds(
    Rules,
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.2, 0.5]),
    st.sampled_from([(K3,), (replace(K3, lasting=True),)]),
)


def _graded(*series: tuple[str, str, list[float]]) -> pl.DataFrame:
    """What grade_signals gives for series of (signal, gap, tested), steps 0, 10, 20 ..."""
    rows: list[Any] = []
    for name, gap, tested in series:
        rows += [(10 * at, name, gap, value, value, None, False) for at, value in enumerate(tested)]
    return pl.DataFrame(rows, ["step", "signal", "gap", "value", "tested", "floor", "at_least"], orient="row")


def _of(tested: list[float], rules: Rules = RULES) -> tuple[Alert, ...]:
    return alerts(_graded(("kl_k3", "mismatch", tested)), rules)


def test_an_alert_opens_and_closes() -> None:
    calm, out, act = 0.001, 0.02, 0.3
    (alert,) = _of([calm, out, act, act, out, calm, calm, 0.0085, *[calm] * 6])
    assert (alert.first_step, alert.last_step, alert.closed_at) == (10, 70, 120)
    assert (alert.severity, alert.steps, alert.peak_step, alert.peak) == (Severity.ACT, 4, 20, act)
    assert alert.reading == "mismatch: KL K3 is 0.3 nats/token" and alert.signal is K3 and not alert.is_open


def test_one_step_out_of_bounds_opens_nothing_and_one_act_step_makes_a_watch_alert() -> None:
    assert _of([0.001, 0.5, 0.001, 0.5, 0.001]) == ()
    (alert,) = _of([0.02, 0.5, 0.02])
    assert alert.severity == Severity.WATCH and alert.is_open and alert.peak == 0.5
    assert _of([0.5], Rules(open_after=1))[0].severity == Severity.ACT


def test_a_signal_that_wavers_about_its_threshold_rings_once() -> None:
    wavering = [0.011, 0.012] + [0.0095, 0.0105] * 20
    assert len(_of(wavering)) == 1
    assert len(_of(wavering, Rules(1, 1, 0.0))) == 21


@given(SERIES, ANY_RULES)
def test_alerts_are_those_of_an_oracle(tested: list[float], rules: Rules) -> None:
    found = [
        (a.first_step // 10, a.last_step // 10, None if a.closed_at is None else a.closed_at // 10)
        for a in _of(tested, rules)
    ]
    assert found == _oracle(tested, rules)


@given(SERIES, ANY_RULES)
def test_alerts_of_a_signal_and_gap_do_not_overlap(tested: list[float], rules: Rules) -> None:
    found = _of(tested, rules)
    for earlier, later in zip(found, found[1:], strict=False):
        assert earlier.closed_at is not None and earlier.last_step < earlier.closed_at < later.first_step


@given(SERIES, SERIES, ANY_RULES)
def test_more_steps_never_change_a_closed_alert(tested: list[float], more: list[float], rules: Rules) -> None:
    before, after = _of(tested, rules), _of(tested + more, rules)
    closed = tuple(alert for alert in before if not alert.is_open)
    assert after[: len(closed)] == closed
    opened = [alert for alert in before if alert.is_open]
    assert all(after[len(closed)].first_step == alert.first_step for alert in opened)


@given(SERIES, ANY_RULES)
def test_every_stretch_at_act_lies_in_an_alert_at_act(tested: list[float], rules: Rules) -> None:
    found = _of(tested, rules)
    grades = grades_of(rules.signals[0], pl.Series(tested, dtype=pl.Float64).to_numpy()).tolist()
    for at in range(len(grades) - rules.open_after + 1):
        if all(grade == Severity.ACT for grade in grades[at : at + rules.open_after]):
            first, last = 10 * at, 10 * (at + rules.open_after - 1)
            assert any(a.first_step <= first and last <= a.last_step and a.severity == Severity.ACT for a in found)


@given(SERIES, ANY_RULES)
def test_no_alert_without_evidence(tested: list[float], rules: Rules) -> None:
    grades = grades_of(rules.signals[0], pl.Series(tested, dtype=pl.Float64).to_numpy()).tolist()
    for alert in _of(tested, rules):
        first, last = alert.first_step // 10, alert.last_step // 10
        assert all(grades[first : first + rules.open_after]) and alert.steps == sum(
            g > 0 for g in grades[first : last + 1]
        )
        told = {at: grade for begin, end, grade in alert.outside for at in range(begin // 10, end // 10 + 1)}
        assert told == {at: grades[at] for at in range(first, last + 1) if grades[at]}
        assert alert.peak == max(tested[first : last + 1]) == tested[alert.peak_step // 10] and alert.peak >= K3.watch
        calm = [value < K3.watch * (1 - rules.hysteresis) for value in tested]
        assert not calm[first] and not calm[last]
        longest = "".join("c" if quiet else "." for quiet in calm[first : last + 1])
        assert "c" * rules.close_after not in longest


@given(SERIES, SERIES, ANY_RULES)
def test_series_do_not_touch_each_other(one: list[float], other: list[float], rules: Rules) -> None:
    both = alerts(_graded(("kl_k3", "mismatch", one), ("kl_k3", "total", other)), rules)
    assert tuple(a for a in both if a.gap == "mismatch") == _of(one, rules)
    assert [a.first_step for a in both] == sorted(a.first_step for a in both)


def test_gaps_that_ring_together_are_told_once_and_others_by_themselves() -> None:
    out, calm = [0.02] * 3 + [0.001] * 6, [0.001] * 9
    alike = alerts(_graded(("kl_k3", "mismatch", out + calm), ("kl_k3", "total", out + out)))
    first, second = merged_gaps(alike)
    assert (first.gaps, second.gaps) == ("mismatch, total", "total") and len(alike) == 3
    assert alert_frame([first])["gap"].to_list() == ["mismatch, total"]


def test_gaps_that_ring_at_nearly_the_same_steps_are_one_happening() -> None:
    mismatch, total = [0.02] * 4 + [0.001] * 6, [0.001] * 2 + [0.3] * 6 + [0.001] * 2
    series = ("kl_k3", "mismatch", mismatch), ("kl_k3", "total", total), ("correlation", "mismatch", [0.5] * 10)
    alone = alerts(_graded(*series))
    (one,) = (alert for alert in merged_gaps(alone) if alert.signal.name == "kl_k3")
    of_total = next(alert for alert in alone if alert.gap == "total")
    assert (one.gap, one.also, one.severity) == ("total", ("mismatch",), Severity.ACT)
    assert (one.first_step, one.last_step, one.is_open) == (0, 70, True)
    assert (one.peak_step, one.reading, one.steps) == (of_total.peak_step, of_total.reading, 6)
    assert one.outside == ((0, 19, Severity.WATCH), (20, 70, Severity.ACT))
    assert len(merged_gaps(alone)) == 2, "another signal stays by itself"


@given(SERIES, SERIES, ANY_RULES)
def test_merged_gaps_lose_no_step_and_no_grade(one: list[float], other: list[float], rules: Rules) -> None:
    alone = alerts(_graded(("kl_k3", "mismatch", one), ("kl_k3", "total", other)), rules)
    merged = merged_gaps(alone)
    assert sum(1 + len(alert.also) for alert in merged) == len(alone)

    def worst(many: Sequence[Alert]) -> dict[int, Severity]:
        told: dict[int, Severity] = {}
        for first, last, grade in (spell for alert in many for spell in alert.outside):
            for at in range(first, last + 1):
                told[at] = max(told.get(at, grade), grade)
        return told

    assert worst(merged) == worst(alone)
    for alert in merged:
        spells = alert.outside
        assert all(first <= last for first, last, _ in spells) and list(spells) == sorted(spells)


def test_an_alert_knows_what_was_read_at_its_first_step() -> None:
    (alert,) = _of([0.001, 0.02, 0.3, 0.3, 0.02])
    assert alert.first_reading == "mismatch: KL K3 is 0.02 nats/token" and "0.3" in alert.reading


def test_rules_regrade_as_the_table_does_and_moved_thresholds_move_alerts(runs: Path) -> None:
    graded = signal_grades(open_run(made(runs, "stale")))
    for (name, _), rows in graded.group_by("signal", "gap"):
        signal = next(signal for signal in SIGNALS if signal.name == name)
        assert (
            rows.sort("step")["severity"].to_physical().to_list()
            == grades_of(signal, rows.sort("step")["tested"].to_numpy()).tolist()
        )
    found = alerts(graded)
    assert any(a.severity == Severity.ACT and a.gap == "mismatch" for a in found)
    strict = Rules(signals=tuple(replace(s, watch=s.watch * 1e9, act=None) for s in SIGNALS))
    assert alerts(graded, strict) == ()
    assert alert_frame(found)["severity"].dtype == GRADE and len(alert_frame(())) == 0


def test_a_healthy_run_rings_nothing(runs: Path) -> None:
    assert alerts(signal_grades(open_run(made(runs, "healthy")))) == ()


def test_no_graded_step_gives_no_alert_and_bad_rules_are_refused() -> None:
    assert _of([]) == () and alerts(pl.DataFrame(schema=_graded(("a", "b", [1.0])).schema)) == ()
    for wrong in ((0, 1, 0.1), (1, 0, 0.1), (1, 1, 1.0), (1, 1, -0.1)):
        with pytest.raises(ValueError, match="wanted open_after"):
            Rules(*wrong)


def _oracle(tested: list[float], rules: Rules) -> list[tuple[int, int, int | None]]:
    """Alerts by looking for whole windows: the first window out of bounds, then the first window calm after it."""
    signal, size = rules.signals[0], len(tested)
    out = [value >= signal.watch for value in tested]
    if signal.lasting:
        out = [out[i] and ((i > 0 and out[i - 1]) or (i + 1 < size and out[i + 1])) for i in range(size)]
    calm = [value < signal.watch * (1 - rules.hysteresis) for value in tested]
    found: list[tuple[int, int, int | None]] = []
    at = 0
    while True:
        first = next((i for i in range(at, size - rules.open_after + 1) if all(out[i : i + rules.open_after])), None)
        if first is None:
            return found
        quiet = next(
            (i for i in range(first, size - rules.close_after + 1) if all(calm[i : i + rules.close_after])), None
        )
        end = size if quiet is None else quiet
        last = max(i for i in range(first, end) if not calm[i])
        closed = None if quiet is None else quiet + rules.close_after - 1
        found.append((first, last, closed))
        if closed is None:
            return found
        at = closed + 1
