"""The panel of one threshold, dragged or typed: its effect on the chosen steps, at once, from distributions alone."""

from collections.abc import Callable, Iterator
from functools import partial

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.metrics.corrections.threshold import RULES, Threshold, ThresholdRule
from ratioscope.metrics.corrections.threshold_effect import frontier, whole_effect
from ratioscope.metrics.distribution import LEVELS, Interval, Level

from ..blocks import Action, Block, Cards, Chart, Charts, Paragraph
from ..figures.drawing.bands import NO_ERROR
from ..figures.drawing.canvas import coloured
from ..figures.drawing.plotly_objects import go
from ..figures.frontier import threshold_frontier
from ..figures.html.comparison import COLUMNS
from ..figures.series_chart import series_chart, series_of
from ..presentation.digits import a_step, count, digits, percent
from ..presentation.escape import visible
from ..presentation.theme import THEMES, ThemeName
from ..presentation.weight_bounds import CAP_BY_NAME, FLOOR_BY_NAME, NONE, interval_text
from .corrections_outcomes import OutcomeSource
from .corrections_text import MOST, Comparison, adding, threshold_text
from .face import Choice, Face, Text
from .scope import Scope

LineNames = tuple[tuple[str, str], ...]
"""(column, words) of each line of a chart."""
LEFT: LineNames = (("ess_before", "ESS before"), ("ess_after", "ESS after"), ("mean_weight", "mean weight"))
TOUCHED: LineNames = (
    ("clipped_share", "clipped share"), ("removed_share", "removed share"), ("mass_removed", "mass removed"), ("bias", "bias"),
)  # fmt: skip
COURSES = (("left", LEFT, "Effective sample size and mean weight"), ("touched", TOUCHED, "Shares changed and bias"))
CAP = "2"
"""The cap that the page shows first."""
CARDS = {
    "clipped": "clipped_share", "removed": "removed_share", "mass removed": "mass_removed", "ESS before → after": "ess_after",
    "mean weight": "mean_weight", "bias": "bias",
}  # fmt: skip
"""Title of a card -> the name of its value."""
BOUND = (
    "; n includes removed weights. ≤ marks an upper bound: a few weights dominate (k-hat is too high, or there are too few large "
    "weights), and rarer ones would lower it"
)
RULE_HELP = (
    "truncate: weights beyond a bound become the bound. mask: they become 0. "
    "reject: weights stay 1, and tokens or sequences beyond a bound leave the loss."
)
LEVEL_HELP = "token: exp(x). sequence: exp of the sum of x over the sequence. geometric: exp of its mean."


def one_threshold(source: OutcomeSource, face: Face, compared: Callable[[], Comparison]) -> Iterator[Block]:
    """The panel. compared: the corrections that are compared above."""
    with face.row("rule"):
        rule: ThresholdRule = face.ask(Choice("rule", "rule", RULES, RULES[0], look="segments", help=RULE_HELP))
        level: Level = face.ask(Choice("at", "weights of", LEVELS, LEVELS[0], look="segments", help=LEVEL_HELP))
    with face.row("bounds"):
        low, wrong = _bound(face, "floor", FLOOR_BY_NAME, NONE, 280)
        high, wrong_too = _bound(face, "cap", CAP_BY_NAME, CAP, 420)
        threshold, problem = None, "Nothing is bound: choose a lower bound or a cap."
        try:
            made = Threshold(rule, level, low, high)
            threshold = made if made.bounds else None
        except ConfigError as error:
            problem = str(error)
        if threshold is not None:
            part, above = threshold_text(threshold), compared()
            words, icon = ("compared above", "check") if part in above.parts else ("add to the comparison", "add")
            is_off, link = icon == "check" or len(above.entries) >= MOST, adding(above, part)
            yield Action("add_threshold", words, link, icon=icon, is_off=is_off, redraws_page=True)
    for said in filter(None, (wrong, wrong_too, problem if threshold is None else "")):
        yield Paragraph(said, "wrong")
    if threshold is None:
        return
    weights = source.histogram(threshold.level)
    if not len(weights.counts):
        said = f"these steps have no {threshold.level} distribution of {source.gap}."
        yield Paragraph(f"Not available, because {said}", "muted")
        return
    unit = "token" if threshold.level == "token" else "sequence"
    bound = Scope(source.view, source.gap).bound_of_ess(threshold.level, source.chosen)
    yield from _cards(whole_effect(weights, threshold), bound, threshold, count(float(weights.counts.sum()), unit))
    yield _charts(source, threshold, unit)


def _bound(face: Face, key: str, known: dict[str, float], usual: str, width: int) -> tuple[float, str]:
    """(a published threshold from the slider, whose effect is exact, or any typed weight; what is wrong with a typed one)."""
    name = {"floor": "lower bound"}.get(key, key)
    field = Text(f"{key}_typed", f"{name}, typed", placeholder="or type", width=110, most=20)
    is_typed = bool(str(face.known(field)).strip())
    chosen = known[face.ask(Choice(f"{key}_at", name, [*known], usual, look="slider", width=width, is_off=is_typed))]
    typed = face.ask(field).strip()
    try:
        value = float(typed or chosen)
    except ValueError:
        value = -1.0
    if value >= 0:
        return value, ""
    return chosen, f"{visible(typed, 20)} is no weight: wanted a number of at least 0"


def _cards(whole: dict[str, Interval], bound: str, threshold: Threshold, size: str) -> Iterator[Block]:
    known = {column.name: column for column in COLUMNS}
    shown = {name: interval_text(whole[name], percent if known[name].share else digits) for name in CARDS.values()}
    shown["ess_after"] = f"{bound}{percent(whole['ess_before'].low).removesuffix('%')} → {shown['ess_after']}"
    more = {"ess_after": BOUND}
    yield Cards([(title, shown[name], known[name].about + more.get(name, "")) for title, name in CARDS.items()])
    exact = "exact, because the bounds are histogram edges"
    if not threshold.exact:
        exact = "an interval, because a bound lies between histogram edges"
    yield Paragraph(f"{size} in the chosen steps · computed from statistics, without token rows · {exact}", "muted")


def _charts(source: OutcomeSource, threshold: Threshold, unit: str) -> Charts:
    effects = source.effects(threshold)
    charts = [
        Chart(
            f"threshold_{key}",
            f"{title} over {len(effects)} steps: {', '.join(words for _, words in names)}",
            _over_steps,
            (source, threshold, names, title, unit),
            numbers=lambda: effects,
        )
        for key, names, title in COURSES
    ]
    label = f"Bias and ESS of every cap; chosen: {threshold.name}"
    numbers = partial(_curve_of, source, threshold)
    return Charts((*charts, Chart("frontier", label, _frontier, (source, threshold, unit), numbers=numbers)))


def _over_steps(
    source: OutcomeSource, threshold: Threshold, names: LineNames, title: str, unit: str, theme: ThemeName
) -> go.Figure:
    effects = source.effects(threshold)
    size = a_step(effects["weights"].cast(pl.Float64).to_list(), unit)
    colours, dashes = THEMES[theme].series, ("━", "╍", "┅", "╌·")
    key = (coloured(f"{dashes[at]} {words}", colours[at]) for at, (_, words) in enumerate(names))
    return series_chart(
        [series_of(effects, name, words, at) for at, (name, words) in enumerate(names)],
        f"{title} <i>{threshold.name}</i>",
        (f"per {unit}",),
        made=(size, NO_ERROR),
        key=("  ".join(key),),
        events=source.view.events(),
        absent="every weight of these steps is 0",
        theme=THEMES[theme],
        height=270,
    )


def _frontier(source: OutcomeSource, threshold: Threshold, unit: str, theme: ThemeName) -> go.Figure:
    part = source.histogram(threshold.level)
    whole = whole_effect(part, threshold)
    bias, ess = ((whole[name].low + whole[name].high) / 2 for name in ("bias", "ess_after"))
    return threshold_frontier(
        _curve_of(source, threshold),
        (threshold.rule, threshold.high, bias, ess),
        unit=count(float(part.counts.sum()), unit),
        low=threshold.low,
        theme=THEMES[theme],
    )


def _curve_of(source: OutcomeSource, threshold: Threshold) -> pl.DataFrame:
    """The frontier through a threshold; it does not depend on the cap."""
    rules: tuple[ThresholdRule, ...] = ("reject",) if threshold.rule == "reject" else ("truncate", "mask")
    return source.view.figure(_curve, source, threshold.level, rules, threshold.low)


def _curve(source: OutcomeSource, level: Level, rules: tuple[ThresholdRule, ...], low: float) -> pl.DataFrame:
    return frontier(source.histogram(level), level, rules=rules, low=low)
