"""Marks over a chart's data: severity limits with their words, and the events of the run."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.layout import FIRST_ROWS
from ratioscope.metrics.grading.limits import Limit
from ratioscope.metrics.metric import Metric

from ...presentation.theme import Theme, faded
from ...presentation.value_text import limit_words
from .bands import Area, reach
from .canvas import coloured
from .hover import EVENTS, in_lines
from .overlay import Overlay, horizontal_band, horizontal_line, lay_over, on_paper, vertical_line, words
from .plot import Plot
from .plotly_objects import go
from .scale import PLAIN, Scale, padded

LINES = 24
"""The most events with a line; more lines would hide the data, so that only the top edge has marks."""
SHOWN = 100
"""The most marks; more events share a mark with their neighbours, and the hover shows their number."""
TOLD = 3
"""The most events that the hover of a mark names; it counts the others."""
TALLEST = 9
"""The most lines of a hover: a chart has no room for more."""
LONGEST = 300
"""The most characters of the words of an event."""


@dataclass(frozen=True)
class EventMark:
    """The mark of a kind of event."""

    symbol: str
    """The name of the mark in Plotly."""
    glyph: str
    """The mark as a character."""
    words: str
    size: int = 7


KINDS = {
    "act": EventMark("square", "■", "act alert"),
    "watch": EventMark("triangle-up", "▲", "watch alert"),
    "set aside": EventMark("diamond-open", "◇", "set aside", 8),
    "gap": EventMark("x", "✕", "missing steps"),
    "config": EventMark("diamond", "◆", "settings"),
    "resume": EventMark("triangle-right", "▶", "resume", 8),
    "event": EventMark("circle-open", "○", "event", 6),
    "sync": EventMark("triangle-down", "▼", "sync", 6),
}
"""The kinds of events, the gravest first. A mark that several events share has the shape of the gravest."""
GRAVE = ("act", "watch", "set aside", "gap", "config", "resume")
"""The kinds that keep their lines if there are too many events for a line each."""
NEAR_ZERO = 0.15
"""A plain axis begins at zero if its lowest value is below this share of the highest."""
NARROWEST = 0.004
"""The least length of a plain axis, as a share of its largest value. On a shorter one noise looks like a rise."""
INDENT, TALL, WIDE = 2, 14, 6
"""Pixels from the left end to a limit's words, their height, and the width of a character."""
ROW = 0.06
"""The distance between two rows of marks, as a share of the chart's height."""
LEGEND = 13
"""The height of the line that names the shapes, in pixels."""
OF_MARKS = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
"""The axis of marks: from the bottom edge of a chart, 0, to its top edge, 1."""
OTHER = "event"
NOTED = {"weight_sync": "sync", "resume": "resume", "config_change": "config"}
"""Event of a writer -> its kind, for frames without kinds."""


def within_reach(limits: Sequence[Limit], low: float, high: float, scale: Scale) -> list[Limit]:
    """The limits near enough to the data, in axis positions low to high, that the axis may stretch to show them."""
    room = 1.0 if scale.logarithmic else 1.2 * max(high - low, 1e-12)
    return [limit for limit in limits if low - room <= float(scale.place(limit.at)) <= high + room]


def fit(
    figure: go.Figure,
    theme: Theme,
    scale: Scale,
    means: Sequence[Floats],
    areas: Iterable[Area] = (),
    limits: Sequence[Limit] = (),
    metric: Metric | None = None,
    free: float = 0.0,
) -> Plot:
    """The figure with a value axis that these lines, areas and the limits near them fit into, and with the limits drawn.

    metric: of the values, if they are a metric's. free: the share of the height, at the bottom, that stays free of them.
    """
    places = reach(scale, means, areas)
    known = places[np.isfinite(places)]
    low, high = float(known.min()), float(known.max()) or (0.0 if known.any() else _reach_of_zeros(metric))
    near = [float(scale.place(limit.at)) for limit in within_reach(limits, low, high, scale)]
    ends = min([low, *near]), max([high, *near])
    low, high = _plain_ends(*ends, metric) if scale == PLAIN else padded(*ends)
    plot = Plot(figure, scale, (low - (high - low) * free / (1 - free), high), theme)
    figure.update_yaxes(**scale.axis(*plot.shown))
    if free:  # so few numbers that the step between two is larger than the room below zero, which then has none
        figure.update_yaxes(nticks=4)
    add_limits(plot, limits)
    return plot


def _reach_of_zeros(metric: Metric | None) -> float:
    """The end of the axis if all values are 0: a hundredth for a share, whose whole is 1."""
    return 0.01 if metric is not None and metric.kind == "share" else 1.0


def _plain_ends(low: float, high: float, metric: Metric | None) -> tuple[float, float]:
    """The ends of a plain axis around these: from zero on if that is near, wide enough for short numbers beside it, and hardly
    beyond the largest value that the metric can have."""
    low = 0.0 if 0 < low < NEAR_ZERO * high else low
    room = max(0.0, (NARROWEST * max(abs(low), abs(high)) - (high - low)) / 2) if low < high else 0.0
    first, last = padded(low - room, high + room)
    most = math.inf if metric is None else metric.bounds[1]
    return first, min(last, padded(first, most)[1]) if high <= most < last else last


def add_limits(plot: Plot, limits: Sequence[Limit]) -> None:
    """Adds a dashed line per limit, with its words at the left end and a faint area of its colour on the worse side.

    The words of the nearest limit beyond each end of the axis stand below the chart.
    """
    low, high = plot.shown
    shapes: list[Overlay] = []
    texts = _beyond(plot, limits)
    for limit in limits:
        place = float(plot.scale.place(limit.at))
        if not low <= place <= high:
            continue
        colour = plot.theme.severity[limit.severity] if limit.severity else plot.theme.muted
        if limit.severity:
            shapes.append(
                horizontal_band(*((place, high) if limit.worse == "above" else (low, place)), faded(colour, 0.05))
            )
        shapes.append(horizontal_line(place, faded(colour, 0.8), dash="dot" if limit.is_floor else "dash"))
        texts.append(_limit_words(plot, limit, place))
    _move_apart(plot, [text for text in texts if text["yref"] == "y"])
    lay_over(plot.figure, shapes, texts)


def _move_apart(plot: Plot, texts: Sequence[Overlay]) -> None:
    """Moves words to the right of others at the left end that stand at the same height."""
    layout: Any = plot.figure.layout  # plotly makes its attributes at run time
    pixels = (layout.height - layout.margin.t - layout.margin.b) / (plot.shown[1] - plot.shown[0])
    bottoms = [text["y"] * pixels - (0 if text["yanchor"] == "bottom" else TALL) for text in texts]
    for at, text in enumerate(texts):
        beside = [before for before in range(at) if abs(bottoms[before] - bottoms[at]) < TALL]
        text["xshift"] = max([INDENT, *(texts[one]["xshift"] + WIDE * len(texts[one]["text"]) for one in beside)])


def _beyond(plot: Plot, limits: Sequence[Limit]) -> list[Overlay]:
    """The nearest limit above what is shown, and the nearest below, in words with an arrow. They stand below the ticks, where no
    curve is.
    """
    places = sorted(((float(plot.scale.place(limit.at)), limit) for limit in limits), key=lambda each: each[0])
    above = [limit for place, limit in places if place > plot.shown[1]][:1]
    below = [limit for place, limit in places if place < plot.shown[0]][-1:]
    named = [f"{limit_words(limit)} {arrow}" for near, arrow in ((above, "↑"), (below, "↓")) for limit in near]
    place = on_paper(0, "left", 0, "top", yshift=-17)
    return [words(" · ".join(named), plot.theme.muted, size=10, **place)] if named else []


def _limit_words(plot: Plot, limit: Limit, place: float) -> Overlay:
    """The limit's words on its worse side; on the other side if the axis, and with it the marks of events, is too near."""
    share = (place - plot.shown[0]) / (plot.shown[1] - plot.shown[0])
    above = share < 0.86 if limit.worse == "above" else share < 0.14
    colour = plot.theme.ink[limit.severity] if limit.severity else plot.theme.muted
    left: Overlay = {"x": 0, "xref": "paper", "xanchor": "left", "xshift": INDENT, "borderpad": 0}
    height: Overlay = {"y": place, "yref": "y", "yanchor": "bottom" if above else "top"}
    return words(limit_words(limit), colour, size=10, **left, **height, bgcolor=faded(plot.theme.background, 0.6))


def add_events(figure: go.Figure, events: pl.DataFrame | None, theme: Theme, *, row: int = 0, side: str = "") -> None:
    """Adds marks of events at the top edge. events: columns step, event, note, and kind if it is known.

    Each kind has a shape, which the line below the chart names. The hover shows the events of a mark, the gravest first.
    row: the row of the marks of one of several sides, from the top edge down; side: the name of that side.
    """
    known = None if events is None else _known(events)
    if known is None or known.is_empty():
        return
    marks = _grouped(known)
    shapes = [KINDS[kind] for kind in marks["kind"]]
    figure.update_layout(yaxis2=OF_MARKS)
    figure.add_trace(
        go.Scatter(
            x=marks["step"].to_list(),
            y=[1 - ROW * row] * len(marks),
            yaxis="y2",
            mode="markers",
            marker={
                "symbol": [shape.symbol for shape in shapes],
                "size": [shape.size for shape in shapes],
                "color": [_colour(kind, theme) for kind in marks["kind"]],
                "opacity": 1,
                "line": {"width": 0},  # Plotly outlines marks of unequal sizes by default
            },
            customdata=marks["words"].to_list(),
            hovertemplate="%{customdata}<extra></extra>",
            name=EVENTS,
            cliponaxis=False,
        )
    )
    lay_over(figure, _lines(known, theme), [_legend(known, theme, row, side)])
    if side:
        layout: Any = figure.layout  # plotly makes its attributes at run time
        edge = on_paper(1, "left", 1 - ROW * row, "middle", xshift=3)
        lay_over(figure, texts=[words(side, theme.muted, size=10, **edge)])
        figure.update_layout(margin={"b": layout.margin.b + (LEGEND if row else 0)})


def _known(events: pl.DataFrame) -> pl.DataFrame:
    """step, kind, rank and words of each event that is worth a mark. Without a column `kind` the event gives the kind.

    The words contain the step: a mark stands for several steps, and the pointer may be beside it. The column `at` has the step
    if `step` is a place along another axis.
    """
    rows = events.filter(pl.col("event") != FIRST_ROWS).drop_nulls("step")
    kinds = pl.col("kind") if "kind" in rows.columns else pl.col("event").replace_strict(NOTED, default=OTHER)
    kind = pl.when(kinds.is_in(list(KINDS))).then(kinds).otherwise(pl.lit(OTHER))
    at = pl.format("step {}:", pl.col("at" if "at" in rows.columns else "step").cast(pl.Int64))
    words = pl.concat_str(at, pl.col("event"), pl.col("note").fill_null(""), separator=" ").str.strip_chars()
    ranks = {name: rank for rank, name in enumerate(KINDS)}
    return rows.select("step", kind.cast(pl.String).alias("kind"), words.alias("words")).with_columns(
        rank=pl.col("kind").replace_strict(ranks, return_dtype=pl.Int8)
    )


def _grouped(known: pl.DataFrame) -> pl.DataFrame:
    """At most SHOWN marks: per bucket of steps the step and kind of its gravest event, and the words of its events."""
    steps = known["step"].to_numpy()
    width = max(1, int(np.ptp(steps) // SHOWN) + 1)
    rows = known.with_columns(bucket=pl.col("step") // width).sort("bucket", "rank", "step", maintain_order=True)
    marks = rows.group_by("bucket", maintain_order=True).agg(
        pl.col("step").first(), pl.col("kind").first(), pl.col("words").head(TOLD), count=pl.len()
    )
    shown = [_event_words(row["words"], row["count"]) for row in marks.iter_rows(named=True)]
    return marks.select("step", "kind").with_columns(words=pl.Series(shown, dtype=pl.String))


def _event_words(events: Sequence[str], count: int) -> str:
    """The words of the events, in lines that fit into the chart, and the number of further events."""
    labels = [in_lines(words, LONGEST) for words in events]
    while sum(map(len, labels)) > TALLEST and len(labels) > 1:
        labels.pop()
    more = [f"and {count - len(labels):,} more"] if count > len(labels) else []
    return "<br>".join([*(line for lines in labels for line in lines), *more])


def _lines(known: pl.DataFrame, theme: Theme) -> list[Overlay]:
    """A line at each event; only at grave events if there are many; no line if there are many grave events too."""
    lined = known if len(known) <= LINES else known.filter(pl.col("kind").is_in(GRAVE))
    at = lined.sort("rank", maintain_order=True).unique("step", keep="first", maintain_order=True)
    if len(at) > LINES:
        return []
    colours = [theme.border if kind not in GRAVE else faded(_colour(kind, theme), 0.55) for kind in at["kind"]]
    return [vertical_line(step, colour, dash="dot") for step, colour in zip(at["step"], colours, strict=True)]


def _legend(known: pl.DataFrame, theme: Theme, row: int, side: str) -> Overlay:
    """The shapes below the steps' ticks, each with its name and its number of events: a mark may stand for several."""
    counts = dict(known.group_by("kind").len().rows())
    named = (
        f"{coloured(shape.glyph, _colour(kind, theme))} {shape.words} {counts[kind]:,}"
        for kind, shape in KINDS.items()
        if kind in counts
    )
    place = on_paper(1, "right", 0, "top", yshift=-17 - LEGEND * row)
    return words(f"{side and f'{side}: '}{'&#160; '.join(named)}", theme.muted, size=10, **place)


def _colour(kind: str, theme: Theme) -> str:
    if kind in theme.ink:
        return theme.ink[kind]
    return theme.text if kind in GRAVE else theme.muted
