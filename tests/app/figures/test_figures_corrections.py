"""The figures of the page Fix: what is drawn is what was given, foreign names are harmless, empty ones say so."""

import math
import re
from typing import Any

import numpy as np
import polars as pl
import pytest
from support.frames import hostile_texts

from ratioscope.app.figures.frontier import LABELLED, threshold_frontier
from ratioscope.app.figures.html.comparison import BEST, COLUMNS, TableRow, comparison_table
from ratioscope.app.figures.series_chart import POINTS, Series, series_chart, series_key
from ratioscope.app.figures.weights import weights_before_after
from ratioscope.app.presentation.theme import DARK, LIGHT, Theme
from ratioscope.metrics.corrections.threshold import Threshold, treated
from ratioscope.metrics.corrections.threshold_effect import frontier
from ratioscope.metrics.distribution import Interval, histogram

THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK])


def line(name: str, place: int, values: Any, most: Any = None) -> Series:
    least = np.asarray(values, np.float64)
    return Series(
        name, place, np.arange(len(least), dtype=np.float64), least, least if most is None else np.asarray(most)
    )


def data(figure: Any) -> Any:
    """Plotly makes its attributes at run time."""
    return figure.data


def layout(figure: Any) -> Any:
    return figure.layout


def words_of(figure: Any) -> str:
    return str(figure.to_json())


@THEMES
def test_series_are_told_apart_without_colour(theme: Theme) -> None:
    figure = series_chart([line(f"c{at}", at, np.arange(5.0) + at) for at in range(6)], "title", theme=theme)
    lines = [trace for trace in data(figure) if trace.name]
    assert len({(trace.line.dash, trace.marker.symbol) for trace in lines}) == 6
    assert len({trace.line.color for trace in lines}) == 6
    assert series_key([f"c{at}" for at in range(6)], theme=theme).count("<img") == 6


def test_what_is_drawn_is_what_was_given() -> None:
    figure = series_chart([line("a", 0, [1.0, 2.0, 4.0])], "title")
    (trace,) = (trace for trace in data(figure) if trace.name == "a")
    assert list(trace.y) == [1.0, 2.0, 4.0] and "a: 2" in trace.customdata[1]


def test_intervals_are_shaded_and_said() -> None:
    figure = series_chart([line("a", 0, [1.0, 2.0], [1.5, 2.0])], "title")
    assert "from the lowest to the highest possible value" in words_of(figure) and "a: 1 to 1.5" in words_of(figure)


def test_many_steps_are_thinned_with_their_extremes_and_said() -> None:
    values = np.zeros(10_000)
    values[5000] = 7.0
    figure = series_chart([line("a", 0, values)], "title")
    assert all(len(trace.x) <= 2 * POINTS for trace in data(figure))
    assert max(np.nanmax(np.asarray(trace.y, float)) for trace in data(figure)) > 0
    assert "showing 300 means of 10,000 steps, each bucket" in words_of(figure) and "from 0 to 7" in words_of(figure)


def test_without_values_a_chart_says_why() -> None:
    for series in ([], [line("a", 0, [math.nan, math.nan])]):
        assert "because of that" in words_of(series_chart(series, "title", absent="because of that"))
    one = series_chart([line("a", 0, [0.5])], "title")
    assert layout(one).annotations == () and len(data(one)) == 1


def test_the_table_marks_the_best_of_what_can_be_compared() -> None:
    def row(name: str, ess: float, bias: float, fair: bool = True) -> TableRow:
        return TableRow(name, "9 tokens", {"ess_after": Interval(ess, ess), "bias": Interval(bias, bias)}, fair=fair)

    table = comparison_table([row("a", 0.9, 0.2), row("b", 0.8, 0.1), row("other unit", 0.99, 0.0, fair=False)])
    rows = table.split("<tr>")[2:]
    assert f"{BEST} 90%" in rows[0] and f"{BEST} 0.1" in rows[1] and BEST not in rows[2]
    assert comparison_table([row("a", 0.9, 0.2)]).count(BEST) == 0, "one alone is not the best"
    assert comparison_table([row("a", 0.9, 0.2), row("b", 0.9, 0.2)]).count(BEST) == 0
    nothing_left = TableRow(
        "all gone", "9 tokens", {"ess_after": Interval(math.nan, math.nan), "bias": Interval(0.0, 0.0)}
    )
    assert BEST not in comparison_table([nothing_left, row("b", 0.8, 0.1)]).split("<tr>")[2]
    empty = comparison_table([TableRow("a", "–", None, "not computed yet")])
    assert "not computed yet" in empty and len(re.findall('<td class="n" data-of="[^"]*">–', empty)) == len(COLUMNS)
    interval = TableRow("a", "9 tokens", {"bias": Interval(0.1, 0.2)})
    assert "0.1 to 0.2" in comparison_table([interval])


def test_the_mark_lies_on_the_curve() -> None:
    part = histogram(np.random.default_rng(0).normal(0, 0.5, 4000))
    curve = frontier(part, "token")
    at = curve.filter((pl.col("rule") == "mask") & (pl.col("cap") == 2.0)).row(0, named=True)
    figure = threshold_frontier(curve, ("mask", 2.0, at["bias"], at["ess_after"]))
    layout: Any = figure.layout
    (ring,), place = layout.shapes, layout.annotations[-1]
    (mask,) = (trace for trace in data(figure) if trace.name == "mask")
    assert any(
        (x, y) == pytest.approx((ring.xanchor, ring.yanchor)) == (place.x, place.y)
        for x, y in zip(mask.x, mask.y, strict=True)
    )
    assert "chosen: mask at 2" in place.hovertext
    assert [label for label, fact in zip(mask.text, mask.customdata, strict=True) if "mask at 2:" in fact] == ["2"]
    assert {label for label in mask.text if label} <= {f"{cap:g}" for cap in LABELLED}
    nothing = threshold_frontier(frontier(histogram([0.0, 0.0]), "token", rules=("mask",), low=1.5), None)
    assert "no cap changes a weight" in words_of(nothing) or len(data(nothing)) > 0


def test_before_and_after_share_one_axis_and_one_total() -> None:
    before = histogram(np.random.default_rng(0).normal(0, 0.5, 4000))
    after, removed = treated(before, Threshold("mask", "token", 0.5, 2.0))
    figure = weights_before_after(before, after, removed / 4000, "mask")
    bars, outline = data(figure)
    assert len(outline.x) == 2 * len(bars.x) and "removed" in words_of(figure)
    empty = histogram([])
    assert "no distribution" in words_of(weights_before_after(empty, empty, 0.0, "x"))
    assert len(data(weights_before_after(before, empty, 1.0, "all gone"))) == 2


def test_hostile_names_are_harmless_in_every_figure() -> None:
    before = histogram([0.1, -0.2])
    for text in hostile_texts():
        shown = words_of(series_chart([line(text, 0, [1.0, 2.0])], "title")) + words_of(
            weights_before_after(before, before, 0.0, text)
        )
        tags = set(re.findall(r"<\s*/?\s*([a-zA-Z]+)", shown.replace("\\u003c", "<")))
        assert tags <= {"i", "b", "br", "span", "extra"}, text
        html = comparison_table([TableRow(text, "–", None, text)]) + series_key([text])
        assert set(re.findall(r"<\s*/?\s*([a-zA-Z]+)", html)) <= {
            "div", "style", "table", "thead", "tbody", "tr", "th", "td", "span", "small", "img"
        }, text  # fmt: skip
