"""What is drawn over a chart's data: severity limits with their words, and the events of the run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl

from ratioscope.layout import FIRST_ROWS
from ratioscope.metrics.grading.limits import Limit
from ratioscope.metrics.metric import Metric

from ...presentation.limit import limit_words
from ...presentation.theme import Theme, faded
from .hover import EVENTS, in_lines
from .overlay import Overlay, across, lay_over, shelf, upright, words
from .scale import Floats, Scale, padded

LINES = 24
"""More events than this are marked at the top edge only; that many lines would hide the data."""
SHOWN = 100
"""More events than this share a mark with their neighbours; the hover says how many."""
TOLD = 3
"""Events that the hover of a mark names at most; it counts the others."""
TALLEST = 9
"""Lines of a hover's words, over all that it names: a chart has room for so many."""
LONGEST = 300
"""Characters of what happened that are told."""


@dataclass(frozen=True)
class Shape:
    """How a kind of event is marked: Plotly's symbol, the same as a character, and its name."""

    symbol: str
    glyph: str
    words: str
    size: int = 7


KINDS = {
    "act": Shape("square", "■", "act alert"),
    "watch": Shape("triangle-up", "▲", "watch alert"),
    "set aside": Shape("diamond-open", "◇", "set aside", 8),
    "gap": Shape("x", "✕", "gap"),
    "config": Shape("diamond", "◆", "settings"),
    "resume": Shape("triangle-right", "▶", "resume", 8),
    "event": Shape("circle-open", "○", "event", 6),
    "sync": Shape("triangle-down", "▼", "sync", 6),
}
"""The kinds of events, the gravest first: it lends its shape to the mark that several share."""
GRAVE = ("act", "watch", "set aside", "gap", "config", "resume")
"""What keeps its line when there are too many events for each to have one."""
INDENT, TALL, WIDE = 2, 14, 6
"""Pixels: from the left end to a limit's words, of their height, and of a character."""
ROW = 0.06
"""Between two rows of marks, of the chart's height."""
LEGEND = 13
"""Pixels of a line that names the shapes."""
OTHER = "event"
NOTED = {"weight_sync": "sync", "resume": "resume", "config_change": "config"}
"""Words of writers, for frames that know no kinds."""


def within_reach(limits: Sequence[Limit], low: float, high: float, scale: Scale) -> list[Limit]:
    """The limits near enough to the data, in axis positions low to high, that the axis may stretch to show them."""
    room = 1.0 if scale.logarithmic else 1.2 * max(high - low, 1e-12)
    return [limit for limit in limits if low - room <= float(scale.place(limit.at)) <= high + room]


def reach_of_zeros(metric: Metric) -> float:
    """How far the axis goes where all values are 0: to one for a count, to a hundredth for a share, of which 1 is all."""
    return 0.01 if metric.kind == "share" else 1.0


def fit(
    figure: go.Figure, places: Floats, scale: Scale, limits: Sequence[Limit], *, zeros: float = 1.0
) -> tuple[float, float]:
    """Sets the value axis so that these axis positions and the limits near them fit; its range in axis positions.

    zeros: see reach_of_zeros.
    """
    known = places[np.isfinite(places)]
    low, high = float(known.min()), float(known.max()) or (zeros if not known.any() else 0.0)
    near = [float(scale.place(limit.at)) for limit in within_reach(limits, low, high, scale)]
    shown = padded(min([low, *near]), max([high, *near]))
    figure.update_yaxes(**scale.axis(*shown))
    return shown


def add_limits(
    figure: go.Figure, limits: Sequence[Limit], scale: Scale, shown: tuple[float, float], theme: Theme
) -> None:
    """A dashed line with its words at the left end, and a breath of its colour on the worse side.

    The nearest limit beyond each end of the axis is named there.
    """
    low, high = shown
    shapes: list[Overlay] = []
    texts: list[Overlay] = []
    texts += _beyond(limits, scale, shown, theme)
    for limit in limits:
        place = float(scale.place(limit.at))
        if not low <= place <= high:
            continue
        colour = theme.severity[limit.severity] if limit.severity else theme.muted
        if limit.severity:
            shapes.append(shelf(*((place, high) if limit.worse == "above" else (low, place)), faded(colour, 0.05)))
        shapes.append(across(place, faded(colour, 0.8), dash="dash"))
        texts.append(_limit_words(limit, place, shown, theme))
    _move_apart(figure, [text for text in texts if text["yref"] == "y"], shown)
    lay_over(figure, shapes, texts)


def _move_apart(figure: go.Figure, texts: Sequence[Overlay], shown: tuple[float, float]) -> None:
    """Moves words to the right of others at the left end that stand at the same height."""
    layout: Any = figure.layout  # plotly makes its attributes at run time
    pixels = (layout.height - layout.margin.t - layout.margin.b) / (shown[1] - shown[0])
    bottoms = [text["y"] * pixels - (0 if text["yanchor"] == "bottom" else TALL) for text in texts]
    for at, text in enumerate(texts):
        beside = [before for before in range(at) if abs(bottoms[before] - bottoms[at]) < TALL]
        text["xshift"] = max([INDENT, *(texts[one]["xshift"] + WIDE * len(texts[one]["text"]) for one in beside)])


def _beyond(limits: Sequence[Limit], scale: Scale, shown: tuple[float, float], theme: Theme) -> list[Overlay]:
    """The nearest limit above what is shown, and the nearest below, in words with an arrow at that end."""
    places = [(float(scale.place(limit.at)), limit) for limit in limits]
    above = min((each for each in places if each[0] > shown[1]), key=lambda each: each[0], default=None)
    below = max((each for each in places if each[0] < shown[0]), key=lambda each: each[0], default=None)
    return [
        words(
            f"{limit_words(found[1])} {arrow}",
            theme.muted,
            size=10,
            x=1,
            xref="paper",
            xanchor="right",
            y=y,
            yref="paper",
            yanchor=anchor,
            yshift=shift,
        )
        for found, arrow, y, anchor, shift in ((above, "↑", 1, "top", -6), (below, "↓", 0, "bottom", 2))
        if found is not None
    ]


def _limit_words(limit: Limit, place: float, shown: tuple[float, float], theme: Theme) -> Overlay:
    """The limit's words on its worse side, unless the axis ends there, where events are marked."""
    share = (place - shown[0]) / (shown[1] - shown[0])
    above = share < 0.86 if limit.worse == "above" else share < 0.14
    return words(
        limit_words(limit),
        theme.ink[limit.severity] if limit.severity else theme.muted,
        size=10,
        x=0,
        xref="paper",
        xanchor="left",
        xshift=INDENT,
        y=place,
        yref="y",
        yanchor="bottom" if above else "top",
        bgcolor=faded(theme.background, 0.6),
        borderpad=0,
    )


def add_events(figure: go.Figure, events: pl.DataFrame | None, theme: Theme, *, row: int = 0, side: str = "") -> None:
    """Marks at the top edge where something happened (columns step, event, note, and kind where it is known).

    Each kind has a shape, which is named below the chart; what happened is told on hover, the gravest first. row: from the top
    edge down, where several sides have marks of their own; side: whose these are.
    """
    known = None if events is None else _known(events)
    if known is None or known.is_empty():
        return
    marks = _grouped(known)
    shapes = [KINDS[kind] for kind in marks["kind"]]
    figure.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True})
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
                "line": {"width": 0},  # said, because marks of unequal sizes are outlined unless told otherwise
            },
            customdata=marks["words"].to_list(),
            hovertemplate="%{customdata}<extra></extra>",
            name=EVENTS,
            cliponaxis=False,
        )
    )
    lay_over(figure, _lines(known, theme), [_legend(marks, theme, row, side)])
    if side:
        layout: Any = figure.layout  # plotly makes its attributes at run time
        edge: Overlay = {
            "x": 1,
            "xref": "paper",
            "xanchor": "left",
            "y": 1 - ROW * row,
            "yref": "paper",
            "yanchor": "middle",
        }
        lay_over(figure, texts=[words(side, theme.muted, size=10, xshift=3, **edge)])
        figure.update_layout(margin={"b": layout.margin.b + (LEGEND if row else 0)})


def _known(events: pl.DataFrame) -> pl.DataFrame:
    """step, kind, rank and words of each event that is worth a mark. Frames without kinds are told by the writers' words.

    The words name the step, for a mark stands for several steps, or beside a pointer that is nearest to it: the one in the
    column `at` of a frame whose `step` is a place along another axis.
    """
    rows = events.filter(pl.col("event") != FIRST_ROWS).drop_nulls("step")
    told = pl.col("kind") if "kind" in rows.columns else pl.col("event").replace_strict(NOTED, default=OTHER)
    kind = pl.when(told.is_in(list(KINDS))).then(told).otherwise(pl.lit(OTHER))
    at = pl.format("step {}:", pl.col("at" if "at" in rows.columns else "step").cast(pl.Int64))
    words = pl.concat_str(at, pl.col("event"), pl.col("note").fill_null(""), separator=" ").str.strip_chars()
    ranks = {name: rank for rank, name in enumerate(KINDS)}
    return rows.select("step", kind.cast(pl.String).alias("kind"), words.alias("words")).with_columns(
        rank=pl.col("kind").replace_strict(ranks, return_dtype=pl.Int8)
    )


def _grouped(known: pl.DataFrame) -> pl.DataFrame:
    """At most SHOWN marks: per bucket of steps the step and kind of what is gravest, and the words of what happened in it."""
    steps = known["step"].to_numpy()
    width = max(1, int(np.ptp(steps) // SHOWN) + 1)
    rows = known.with_columns(bucket=pl.col("step") // width).sort("bucket", "rank", "step", maintain_order=True)
    marks = rows.group_by("bucket", maintain_order=True).agg(
        pl.col("step").first(), pl.col("kind").first(), pl.col("words").head(TOLD), count=pl.len()
    )
    shown = [_told(row["words"], row["count"]) for row in marks.iter_rows(named=True)]
    return marks.select("step", "kind").with_columns(words=pl.Series(shown, dtype=pl.String))


def _told(events: Sequence[str], count: int) -> str:
    """What happened, in lines that fit into the chart, and how much more than that happened."""
    told = [in_lines(words, LONGEST) for words in events]
    while sum(map(len, told)) > TALLEST and len(told) > 1:
        told.pop()
    more = [f"and {count - len(told):,} more"] if count > len(told) else []
    return "<br>".join([*(line for lines in told for line in lines), *more])


def _lines(known: pl.DataFrame, theme: Theme) -> list[Overlay]:
    """A line at each event; where they are many only at the grave ones, and at none where these are many too."""
    lined = known if len(known) <= LINES else known.filter(pl.col("kind").is_in(GRAVE))
    at = lined.sort("rank", maintain_order=True).unique("step", keep="first", maintain_order=True)
    if len(at) > LINES:
        return []
    colours = [theme.border if kind not in GRAVE else faded(_colour(kind, theme), 0.55) for kind in at["kind"]]
    return [upright(step, colour, dash="dot") for step, colour in zip(at["step"], colours, strict=True)]


def _legend(marks: pl.DataFrame, theme: Theme, row: int, side: str) -> Overlay:
    """The shapes that are drawn, each with its name and how many there are to be seen, below the steps' ticks."""
    counts = dict(marks.group_by("kind").len().rows())
    named = (
        f'<span style="color:{_colour(kind, theme)}">{shape.glyph}</span> {shape.words} {counts[kind]:,}'
        for kind, shape in KINDS.items()
        if kind in counts
    )
    place: Overlay = {
        "x": 1,
        "xref": "paper",
        "xanchor": "right",
        "y": 0,
        "yref": "paper",
        "yanchor": "top",
        "yshift": -17 - LEGEND * row,
    }
    return words(f"{side and f'{side}: '}{'&#160; '.join(named)}", theme.muted, size=10, **place)


def _colour(kind: str, theme: Theme) -> str:
    if kind in theme.ink:
        return theme.ink[kind]
    return theme.text if kind in GRAVE else theme.muted
