"""What a chart of several runs draws: every line as it is, its name and symbol, and how it came about in words."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.frames import notes, traces
from support.hostile import HOSTILE

from ratioscope.app.figures.drawing.along import DURATIONS, axis_along, duration
from ratioscope.app.figures.drawing.lines import Line
from ratioscope.app.figures.drawing.thinning import grid, gridded
from ratioscope.app.figures.html.key import key_of_runs
from ratioscope.app.figures.log_ratio_quantiles import log_ratio_quantiles
from ratioscope.app.figures.several_runs import metric_of_runs
from ratioscope.app.pages.metric_charts import PlottedRun, lines_of, numbers_of
from ratioscope.app.presentation.run_names import SYMBOLS, slots
from ratioscope.app.presentation.theme import DARK, LIGHT, THEMES, Theme
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.limits import limits_of

K3 = BY_NAME["kl_k3"]

LIVE = {name: theme for name, theme in THEMES.items() if theme.live}


def frame(
    steps: int, *, scale: float = 0.01, every: int = 1, values: Sequence[float | None] | None = None
) -> pl.DataFrame:
    at = np.arange(steps) * every
    found = [scale * (1 + math.sin(step / 9)) for step in at] if values is None else values
    return pl.DataFrame(
        {
            "step": at,
            "mismatch/kl_k3": pl.Series(found, dtype=pl.Float64),
            "mismatch/kl_k3_se": pl.Series([scale / 10] * steps, dtype=pl.Float64),
            "mismatch/tokens": [100.0] * steps,
        }
    )


def drawn(
    runs: dict[str, pl.DataFrame],
    *,
    half_life: float | None = None,
    groups: dict[str, str] | None = None,
    **options: Any,
) -> go.Figure:
    shown = [PlottedRun(name, own) for name, own in runs.items()]
    lines = lines_of(shown, K3, "mismatch", groups=groups or {}, half_life=half_life)
    return metric_of_runs(lines, K3, "mismatch", half_life=half_life, **options)


def named(figure: go.Figure, name: str) -> Any:
    return next(trace for trace in traces(figure) if trace.name == name)


def test_the_lines_are_the_metrics_of_the_runs_each_in_its_own_colour_and_symbol() -> None:
    runs = {f"run {number}": frame(20, scale=0.01 * (number + 1)) for number in range(8)}
    figure = drawn(runs, axis="linear")
    for name, own in runs.items():
        line = named(figure, name)
        assert list(line.y) == pytest.approx(own["mismatch/kl_k3"].to_list()) and list(line.x) == list(range(20))
        assert name in line.customdata[0]
    colours = [named(figure, name).line.color for name in runs]
    symbols = [named(figure, name).marker.symbol for name in runs]
    assert len(set(colours)) == len(set(symbols)) == 8 and set(symbols) == set(SYMBOLS)
    assert all(name in notes(figure) and colour in notes(figure) for name, colour in zip(runs, colours, strict=True))
    assert "8 runs, without bands" in notes(figure) and not [trace for trace in traces(figure) if trace.fill]


def test_a_run_alone_has_the_colour_of_its_gap_its_band_and_no_legend() -> None:
    figure = drawn({"alone": frame(20)}, axis="linear")
    assert named(figure, "alone").line.color == LIGHT.gaps["mismatch"] and "alone" not in notes(figure)
    band = next(trace for trace in traces(figure) if trace.fill == "toself")
    assert max(band.y) == pytest.approx(frame(20)["mismatch/kl_k3"].max() + 2 * 0.001)  # type: ignore[operator]
    assert "±2 standard errors" in notes(figure) and "N ≈ 100 tokens" in notes(figure)


def test_raw_stays_behind_what_is_smoothed() -> None:
    figure = drawn({"alone": frame(50)}, half_life=10, axis="linear")
    lines = [trace for trace in traces(figure) if trace.mode == "lines" and not trace.fill]
    assert list(lines[0].y) == pytest.approx(frame(50)["mismatch/kl_k3"].to_list()) and lines[0].line.color.startswith(
        "rgba"
    )
    assert np.ptp(lines[1].y) < np.ptp(lines[0].y)
    assert "half-life 10 steps; faint line and band raw" in notes(figure) and "smoothed" in lines[1].customdata[3]


def test_a_group_is_the_mean_between_its_runs_and_says_how_many() -> None:
    runs = {"a-s1": frame(30, scale=0.01), "a-s2": frame(30, scale=0.03), "b": frame(30, scale=0.1)}
    figure = drawn(runs, groups={"a-s1": "a", "a-s2": "a", "b": "b"}, axis="linear")
    both = (runs["a-s1"]["mismatch/kl_k3"] + runs["a-s2"]["mismatch/kl_k3"]) / 2
    assert list(named(figure, "a").y) == pytest.approx(both.to_list())
    band = next(trace for trace in traces(figure) if trace.fill == "toself")
    assert max(band.y) == pytest.approx(runs["a-s2"]["mismatch/kl_k3"].max()) and min(band.y) >= 0
    assert (
        "mean over 2 runs" in notes(figure)
        and "a (2 runs)" in notes(figure)
        and "runs from" in named(figure, "a").customdata[0]
    )


def test_long_runs_are_thinned_on_one_grid_and_lose_no_extreme() -> None:
    spike: list[float | None] = [0.01] * 10_000
    spike[7_777] = 5.0
    figure = drawn({"long": frame(10_000, values=spike), "short": frame(3_000)}, axis="linear")
    long, short = named(figure, "long"), named(figure, "short")
    assert len(long.x) == 500 and set(short.x[np.isfinite(short.x)]) <= set(long.x)
    assert max(max(trace.y) for trace in traces(figure) if trace.fill and len(trace.y)) == 5.0
    assert "showing 500 means of 10,000 steps of the longest, min and max shaded" in notes(figure)
    assert sum(len(trace.x) for trace in traces(drawn({f"{n}": frame(10_000) for n in range(8)}))) < 8 * 600


def test_infinite_values_are_marked_and_missing_ones_are_holes() -> None:
    figure = drawn({"a": frame(4, values=[0.1, math.inf, None, 0.2])}, axis="linear")
    marks = [trace for trace in traces(figure) if trace.mode == "markers" and "∞" in str(trace.hovertext)]
    assert [trace.x[0] for trace in marks] == [1.0]
    assert np.isnan(np.array(named(figure, "a").y)[[1, 2]]).all()


@pytest.mark.parametrize(
    ("axis", "words"),
    [
        ("log", "2 points at or below 0 cannot be shown on a log axis"),
        ("signed-log", "signed-log axis"),
        ("linear", ""),
    ],
)
def test_the_axis_is_the_one_that_was_chosen(axis: Any, words: str) -> None:
    figure = drawn({"a": frame(5, values=[0.0, -1.0, 0.1, 10.0, 1000.0])}, axis=axis)
    assert words in notes(figure) and ("axis" in notes(figure)) == (axis != "linear")
    figure = drawn({"a": frame(2, values=[0.0, -1.0])}, axis="log")
    assert "cannot be shown on a log axis" in str(figure.to_json())


def test_without_a_value_the_chart_says_why() -> None:
    for runs in ({}, {"a": frame(0)}, {"a": frame(3, values=[None] * 3)}):
        assert f"not available, because {K3.absent}"[:40] in str(drawn(runs).to_json())
    assert "infinite at every step" in str(drawn({"a": frame(2, values=[math.inf] * 2)}).to_json())


@pytest.mark.parametrize("theme", LIVE.values(), ids=LIVE)
def test_limits_events_and_the_definition_are_there_in_both_themes(theme: Theme) -> None:
    events = pl.DataFrame({"step": [3], "event": ["weight_sync"], "note": ["v2"], "time": [0.0]})
    figure = drawn(
        {"a": frame(20, scale=0.05), "b": frame(20)}, limits=limits_of(K3, "mismatch"), events=events, theme=theme
    )
    text = str(figure.to_json())
    json.loads(text)
    assert "watch" in text and "weight_sync" in text
    other = LIGHT if theme.background == DARK.background else DARK
    assert other.background not in text and other.panel not in text
    layout: Any = figure.layout
    definition = next(note.hovertext for note in layout.annotations if note.text == "?")
    assert "<br>estimator: " in definition and "<br>range: " in definition
    assert "exp(x)" in definition and "verl" in definition


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_can_do_anything(name: str) -> None:
    figure = drawn({name: frame(3), "b": frame(3, scale=0.02)}, groups={})
    text = str(figure.to_json())
    assert (
        "<script" not in text and "<img" not in text and "<a " not in text and "%{x}" not in text.replace("%{x:d}", "")
    )
    html = key_of_runs({name: [name, name]}, {name: 0})
    assert "<script" not in html and "<img" not in html and "onerror=" not in html.split("<style>")[0]


def test_numbers_are_those_that_are_drawn() -> None:
    shown = [PlottedRun("a", frame(5)), PlottedRun("b", frame(4))]
    lines = lines_of(shown, K3, "mismatch", groups={}, half_life=3.0)
    numbers = numbers_of(lines, K3, "mismatch")
    assert numbers.columns == ["run", "step", "mismatch/kl_k3", "se", "smoothed"] and len(numbers) == 9
    assert numbers.filter(run="b")["mismatch/kl_k3"].to_list() == frame(4)["mismatch/kl_k3"].to_list()
    grouped = numbers_of(lines_of(shown, K3, "mismatch", groups={"a": "g", "b": "g"}, half_life=None), K3, "mismatch")
    assert grouped.columns == ["run", "step", "mismatch/kl_k3", "smallest run", "largest run"] and len(grouped) == 5
    assert len(numbers_of([], K3, "mismatch")) == 0


POSITIONS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60, unique=True).map(
    lambda rows: np.array(sorted(rows))
)


@given(POSITIONS, st.integers(1, 20))
def test_a_grid_keeps_every_row_and_both_ends(x: Any, cells: int) -> None:
    values = np.cos(x)
    found = gridded(x, np.arange(len(x), dtype=float), values, np.ones(len(x)), grid([x], cells))
    assert found.rows == len(x) and len(found.middle) <= max(cells, len(x) if len(x) <= cells else 0)
    assert found.first[0] == 0 and found.last[-1] == len(x) - 1
    assert (found.first[1:] == found.last[:-1] + 1).all() and (np.diff(found.middle) > 0).all()
    assert found.low.min() == values.min() and found.high.max() == values.max()
    assert (found.low <= found.mean + 1e-12).all() and (found.mean <= found.high + 1e-12).all()


@given(st.floats(2, 1e9))
def test_time_is_ticked_a_few_times_and_told_in_hours_and_days(longest: float) -> None:
    figure = go.Figure()
    axis_along(figure, np.array([0.0, longest]), "time")
    layout: Any = figure.layout
    assert 1 <= len(layout.xaxis.tickvals) <= 9 and layout.xaxis.ticktext[0] == "0"
    assert duration(DURATIONS[-1]) == "7 d"


def test_quantiles_are_bands_around_the_median_and_say_how_steps_were_pooled() -> None:
    rows = {
        "first": [0, 5],
        "last": [4, 9],
        "steps": [5, 5],
        "count": [100, 100],
        "min": [-1.0, -2.0],
        "p5": [-0.1, -0.1],
    }
    rows |= {"p50": [0.0, 0.01], "p95": [0.1, 0.2], "max": [1.0, math.inf]}
    figure = log_ratio_quantiles(pl.DataFrame(rows), "mismatch")
    assert "2 columns of 10 steps, their counts added" in notes(figure) and "N = 200 tokens" in notes(figure)
    line = named(figure, "p50")
    assert list(line.x) == [2.0, 7.0] and "p95 0.2" in line.customdata[1] and "max ∞" in line.customdata[1]
    assert len([trace for trace in traces(figure) if trace.fill]) == 2
    assert "no distribution" in str(log_ratio_quantiles(pl.DataFrame(), "mismatch").to_json())


def test_one_line_of_a_run_is_along_its_own_tokens() -> None:
    shown = PlottedRun("a", frame(5), (np.arange(5.0), np.cumsum([10.0, 20, 30, 40, 50])))
    line: Line = lines_of([shown], K3, "mismatch", groups={}, half_life=None)[0]
    assert line.x.tolist() == [10, 30, 60, 100, 150] and line.steps.tolist() == [0, 1, 2, 3, 4]
    assert slots(["a"])["a"] in range(8) and line.slot is None
