"""What a chart over steps tells where the pointer is: at a step what is of that step, and nothing of another."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest
from support.frames import grades, metric_frame, traces

from ratioscope.app import figures
from ratioscope.app.figures.alert_lanes import alert_lanes
from ratioscope.app.figures.drawing import hover, marks
from ratioscope.app.figures.drawing.hover import WIDEST, tell_steps
from ratioscope.app.figures.drawing.lines import Line
from ratioscope.app.figures.several_runs import metric_of_runs
from ratioscope.app.presentation.theme import LIGHT
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.alerts import alert_frame

K3 = BY_NAME["kl_k3"]
SYNC = pl.DataFrame(
    {"step": [51], "event": ["weight_sync"], "note": ["the engine samples with the weights after 50 updates"]}
)


def told(figure: go.Figure, pointer: float) -> list[str]:
    """The words of Plotly's label: of every trace the point nearest to the nearest place, unless it is a silent one."""
    found = []
    for trace in traces(figure):
        if isinstance(trace.hoverinfo, str) and trace.hoverinfo == "skip":
            continue
        x, y = np.asarray(trace.x, np.float64), np.asarray(trace.y, np.float64)
        found.append((trace, np.where(np.isfinite(y), x, np.nan)))
    winner = min((float(x[_nearest(x, pointer)]) for _, x in found), key=lambda place: abs(place - pointer))
    words = []
    for trace, x in found:
        at = _nearest(x, winner)
        if trace.hovertemplate is None:
            words += [trace.hovertext[at]] if trace.hoverinfo[at] == "text" else []
        else:
            words.append(trace.customdata[at] if trace.customdata is not None else trace.hovertemplate)
    return words


def _nearest(x: Any, place: float) -> int:
    return int(np.nanargmin(np.abs(x - place)))


def test_an_event_is_told_at_its_own_step_only() -> None:
    figure = figures.metric_over_steps(metric_frame(60), K3, "mismatch", events=SYNC)
    for step in (0, 49, 50, 52, 59):
        assert not any("weight_sync" in words for words in told(figure, step)) and len(told(figure, step)) == 1
    value, event = told(figure, 51)
    assert (
        event.startswith("step 51: weight_sync")
        and value == told(figures.metric_over_steps(metric_frame(60), K3, "mismatch"), 51)[0]
    )


def test_marks_of_a_long_run_have_silent_points_beside_them_alone() -> None:
    events = pl.concat([SYNC.with_columns(step=pl.lit(step, pl.Int64)) for step in (3, 51, 52, 399)])
    figure = figures.metric_over_steps(metric_frame(400), K3, "mismatch", events=events)
    for step in range(400):
        assert sum("weight_sync" in words for words in told(figure, step)) == (step in (3, 51, 52, 399))
    (shown,) = (trace for trace in traces(figure) if trace.name == hover.EVENTS)
    assert np.isfinite(np.asarray(shown.x, np.float64)).sum() <= 3 * 4, "Plotly makes a page element of each"
    heights = np.asarray(shown.y, np.float64)
    assert (heights == 1).sum() == shown.marker.maxdisplayed == 4, "but of those beyond the axis, which are silent"
    assert set(heights[np.isfinite(heights) & (heights != 1)]) == {hover.OUT_OF_SIGHT}


def test_at_a_step_without_a_value_no_value_of_another_step_is_told() -> None:
    frame = metric_frame(60).filter(pl.col("step") % 10 == 0)
    figure = figures.metric_over_steps(frame, K3, "mismatch", events=SYNC)
    assert [words[:8] for words in told(figure, 51)] == ["step 51:"] and len(told(figure, 50)) == 1
    line = next(trace for trace in traces(figure) if trace.name == "kl_k3")
    own = np.isfinite(np.asarray(line.y, np.float64)).nonzero()[0]
    assert set(np.diff(own)[:5]) == {1} and np.diff(own)[-1] == 2, "a silent point lies in a line of its own"
    assert line.marker.size[int(own[-1])] == 0


def test_an_infinite_value_is_told_at_its_own_step_only() -> None:
    values = [0.1] * 20
    values[7] = float("inf")
    figure = figures.metric_over_steps(metric_frame(20, values=values), K3, "mismatch")
    assert told(figure, 7) == ["∞"] and len(told(figure, 6)) == len(told(figure, 8)) == 1


def test_runs_with_other_steps_are_told_at_their_own() -> None:
    lines = [_line("a", np.arange(0, 60, 10.0)), _line("b", np.arange(5, 60, 10.0))]
    figure = metric_of_runs(lines, K3, "mismatch", events=SYNC)
    assert [words[:2] for words in told(figure, 10)] == ["a:"] and [words[:2] for words in told(figure, 15)] == ["b:"]


def test_in_a_long_run_an_event_is_told_where_a_pointer_reaches_it_and_names_its_step() -> None:
    figure = figures.metric_over_steps(metric_frame(3000), K3, "mismatch", events=SYNC)
    reached = [
        at for at in np.linspace(0, 100, 40) if any("step 51: weight_sync" in words for words in told(figure, at))
    ]
    assert reached and all(abs(at - 51) <= 6 for at in reached)
    assert all(len(told(figure, at)) == 2 for at in reached), "beside the mean that its step is part of"


@pytest.mark.parametrize("length", [10, 150, 2000])
def test_words_of_events_fit_into_a_chart(length: int) -> None:
    events = pl.DataFrame({"step": [3] * 8, "event": ["x" * length] * 8, "note": ["why not " * (length // 8)] * 8})
    figure = go.Figure()
    marks.add_events(figure, events, LIGHT)
    lines = traces(figure)[0].customdata[0].split("<br>")
    assert max(map(len, lines)) <= WIDEST and len(lines) <= marks.TALLEST + 1


def test_words_of_bars_fit_into_a_chart_of_a_telephone() -> None:
    reading = "mismatch: KL K3 is 0.7098 nats/token, 348.8 times the floor 0.00203 of the run's first steps"
    alert = ("act", "kl_k3_over_floor", "mismatch, total", 21, 60, None, 40, 49, 0.7, reading)
    rang = pl.DataFrame([alert], alert_frame(()).schema, orient="row")
    for figure in (
        figures.severity_ribbon(grades(["act"], reading=reading)),
        alert_lanes(rang, np.arange(60.0), [()]),
    ):
        words = [told[0] for trace in traces(figure) if trace.customdata is not None for told in trace.customdata]
        assert words and all("KL K3 is 0.7098" in text.replace("<br>", " ") for text in words)
        assert all(len(line) <= WIDEST for text in words for line in text.split("<br>"))


def test_what_is_told_already_gets_no_silent_point() -> None:
    figure = figures.metric_over_steps(metric_frame(60), K3, "mismatch")
    before = [len(trace.x) for trace in traces(figure)]
    tell_steps(figure)
    assert [len(trace.x) for trace in traces(figure)] == before


def _line(name: str, steps: Any) -> Line:
    return Line(name, int(name == "b"), steps, steps, steps / 1000 + 0.001, np.full(len(steps), 1e-4))
