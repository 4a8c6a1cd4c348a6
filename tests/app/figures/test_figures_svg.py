"""Figures as static SVG: the same places, colours and words as the live chart, and hostile text stays text."""

import base64
import re
import zlib
from typing import Any
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.frames import traces
from support.hostile import HOSTILE
from support.sizes import examples

from ratioscope.app.figures import metric_over_steps
from ratioscope.app.figures.drawing.canvas import canvas
from ratioscope.app.figures.drawing.marks import KINDS
from ratioscope.app.figures.heat_map import log_ratio_heat_map
from ratioscope.app.figures.lags import SYMBOLS
from ratioscope.app.figures.svg.axis import axis_of
from ratioscope.app.figures.svg.chart import svg_chart
from ratioscope.app.figures.svg.texts import lines, paint
from ratioscope.app.figures.svg.traces import mark
from ratioscope.app.presentation.escape import plotly as escaped
from ratioscope.app.presentation.escape import visible
from ratioscope.app.presentation.theme import DARK, LIGHT, NAMED, variables
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.limits import limits_of

WIDTH = 450.0
KL = BY_NAME["kl_k3"]


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def frame(values: list[float], error: float = 0.001) -> pl.DataFrame:
    rows = {"step": range(len(values)), "mismatch/kl_k3": values, "mismatch/kl_k3_se": [error] * len(values)}
    return pl.DataFrame({**rows, "mismatch/tokens": [1000.0] * len(values)})


def drawn(values: list[float], events: pl.DataFrame | None = None) -> str:
    figure = metric_over_steps(
        frame(values), KL, "mismatch", limits=limits_of(KL, "mismatch"), events=events, theme=NAMED
    )
    return svg_chart(figure, "a label", width=WIDTH)


def test_a_point_lies_where_its_axis_has_its_value() -> None:
    figure = canvas("t", theme=NAMED, height=200)
    figure.add_scatter(x=[0, 5, 10], y=[0, 1, 2], mode="markers", marker={"color": NAMED.text, "size": 4})
    figure.update_xaxes(range=[0, 10]).update_yaxes(range=[0, 4])
    layout: Any = figure.layout  # plotly makes its attributes at run time
    wide, tall = WIDTH - layout.margin.l - layout.margin.r, 200 - layout.margin.t - layout.margin.b
    points = [
        (float(c.attrib["cx"]), float(c.attrib["cy"]))
        for c in parsed(svg_chart(figure, "x", width=WIDTH)).iter("circle")
    ]
    wanted = [(0, tall), (wide / 2, 0.75 * tall), (wide, tall / 2)]
    assert np.allclose(points, wanted, atol=0.06)


def test_a_missing_value_breaks_the_line() -> None:
    figure = canvas("t", theme=NAMED, height=200)
    figure.add_scatter(x=[0, 1, 2, 3, 4], y=[1, 2, None, 2, 1], mode="lines", line={"color": NAMED.text})
    paths = [
        p.attrib["d"]
        for p in parsed(svg_chart(figure, "x", width=WIDTH)).iter("path")
        if p.attrib.get("fill") == "none"
    ]
    assert [path.count("M") for path in paths] == [2] and "nan" not in paths[0]


def test_every_colour_is_a_variable_of_both_themes() -> None:
    svg = drawn([0.001, 0.02, 0.3, 0.05, 0.001])
    used = set(re.findall(r"var\(--([a-z0-9-]+)\)", svg))
    assert {"gaps-mismatch", "severity-act", "ink-watch"} <= used <= set(variables(LIGHT)) & set(variables(DARK))
    assert not re.search(r"#[0-9a-f]{6}|rgba?\(", svg)


def test_a_colour_that_is_in_no_theme_is_refused() -> None:
    for colour in ("#ffffff", "red", "rgb(300, 0, 0)"):
        with pytest.raises(ValueError, match="wanted"):
            paint(colour)
    assert paint("rgba(0, 0, 1, 0.25)") == ("var(--background)", 0.25)


def test_limits_events_and_words_are_those_of_the_live_chart() -> None:
    events = pl.DataFrame({"step": [2], "event": ["weight_sync"], "note": ["a <b> note"]})
    tree = parsed(drawn([0.001, 0.02, 0.3, 0.05, 0.001], events))
    words = " ".join(tree.itertext())
    for said in (
        "kl_k3",
        "mismatch",
        "nats/token",
        "▲ watch ≥ 0.01",
        "■ act ≥ 0.1",
        "sync 1",
        "step 2: weight_sync a <b> note",
    ):
        assert said in words
    assert tree.attrib["aria-label"] == "a label" and tree.attrib["role"] == "img"


def test_a_picture_carries_nothing_for_the_pointer() -> None:
    """The hover, the clicks and the template of live charts took a third of the time in which a report was drawn."""
    counts = pl.DataFrame({"step": [1, 1, 2], "bucket": [120, 121, 120], "count": [3, 1, 4]})
    live, picture = (
        {trace.name for trace in traces(log_ratio_heat_map(counts, "mismatch", theme=each))} for each in (LIGHT, NAMED)
    )
    assert live - picture == {"cells"}
    layout: Any = metric_over_steps(frame([1.0, 2.0, 3.0]), KL, "mismatch", theme=NAMED).layout
    assert layout.hovermode is None and not layout.template.layout.to_plotly_json()


def test_few_points_have_their_words_and_many_have_none() -> None:
    few, many = drawn([0.01] * 20), drawn([0.01] * 5000)
    assert few.count("<title>") == 20 and "<title>" not in many
    assert len(many) < 30_000


def test_every_mark_of_our_figures_has_a_form() -> None:
    for symbol in (*SYMBOLS, *(shape.symbol for shape in KINDS.values()), "diamond-open", "circle-open"):
        assert mark(symbol, 5.0, 5.0, 6.0).startswith(("<path", "<circle"))
    with pytest.raises(ValueError, match="wanted circle"):
        mark("hourglass", 0, 0, 1)


@pytest.mark.parametrize("trace", [go.Pie(values=[1]), go.Bar(x=[1], y=[1], width=1, orientation="h")])
def test_a_trace_without_a_drawing_is_refused(trace: go.Pie) -> None:
    figure = canvas("t", theme=NAMED, height=200).add_trace(trace)
    with pytest.raises((ValueError, KeyError)):
        svg_chart(figure, "x", width=WIDTH)


def test_the_pictures_of_a_heat_map_have_the_colours_of_the_fullest_cell() -> None:
    counts = pl.DataFrame({"step": [0, 0, 1], "bucket": [100, 101, 100], "count": [900, 10, 500]})
    svg = svg_chart(log_ratio_heat_map(counts, "mismatch", theme=NAMED), "heat", width=WIDTH)
    images = [i.attrib for i in parsed(svg).iter("image")]
    assert [image["class"] for image in images] == ["light", "dark"]
    for image, theme in zip(images, (LIGHT, DARK), strict=True):
        png = base64.b64decode(image["href"].removeprefix("data:image/png;base64,"))
        width, height = (int.from_bytes(png[at : at + 4]) for at in (16, 20))
        palette = png[png.index(b"PLTE") + 4 :]
        data = png[png.index(b"IDAT") + 4 :]
        rows = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, width + 1)
        pixels = np.cumsum(rows[:, 1:], axis=0, dtype=np.uint8)
        assert width == 2 and (rows[:, 0] == 2).all()
        fullest = int(pixels.max())
        assert palette[3 * fullest : 3 * fullest + 3].hex() == theme.counts[-1][1:]


def test_lines_of_a_text_open_and_close_their_own_parts() -> None:
    assert lines('a<br><span style="color:#000001">b<br>c</span> d') == [
        "a", '<tspan fill="var(--background)">b</tspan>', '<tspan fill="var(--background)">c</tspan> d',
    ]  # fmt: skip


@pytest.mark.parametrize("payload", [text.encode("utf-8", "replace").decode() for text in HOSTILE])
def test_hostile_text_is_text(payload: str) -> None:
    figure = canvas(escaped(payload), [escaped(payload)], theme=NAMED, height=200)
    figure.add_scatter(
        x=[1], y=[1], mode="markers", marker={"color": NAMED.text}, customdata=[escaped(payload)], name=escaped(payload)
    )
    tree = parsed(svg_chart(figure, visible(payload), width=WIDTH))
    assert {element.tag for element in tree.iter()} <= {"svg", "g", "text", "tspan", "path", "circle", "title"}
    assert not [name for element in tree.iter() for name in element.attrib if name.startswith("on") or "href" in name]


@given(st.floats(-1e9, 1e9), st.floats(1e-9, 1e9), st.booleans())
@examples(200)
def test_ticks_are_inside_the_axis_in_order_and_not_too_many(low: float, span: float, across: bool) -> None:
    high = low + span
    if not high > low or span < 1e-9 * max(abs(low), abs(high)):
        return
    axis = axis_of({"range": [low, high]}, 300.0, [], across=across)
    ticks = axis.ticks()
    places = [place for place, _ in ticks]
    assert places == sorted(places, reverse=not across)
    assert all(-0.5 <= place <= 300.5 for place in places) and len(ticks) <= 12
    assert len({word for _, word in ticks}) == len(ticks)
