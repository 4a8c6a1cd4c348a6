"""The dashboard's figures as the report embeds them: static SVG, or JSON for plotly.js in both themes; and the tinted tokens."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import plotly.graph_objects as go
import polars as pl

from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.metrics.distribution import whole_histogram
from ratioscope.metrics.grading.limits import limits_of
from ratioscope.metrics.metric import Metric
from ratioscope.record import GAPS

from .. import figures
from ..figures.drawing.faint_run import FaintRun
from ..figures.svg.chart import svg_chart
from ..figures.svg.paint import NAMED
from ..figures.undoing import undoing
from ..presentation.digits import count
from ..presentation.metric_places import metrics_at
from ..presentation.noise_floor import with_floor
from ..presentation.theme import DARK, LIGHT
from . import texts
from .data import ReportData

POINTS = 240
"""Most points of a line. Charts stand in pairs, so each has half of its width in the dashboard."""

PAIR, WHOLE = 450.0, 950.0
"""Widths of a static chart in pixels, before the page scales it: half of the page, and all of it."""
FigureSource = tuple[str, str, str, str, partial[go.Figure]]
"""(name, section, gap, label, function that draws it in a theme) of a figure."""


@dataclass(frozen=True)
class Picture:
    """One figure as static SVG."""

    section: str
    """Section of the report that contains the figure."""
    gap: str
    name: str
    svg: str
    """The figure; one that takes the width of the page is there twice, and the page shows the one that fits the window."""

    @property
    def wide(self) -> bool:
        return is_wide(self.name)


@dataclass(frozen=True)
class Drawing:
    """One figure in both themes, for plotly.js."""

    name: str
    section: str
    """Section of the report that contains the figure."""
    gap: str
    label: str
    """Description for screen readers."""
    light: Any
    """Data and layout in the light theme."""
    dark: Any
    """Differences of the dark theme: nested objects whose leaves replace those of `light`."""

    @property
    def wide(self) -> bool:
        """True if the figure takes the width of the page; the others stand in pairs."""
        return is_wide(self.name)

    @property
    def height(self) -> int:
        """Height in pixels, kept free until the figure is drawn."""
        return int(self.light["layout"]["height"])


def is_wide(name: str) -> bool:
    return name.startswith(("severity", "heat-"))


def drawings(data: ReportData) -> tuple[Drawing, ...]:
    """Every figure of the report for plotly.js, in order."""
    return tuple(drawing(*entry) for entry in figures_of(data))


def pictures(data: ReportData) -> tuple[Picture, ...]:
    """Every figure of the report as static SVG, in order."""
    return tuple(_picture(*entry) for entry in figures_of(data))


def evidence_picture(data: ReportData) -> str:
    """The picture of the first half page: the undoing of the likeliest cause, else the size of the gap; empty without a gap."""
    numbers = data.diagnosis.head.evidence
    if numbers is not None:
        label = f"the gap of each of {count(len(numbers.frame), 'step')} before and after the undoing: {numbers.words}"
        return svg_chart(undoing(numbers.frame, numbers.gap, numbers.words, theme=NAMED), label, width=PAIR)
    every = {entry[0]: entry for entry in figures_of(data)}
    size = every.get(f"{data.gap}-{size_metric(data.gap)}")
    return "" if size is None else _picture(*size).svg


def _picture(name: str, section: str, gap: str, label: str, draw: partial[go.Figure]) -> Picture:
    figure = draw(theme=NAMED)
    if is_wide(name):
        both = ((WHOLE, "broad"), (PAIR, "slim"))
        svg = "".join(svg_chart(figure, label, width=width, kind=kind) for width, kind in both)
    else:
        svg = svg_chart(figure, label, width=PAIR)
    return Picture(section, gap, name, svg)


def figures_of(data: ReportData) -> Iterator[FigureSource]:
    """Every figure of the report."""
    graded = ", ".join(f"{count(number)} {word}" for word, number in data.graded.items())
    yield (
        "severity",
        "timeline",
        "",
        f"severity of each step: {graded}",
        partial(figures.severity_ribbon, data.grades, events=data.events),
    )
    scores = {(score.gap, score.name): score for score in data.scores}
    for section, gap in _over_steps(data):
        frame = _measured(data.steps, gap)
        for metric in metrics_at("chart" if section == "timeline" else "first", gap):
            if _known(frame, f"{gap}/{metric.name}"):
                draw = partial(
                    figures.metric_over_steps,
                    frame,
                    metric,
                    gap,
                    limits=with_floor(limits_of(metric, gap, data.signals), metric, gap, data.floor),
                    events=data.events,
                    beside=_beside(data, metric, gap),
                    points=POINTS,
                )
                label = f"{gap} {metric.name} over steps{texts.score_words(scores.get((gap, metric.name)))}"
                yield f"{gap}-{metric.name}", section, gap, label, draw
    yield from _distributions(data)


def _distributions(data: ReportData) -> Iterator[FigureSource]:
    """The three figures of each distribution that is not empty."""
    for (level, gap), frame in data.distributions.items():
        if len(frame):
            part = whole_histogram(frame)
            size = f"N = {count(float(part.counts.sum()), level)}"
            heat = partial(figures.log_ratio_heat_map, frame, gap, level, events=data.events)
            weights = partial(figures.weight_histogram, part, gap, level)
            beyond = partial(figures.weight_survival, part, gap, level)
            yield f"heat-{level}", "distribution", gap, f"distribution of {level} log-ratios over steps, {size}", heat
            yield f"weights-{level}", "distribution", gap, f"distribution of {level} weights, {size}", weights
            yield (
                f"survival-{level}",
                "distribution",
                gap,
                f"share of {level} weights beyond a threshold, {size}",
                beyond,
            )


def _over_steps(data: ReportData) -> Iterator[tuple[str, str]]:
    """(section, gap) of the charts over the steps: all of the timeline's gaps, the first few of each further reading's gap."""
    yield from (("timeline", gap) for gap in data.shown_gaps)
    yield from (("side", gap) for gap in data.reading_gaps if gap != data.gap)


def _measured(steps: pl.DataFrame, gap: str) -> pl.DataFrame:
    """The steps at which a gap of readings was measured; all for a recorded one."""
    return steps if gap in GAPS else steps.filter(pl.col(f"{gap}/tokens").is_not_null())


def _beside(data: ReportData, metric: Metric, gap: str) -> FaintRun | None:
    """The faint line of a chart: a known-good run, or in the chart of a reading's gap the recorded gap."""
    if gap in GAPS:
        return None if data.baseline is None else FaintRun(data.baseline.name, data.baseline.steps)
    names = {f"{data.recorded}/{metric.name}{end}": f"{gap}/{metric.name}{end}" for end in ("", "_se")}
    own = {name: to for name, to in names.items() if name in data.steps.columns}
    return FaintRun(data.recorded, data.steps.select("step", *own).rename(own)) if own else None


def _known(frame: pl.DataFrame, column: str) -> bool:
    return column in frame.columns and frame[column].null_count() < len(frame)


def drawing(name: str, section: str, gap: str, label: str, draw: partial[go.Figure]) -> Drawing:
    """A figure of figures_of, drawn in both themes."""
    light, dark = (_plain(draw(theme=theme)) for theme in (LIGHT, DARK))
    return Drawing(name, section, gap, label, light, difference(light, dark))


def difference(before: Any, after: Any) -> Any:
    """The changes that turn `before` into `after`: the differing members of objects, and of lists of equal length by index.

    None if nothing differs. Themes change colours, never the shape of a figure.

    >>> difference({"x": [1, 2], "line": {"color": "red"}}, {"x": [1, 2], "line": {"color": "blue"}})
    {'line': {'color': 'blue'}}
    """
    pairs: Iterable[tuple[str, Any, Any]]
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        pairs = ((key, before[key], after[key]) for key in before)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = ((str(index), old, new) for index, (old, new) in enumerate(zip(before, after, strict=True)))
    else:
        return None if before == after else after
    return {key: difference(old, new) for key, old, new in pairs if old != new} or None


def _plain(figure: go.Figure) -> Any:
    """Plain JSON by the standard encoder: orjson, where installed, writes the same numbers in other digits."""
    text = figure.to_json(engine="json")
    return json.loads(text or "{}")


def tokens_html(tokens: pl.DataFrame, gap: str) -> str:
    """The tinted tokens of one sequence, without their style."""
    return _without_style(figures.token_text(tokens, gap, theme=LIGHT, legend=False))


def tokens_legend(gap: str) -> str:
    """The scale of the tints, once for all sequences."""
    return _without_style(figures.token_text(pl.DataFrame(), gap, theme=LIGHT))


def tokens_style() -> str:
    """The style of all tinted tokens: light, and dark on a screen where the page is dark."""
    light, dark = (_style(figures.token_text(pl.DataFrame(), "mismatch", theme=theme)) for theme in (LIGHT, DARK))
    chosen = dark.replace(".rs-dark", ":root[data-theme=dark] .rs-light")
    system = dark.replace(".rs-dark", ":root:not([data-theme]) .rs-light")
    return f"{light}\n@media screen{{{chosen}}}\n@media screen and (prefers-color-scheme:dark){{{system}}}"


def _style(html: str) -> str:
    return html.partition("<style>")[2].partition("</style>")[0]


def _without_style(html: str) -> str:
    return html.replace(f"<style>{_style(html)}</style>", "", 1)
