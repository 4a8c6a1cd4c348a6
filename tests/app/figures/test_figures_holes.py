"""Lines break where steps are missing on record, or were filtered away, and nowhere else."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edge_runs import made
from support.frames import metric_frame, traces

from ratioscope.app import figures
from ratioscope.app.dashboard.model.view import view
from ratioscope.app.figures.drawing.lines import Line
from ratioscope.app.figures.drawing.thinning import POINTS, thinned_steps
from ratioscope.app.figures.html.cards import metric_cards
from ratioscope.app.figures.lags import lags_over_steps
from ratioscope.app.figures.log_ratio_quantiles import log_ratio_quantiles
from ratioscope.app.figures.several_runs import metric_of_runs
from ratioscope.app.figures.sides import SideRun, courses
from ratioscope.app.pages.scope import Scope
from ratioscope.ingest.rows.part import part_of
from ratioscope.metrics.definitions.registry import BY_NAME

K3 = BY_NAME["kl_k3"]
STEPS = (*range(30), *range(35, 60))


def crossed(figure: go.Figure) -> list[tuple[float, float]]:
    """From where to where lines and bands reach over more than the usual step."""
    found = []
    for trace in traces(figure):
        if "lines" in (trace.mode or "") and trace.xaxis is None:
            x, y = np.asarray(trace.x, np.float64), np.asarray(trace.y, np.float64)
            drawn = np.isfinite(x[:-1]) & np.isfinite(x[1:]) & np.isfinite(y[:-1]) & np.isfinite(y[1:])
            found += [(a, b) for a, b in zip(x[:-1][drawn], x[1:][drawn], strict=True) if abs(b - a) > 1]
    return found


def test_a_line_breaks_where_steps_are_missing_on_record() -> None:
    frame = metric_frame(60).filter(pl.col("step").is_in(STEPS))
    steps, values = frame["step"].cast(pl.Float64).to_numpy(), frame["mismatch/kl_k3"].to_numpy()
    lines = [Line("a", None, steps, steps, values, values / 10, smooth=values)]
    for figure in (
        figures.metric_over_steps(frame, K3, "mismatch"),
        metric_of_runs(lines, K3, "mismatch"),
        courses([SideRun(0, "a", frame)], K3, "mismatch"),
    ):
        assert crossed(figure) == []


def test_lags_and_quantiles_break_there_too() -> None:
    rows = [(step, step, "0", 0, 0.01, 0.001, 100.0) for step in STEPS]
    columns = ["step", "last", "lag", "first_lag", "mismatch/kl_k3", "mismatch/kl_k3_se", "mismatch/tokens"]
    course = pl.DataFrame(rows, columns, orient="row")
    assert crossed(lags_over_steps(course, K3, "mismatch")) == []
    ends = {
        name: [value] * len(STEPS)
        for name, value in (("min", -1.0), ("p5", -0.1), ("p50", 0.0), ("p95", 0.1), ("max", 1.0))
    }
    pooled = {"first": STEPS, "last": STEPS, "steps": [1] * len(STEPS), "count": [100] * len(STEPS), **ends}
    assert crossed(log_ratio_quantiles(pl.DataFrame(pooled), "mismatch")) == []


def test_the_course_on_a_card_breaks_there_too() -> None:
    frame = metric_frame(60)
    whole, holed = (metric_cards(rows, [K3], "mismatch") for rows in (frame, frame.filter(pl.col("step").is_in(STEPS))))
    assert _strokes(holed) == _strokes(whole) + 1


def _strokes(page: str) -> int:
    """How often the pen is set down for the line, after the band."""
    return unquote(page).split('fill="none"')[0].rsplit('d="', 1)[1].count("M")


def test_a_run_that_records_each_tenth_step_is_one_line() -> None:
    frame = metric_frame(600).filter(pl.col("step") % 10 == 0)
    figure = figures.metric_over_steps(frame, K3, "mismatch")
    line: Any = next(trace for trace in traces(figure) if trace.name == "kl_k3")
    assert len(line.x) == 60 and np.isfinite(line.y).all()


def test_a_long_run_has_no_point_among_the_missing_steps() -> None:
    steps = np.array([*range(1000), *range(5000, 8000)], np.float64)
    drawn = thinned_steps(steps, steps)
    known = drawn.middle[np.isfinite(drawn.mean)]
    assert drawn.breaks == 1 and drawn.points <= POINTS + 1 and not ((known > 999) & (known < 5000)).any()
    assert len(drawn.note.split(" means")[0]) and f"{drawn.points:,} means" in drawn.note


@given(st.sets(st.integers(0, 3000), min_size=2, max_size=1200))
def test_thinning_loses_no_step_and_no_extreme_whatever_is_missing(found: set[int]) -> None:
    steps = np.array(sorted(found), np.float64)
    drawn = thinned_steps(steps, -steps)
    known = np.isfinite(drawn.mean)
    assert known.sum() == drawn.points <= 2 * POINTS + 1 and drawn.rows == len(steps)
    assert drawn.first[known][0] == steps[0] and drawn.last[known][-1] == steps[-1]
    assert np.nanmin(drawn.low) == -steps[-1] and np.nanmax(drawn.high) == -steps[0]
    inside = [steps[(steps >= a) & (steps <= b)] for a, b in zip(drawn.first[known], drawn.last[known], strict=True)]
    assert sum(map(len, inside)) == len(steps), "each step lies in one bucket"


def test_a_step_between_two_holes_has_a_mark() -> None:
    values = [0.1, None] * 60
    figure = figures.metric_over_steps(metric_frame(120, values=values), K3, "mismatch")
    line: Any = next(trace for trace in traces(figure) if trace.name == "kl_k3")
    assert line.mode == "lines+markers" and set(np.asarray(line.marker.size)[::2]) == {4}


@pytest.mark.parametrize("key", ["6", "0"])
def test_steps_that_a_filter_removed_are_holes(runs: Path, key: str) -> None:
    shown = view(str(made(runs, "stale")))
    scope = Scope(shown, "mismatch", only=part_of(f"lag={key}"))
    course = scope.course()
    removed = course.filter(pl.col("mismatch/tokens").is_null())["step"].to_list()
    assert course["step"].to_list() == shown.steps and removed
    line: Any = next(t for t in traces(figures.metric_over_steps(course, K3, "mismatch")) if t.name == "kl_k3")
    at = np.isin(np.asarray(line.x, np.float64), removed)
    assert at.sum() == len(removed) and np.isnan(np.asarray(line.y, np.float64)[at]).all()
