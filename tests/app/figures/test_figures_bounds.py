"""Nothing is drawn or said beyond what a metric can be, and the words of limits stand apart."""

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import real_runs
from support.frames import metric_frame, traces

from ratioscope.app import figures
from ratioscope.app.figures.drawing.bands import interval
from ratioscope.app.figures.drawing.marks import TALL, WIDE, add_limits
from ratioscope.app.figures.drawing.plot import Plot
from ratioscope.app.figures.drawing.scale import PLAIN
from ratioscope.app.figures.lags import lags_over_steps
from ratioscope.app.figures.several_runs import metric_of_runs
from ratioscope.app.figures.sides import SideRun, courses
from ratioscope.app.pages.metric_charts import PlottedRun, lines_of
from ratioscope.app.presentation.theme import LIGHT
from ratioscope.metrics.definitions.registry import BY_NAME, METRICS
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.frame import metric_frame as measured_frame
from ratioscope.metrics.grading.limits import Limit

K3 = BY_NAME["kl_k3"]


@pytest.mark.parametrize("run", ["trl_vllm_stale4"])
def test_every_value_of_every_metric_lies_within_its_bounds(run: str) -> None:
    frame = measured_frame(pl.DataFrame(statistics(real_runs.records(run))), by=("step",))
    checked = set()
    for metric in METRICS:
        low, high = metric.bounds
        assert low < high
        for gap in metric.gaps:
            if f"{gap}/{metric.name}" in frame.columns:
                found = frame[f"{gap}/{metric.name}"].drop_nulls()
                checked |= {metric.name} if len(found) else set()
                assert len(found) == 0 or (low <= found.min() and found.max() <= high), metric.name  # type: ignore[operator]
    assert len(checked) > 30


def test_the_ends_of_a_range_are_read_from_its_words() -> None:
    named = ("kl_k3", "kl_direct", "tokens", "chi2_token", "share_outside_0.5_2")
    inf = math.inf
    assert [BY_NAME[name].bounds for name in named] == [(0, inf), (-inf, inf), (0, inf), (-1, inf), (0, 1)]


def axis_of(name: str, values: list[float]) -> tuple[float, float]:
    frame = pl.DataFrame({"step": range(len(values)), f"mismatch/{name}": values})
    layout: Any = figures.metric_over_steps(frame, BY_NAME[name], "mismatch").layout
    low, high = layout.yaxis.range
    return float(low), float(high)


@pytest.mark.parametrize("values", [[0.998], [0.6, 1.0], [0.2, 0.9]])
def test_the_axis_of_a_share_ends_at_the_whole(values: list[float]) -> None:
    low, high = axis_of("ess_token", values)
    assert low < min(values) and max(values) < high < 1.07


def test_a_plain_axis_begins_at_a_zero_that_is_near() -> None:
    assert axis_of("ess_token", [0.09, 0.9])[0] <= 0 < axis_of("ess_token", [0.4, 0.9])[0]


def test_a_plain_axis_is_not_so_short_that_its_ticks_need_many_digits() -> None:
    low, high = axis_of("ess_token", [0.99793, 0.99795])
    assert high - low > 0.0039 and low < 0.99793 < 0.99795 < high


def test_no_band_reaches_beyond_what_the_metric_can_be() -> None:
    frame = metric_frame(30).with_columns(pl.lit(0.05).alias("mismatch/kl_k3_se"))
    lags = frame.with_columns(last="step", lag=pl.lit("0"), first_lag=pl.lit(0))
    lines = lines_of([PlottedRun("a", frame)], K3, "mismatch", groups={}, half_life=None)
    for figure in (
        figures.metric_over_steps(frame, K3, "mismatch"),
        metric_of_runs(lines, K3, "mismatch", axis="linear"),
        courses([SideRun(0, "a", frame)], K3, "mismatch"),
        lags_over_steps(lags, K3, "mismatch"),
    ):
        bands = [np.asarray(trace.y, np.float64) for trace in traces(figure) if trace.fill == "toself"]
        assert bands and min(np.nanmin(y) for y in bands) == 0.0 and max(np.nanmax(y) for y in bands) > 0.1
    below = figures.metric_over_steps(
        frame.rename({"mismatch/kl_k3": "mismatch/kl_direct", "mismatch/kl_k3_se": "mismatch/kl_direct_se"}),
        BY_NAME["kl_direct"],
        "mismatch",
    )
    assert min(np.nanmin(np.asarray(t.y, np.float64)) for t in traces(below) if t.fill == "toself") < 0


@given(st.floats(0, 1), st.floats(0, 10))
def test_an_interval_holds_its_value_and_keeps_within_bounds(value: float, error: float) -> None:
    low, high = interval(np.array([value]), np.array([error]), (0.0, 1.0))
    assert 0 <= low[0] <= value <= high[0] <= 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=4, unique=True), st.sampled_from([160, 250, 330]))
def test_words_of_limits_do_not_cover_each_other(places: list[float], height: int) -> None:
    figure: Any = go.Figure(layout={"height": height, "margin": {"t": 58, "b": 36}})
    plot = Plot(figure, PLAIN, (-0.05, 1.05), LIGHT)
    add_limits(plot, [Limit(at, "watch", severity="watch") for at in places])
    pixels = (height - 94) / 1.1
    boxes = []
    for note in figure.layout.annotations:
        bottom = note.y * pixels - (0 if note.yanchor == "bottom" else TALL)
        boxes.append((note.xshift, note.xshift + WIDE * len(note.text), bottom))
    for at, (left, right, bottom) in enumerate(boxes):
        for other in boxes[at + 1 :]:
            assert abs(bottom - other[2]) >= TALL or other[0] >= right or left >= other[1]


def test_two_near_limits_are_both_readable() -> None:
    limits = (Limit(0.01, "watch", severity="watch"), Limit(0.1, "act", severity="act"))
    frame = metric_frame(30, values=[at / 20 for at in range(30)])
    notes: Any = figures.metric_over_steps(frame, K3, "mismatch", limits=limits).layout
    shifts = {note.text: note.xshift for note in notes.annotations if "≥" in note.text}
    assert len(shifts) == 2
    assert sorted(shifts.values())[0] < sorted(shifts.values())[1]
