"""The Distributions page: log-ratios, weights, and the weights that a cap would clip, remove and leave."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import polars as pl

from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.ingest.analysis.recorded_events import recorded_events
from ratioscope.ingest.run import Run
from ratioscope.metrics.corrections.correction import weighted_gap
from ratioscope.metrics.corrections.threshold import Threshold
from ratioscope.metrics.corrections.threshold_effect import whole_effect
from ratioscope.metrics.distribution import LEVELS, Histogram, Level, whole_histogram

from ..blocks import Beside, Block, Cards, Chart, Charts, Heading, Link, Paragraph, Part, Section
from ..figures.drawing.plotly_objects import go
from ..figures.heat_map import log_ratio_heat_map
from ..figures.weights import weight_histogram, weight_survival
from ..presentation.digits import count
from ..presentation.slice_names import part_words
from ..presentation.theme import THEMES, ThemeName
from ..presentation.weight_bounds import CAP_BY_NAME, FLOOR_BY_NAME, NONE, interval_text
from .correction_advice import unweighted
from .density import density_drawer
from .face import Choice, Step
from .scope import Scope
from .step_comparison import compared_steps
from .view import CacheRequest, View, figure_request

CAP = "2"
"""The cap that the page shows first."""
NONE_OF_GAP = "the run has no distribution of this gap"
HOWS: dict[str, Literal["truncate", "mask"]] = {"truncated": "truncate", "masked": "mask"}
LEVEL_WORDS = {"token": "By token", "sequence": "By sequence", "geometric": "By sequence, the mean of its log-ratios"}
EFFECTS = (
    ("clipped share", "clipped_share", "share of the weights that lie outside the bounds"),
    (
        "mass removed",
        "mass_removed",
        "share of the total weight that is lost; negative where a lower bound adds more than the cap takes",
    ),
    (
        "ESS before",
        "ess_before",
        "share of the sample that counts before correction: (Σw)² / (n Σw²). ≤ marks an upper bound: a few weights dominate",
    ),
    ("ESS after", "ess_after", "share of the sample that counts after correction; n includes masked weights"),
)
"""Title, name and explanation of each card. A gap without importance weights has the first one alone."""


@dataclass(frozen=True)
class DisplayedWeights:
    """The displayed weights: of a level, at the chosen steps of the scope, or at one step."""

    scope: Scope
    level: Level
    step: int | None

    @property
    def rows(self) -> pl.DataFrame:
        """The distribution."""
        return self.scope.distribution(self.level, self.step)

    @property
    def histogram(self) -> Histogram:
        return self.scope.view.figure(_histogram, self)

    @property
    def bound_of_ess(self) -> str:
        steps = self.scope.chosen if self.step is None else range(self.step, self.step + 1)
        return self.scope.bound_of_ess(self.level, steps)


def distributions(scope: Scope) -> Iterator[Block]:
    face, absent = scope.face, scope.view.run.no_tokens or NONE_OF_GAP
    if not scope.gap or scope.view.run.no_tokens:
        yield Paragraph(f"not available, because {absent}", "absent")
        return
    with face.row("level"):
        chosen: Level = face.ask(Choice("level", "weights of", LEVELS, LEVELS[0], look="segments"))
        over = face.ask(Choice("over", "over", ("run", "step"), "run", look="segments"))
        step = face.ask(Step(scope.view, scope.gap)) if over == "step" else None
    if scope.only is not None:
        yield Paragraph(f"Only {part_words(scope.only)}, computed from token rows.", "muted")
    others: list[Level] = [
        level for level in face.unasked(LEVELS) if level != chosen and len(scope.distribution(level))
    ]
    every: tuple[Level, ...] = (chosen, *others)
    for level in every:
        if others:
            yield Heading(LEVEL_WORDS[level])
        yield from _level(scope, level, step, "" if level == chosen else f"_{level}")
    yield density_drawer(scope, step)


def printed(scope: Scope) -> Iterator[Section]:
    yield Section("distribution", f"Distribution of {scope.gap}", partial(_printed, scope))


def _printed(scope: Scope) -> Iterator[Block]:
    """The log-ratios over the steps, the weights, and the share beyond each threshold, of tokens and of sequences."""
    shown: list[Level] = [level for level in LEVELS[:2] if len(scope.distribution(level))]
    if not shown:
        yield Paragraph(f"not available, because {scope.view.run.no_tokens or NONE_OF_GAP}", "absent")
    for level in shown:
        part, open_ends = DisplayedWeights(scope, level, None), (0.0, math.inf)
        size, own = f"N = {count(float(part.histogram.counts.sum()), level)}", (part, *open_ends)
        heat = f"distribution of {level} log-ratios over steps, {size}"
        weights = f"distribution of {level} weights, {size}"
        beyond = f"share of {level} weights beyond a threshold, {size}"
        yield Charts(
            (
                Chart(f"heat-{level}", heat, _printed_heat, (part,), wide=True),
                Chart(f"weights-{level}", weights, _weights, own),
                Chart(f"survival-{level}", beyond, _beyond, own),
            )
        )


def _printed_heat(part: DisplayedWeights, theme: ThemeName) -> go.Figure:
    events = part.scope.view.of(recorded_events)
    return log_ratio_heat_map(part.rows, part.scope.gap, part.level, events=events, theme=THEMES[theme])


def _level(scope: Scope, level: Level, step: int | None, end: str = "") -> Iterator[Block]:
    """The charts of a level. end: of the names of its blocks."""
    part = DisplayedWeights(scope, level, step)
    yield Chart(
        f"heat{end}",
        f"Distribution of the {scope.gap} log-ratio over the steps",
        _heat_map,
        (part,),
        wide=True,
        numbers=partial(scope.distribution, level),
        leads=partial(_cell_chosen, level),
        hint="a click on a cell shows its sequences",
    )
    yield Part(f"bounded{end}", partial(_bounded_weights, part, end))
    if scope.floor is not None and scope.reference is None:
        held = "holds no distribution; a pinned run is drawn here."
        yield Paragraph(f"The baseline {scope.floor.name[:60]} {held}", "muted")
    yield from compared_steps(scope, level, step, end)


def _bounded_weights(part: DisplayedWeights, end: str) -> Iterator[Block]:
    """The weights and the effect of a threshold on them. A moved threshold redraws these alone."""
    threshold = _threshold(part)
    for words in part.scope.face.unasked([f"The cards show what a cap of {CAP} on the weights does."]):
        yield Paragraph(words, "muted")
    is_weight = weighted_gap(part.scope.gap) is not None
    if not is_weight:
        yield unweighted(part.scope.gap)
    effect, bounds = whole_effect(part.histogram, threshold), {"ess_before": part.bound_of_ess}
    shown = EFFECTS if is_weight else EFFECTS[:1]
    yield Cards([(title, bounds.get(name, "") + interval_text(effect[name]), about) for title, name, about in shown])
    gap, of = part.scope.gap, (part, threshold.low, threshold.high)
    weights = Chart(
        f"weights{end}",
        f"Distribution of {gap} weights",
        _weights,
        of,
        numbers=lambda: part.rows,
        leads=None if part.step is None else partial(_bar_chosen, part.level, part.step),
        hint="a click on a bar shows its sequences",
    )
    label = f"Share of {gap} weights beyond each weight"
    beyond = Chart(f"beyond{end}", label, _beyond, of, numbers=lambda: part.rows)
    yield Beside(f"weights{end}", ((weights,), (beyond,)))


def ahead(view: View, theme: ThemeName) -> list[CacheRequest]:
    """Requests for the distributions of the default gap, and for its default charts."""
    gap = next(iter(view.of(judged_first)), "")
    if not gap:
        return []
    part, bounds = DisplayedWeights(Scope(view, gap), "token", None), (0.0, CAP_BY_NAME[CAP])
    made: list[CacheRequest] = [(Run.distribution, (level, gap)) for level in ("token", "sequence")]
    drawn = [figure_request(make, part, *bounds, theme) for make in (_weights, _beyond)]
    return [*made, figure_request(_heat_map, part, theme), *drawn]


def _histogram(part: DisplayedWeights) -> Histogram:
    return whole_histogram(part.rows)


def _heat_map(part: DisplayedWeights, theme: ThemeName) -> go.Figure:
    scope, level = part.scope, part.level
    rows, events = scope.distribution(level), scope.view.events()
    return log_ratio_heat_map(rows, scope.gap, level, events=events, marked=part.step, theme=THEMES[theme])


def _weights(part: DisplayedWeights, low: float, high: float, theme: ThemeName) -> go.Figure:
    return weight_histogram(part.histogram, part.scope.gap, part.level, low=low, high=high, theme=THEMES[theme])


def _beyond(part: DisplayedWeights, low: float, high: float, theme: ThemeName) -> go.Figure:
    beside = _reference(part)
    return weight_survival(
        part.histogram, part.scope.gap, part.level, low=low, high=high, beside=beside, theme=THEMES[theme]
    )


def _reference(part: DisplayedWeights) -> tuple[str, Histogram] | None:
    """Name and weights of the pinned run at all its steps and tokens; None without one."""
    scope = part.scope
    if scope.reference is None or scope.floor is None:
        return None
    rows = scope.reference.distribution(part.level, scope.gap)
    return f"{scope.floor.kind} {scope.floor.name}", whole_histogram(rows)


def _cell_chosen(level: Level, point: Mapping[str, Any]) -> Link | None:
    cell = point.get("customdata")
    return None if cell is None or isinstance(cell, str) else _sequences(level, int(cell[1]), cell[2], cell[3])


def _bar_chosen(level: Level, step: int, point: Mapping[str, Any]) -> Link | None:
    bar = point.get("customdata")
    return None if bar is None or isinstance(bar, str) else _sequences(level, step, bar[1], bar[2])


def _sequences(level: Level, step: int, low: float | None, high: float | None) -> Link:
    """The sequences of the step with a value between these log-ratios; None: no bound (JSON has no infinity)."""
    ends = ["" if end is None or math.isinf(end) else f"{end:.12g}" for end in (low, high)]
    if level == "token":
        return Link("samples", {"step": step, "within": ":".join(ends)})
    bounds = {name: end for name, end in zip(("least", "most"), ends, strict=True) if end}
    column = f"log_ratio_{'sum' if level == 'sequence' else 'mean'}"
    return Link("samples", {"step": step, "column": column, **bounds})


def _threshold(part: DisplayedWeights) -> Threshold:
    """The threshold that the controls choose."""
    ask = part.scope.face.ask
    with part.scope.face.row("bounds"):
        rule = HOWS[ask(Choice("how", "weights beyond are", [*HOWS], "truncated", look="segments"))]
        floor = ask(Choice("floor", "lower bound", [*FLOOR_BY_NAME], NONE, look="slider", width=260))
        cap = ask(Choice("cap", "cap", [*CAP_BY_NAME], CAP, look="slider", width=360))
    return Threshold(rule, part.level, FLOOR_BY_NAME[floor], CAP_BY_NAME[cap])
