"""The logarithmic x axis: on every chart of lines, in the URL, without what has no logarithm; bars and cells keep theirs."""

import json
import math
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from support.frames import metric_frame
from support.pages_open import Open, charts, plain

from ratioscope.app import figures
from ratioscope.app.figures.drawing.along import with_log_x
from ratioscope.metrics.definitions.registry import BY_NAME

K3 = BY_NAME["kl_k3"]


def kinds(specs: list[str]) -> list[str]:
    return [json.loads(spec)["layout"].get("xaxis", {}).get("type", "linear") for spec in specs]


@pytest.mark.parametrize("page", ["overview", "charts"])
def test_every_chart_of_lines_has_the_axis_that_the_url_asks_for(opened: Open, page: str) -> None:
    assert set(kinds(charts(opened(page, "stale")))) == {"linear"}
    app = opened(page, "stale", logx="true")
    found = kinds(charts(app))
    assert found.count("log") >= 4 and found.count("linear") == (1 if page == "overview" else 0)
    assert "without step 0, which has no logarithm" in plain(app)


def test_a_chart_keeps_its_lines_and_loses_only_what_lies_at_zero() -> None:
    plain_figure: Any = figures.metric_over_steps(metric_frame(50), K3, "mismatch")
    logged: Any = with_log_x(plain_figure)
    assert logged is with_log_x(plain_figure) and plain_figure.layout.xaxis.type is None
    assert len(logged.data) == len(plain_figure.data)
    low, high = logged.layout.xaxis.range
    steps = [step for step in np.asarray(logged.data[-1].x, np.float64) if step > 0]
    assert low < math.log10(min(steps)) < math.log10(max(steps)) < high


def test_bars_and_charts_without_a_place_above_zero_stay_as_they_are() -> None:
    bars = go.Figure(go.Bar(x=[1, 2], y=[1, 2])).update_layout(meta="along")
    zero = go.Figure(go.Scatter(x=[0], y=[1])).update_layout(meta="along")
    other = go.Figure(go.Scatter(x=[1], y=[1]))
    assert [with_log_x(figure) is figure for figure in (bars, zero, other)] == [True] * 3
