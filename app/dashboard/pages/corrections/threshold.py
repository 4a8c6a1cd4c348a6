"""The panel of one threshold, dragged or typed: its effect on the chosen steps, at once, from distributions alone."""

from collections.abc import Callable

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from ratioscope.errors import ConfigError
from ratioscope.metrics.corrections.threshold import (
    RULES,
    Threshold,
    ThresholdRule,
)
from ratioscope.metrics.corrections.threshold_effect import frontier, whole_effect
from ratioscope.metrics.distribution import LEVELS, Histogram, Interval, Level

from ....figures.drawing.bands import NO_ERROR
from ....figures.drawing.canvas import coloured
from ....figures.frontier import threshold_frontier
from ....figures.series_chart import series_chart, series_of
from ....pages.scope import Scope
from ....presentation.digits import a_step, count, digits, percent
from ....presentation.escape import streamlit_label as label
from ....presentation.theme import THEMES, ThemeName
from ....presentation.weight_bounds import CAP_BY_NAME, FLOOR_BY_NAME, NONE, interval_text
from ...panels.charts import appearance, draw
from ...panels.choices import choice
from ...panels.fact_cards import fact_cards
from ...panels.layout import cells, control_row
from .controls import add_button
from .entries import threshold_text
from .outcomes import OutcomeSource

LineNames = tuple[tuple[str, str], ...]
"""(column, words) of each line of a chart."""
LEFT: LineNames = (("ess_before", "ESS before"), ("ess_after", "ESS after"), ("mean_weight", "mean weight"))
TOUCHED: LineNames = (
    ("clipped_share", "clipped share"),
    ("removed_share", "removed share"),
    ("mass_removed", "mass removed"),
    ("bias", "bias"),
)
COURSES = (("left", LEFT, "Effective sample size and mean weight"), ("touched", TOUCHED, "Shares changed and bias"))
CAP = "2"
"""The cap that the page shows first."""
ABOUT = {
    "clipped_share": "share of the weights that a bound changes",
    "removed_share": "share that is removed from the loss",
    "mass_removed": "share of the total weight that is lost: 1 - sum v / sum w; negative where a floor adds more",
    "ess_after": (
        "share of the sample that still counts: (sum v)² / (n sum v²). n includes removed weights. ≤ marks an upper bound: a few"
        " weights dominate (k-hat is too high, or there are too few large weights), and rarer ones would lower it"
    ),
    "mean_weight": "factor that remains on the learning rate: sum v / n",
    "bias": "how far the weights are from exact ones: mean |v - w|",
}


@st.fragment
def threshold_panel(source: OutcomeSource) -> None:
    """Draws the panel as a fragment: a moved threshold redraws the panel alone."""
    threshold = _controls()
    if threshold is None:
        return
    part = source.histogram(threshold.level)
    if not len(part.counts):
        st.caption(f"Not available, because these steps have no {threshold.level} distribution of {source.gap}.")
        return
    unit = "token" if threshold.level == "token" else "sequence"
    bound = Scope(source.view, source.gap).bound_of_ess(threshold.level, source.chosen)
    _cards(whole_effect(part, threshold), bound, threshold, count(float(part.counts.sum()), unit))
    _charts(source, threshold, unit)


def _controls() -> Threshold | None:
    with control_row("rule"):
        rule = choice("rule", RULES, "rule", help=RULE_HELP)
        level = choice("weights of", LEVELS, "at", help=LEVEL_HELP)
    with control_row("bounds"):
        low = _bound("floor", FLOOR_BY_NAME, NONE, 280)
        high = _bound("cap", CAP_BY_NAME, CAP, 420)
        try:
            chosen = Threshold(rule, level, low, high)
            problem = "" if chosen.bounds else "Nothing is bound: choose a floor or a cap."
        except ConfigError as error:
            chosen, problem = None, str(error)
        if chosen is not None and not problem:
            add_button(threshold_text(chosen))
            return chosen
    st.caption(f":material/error: {label(problem, 200)}")
    return None


RULE_HELP = (
    "truncate: weights beyond a bound become the bound. mask: they become 0. "
    "reject: weights stay 1, and tokens or sequences beyond a bound leave the loss."
)
LEVEL_HELP = "token: exp(x). sequence: exp of the sum of x over the sequence. geometric: exp of its mean."


def _bound(name: str, known: dict[str, float], default: str, width: int) -> float:
    """A published threshold from the slider, whose effect is exact, or any typed weight."""
    typed = str(st.session_state.get(f"{name}_typed") or st.query_params.get(f"{name}_typed") or "")
    chosen = st.select_slider(
        name,
        list(known),
        value=default,
        key=f"{name}_at",
        bind="query-params",
        width=width,
        disabled=bool(typed.strip()),
    )
    typed = st.text_input(
        f"{name}, typed", key=f"{name}_typed", bind="query-params", placeholder="or type", max_chars=20, width=110
    )
    if not typed.strip():
        return known.get(chosen or default, known[default])
    try:
        value = float(typed)
        if not value >= 0:
            raise ValueError
    except ValueError:
        st.caption(f":material/error: {label(typed, 20)} is no weight: wanted a number of at least 0")
        return known.get(chosen or default, known[default])
    return value


def _cards(whole: dict[str, Interval], bound: str, threshold: Threshold, size: str) -> None:
    facts: tuple[tuple[str, str, Callable[[float], str]], ...] = (
        ("clipped", "clipped_share", percent),
        ("removed", "removed_share", percent),
        ("mass removed", "mass_removed", percent),
        ("ESS before → after", "ess_after", percent),
        ("mean weight", "mean_weight", digits),
        ("bias", "bias", digits),
    )
    shown = {name: interval_text(whole[name], say) for _, name, say in facts}
    shown["ess_after"] = f"{bound}{percent(whole['ess_before'].low).removesuffix('%')} → {shown['ess_after']}"
    fact_cards((title, shown[name], ABOUT[name]) for title, name, _ in facts)
    exact = (
        "exact, because the bounds are histogram edges"
        if threshold.exact
        else "an interval, because a bound lies between histogram edges"
    )
    st.caption(f"{size} in the chosen steps · computed from statistics, without token rows · {exact}")


def _charts(source: OutcomeSource, threshold: Threshold, unit: str) -> None:
    view, theme = source.view, appearance().name
    effects = source.effects(threshold)
    *outcomes, frontier = cells(3, "threshold")
    for place, (key, names, title) in zip(outcomes, COURSES, strict=True):
        figure = view.figure(_over_steps, source, threshold, names, title, unit, theme)
        alt = f"{title} over {len(effects)} steps: {', '.join(words for _, words in names)}"
        with place:
            draw(figure, f"threshold_{key}", alt, numbers=lambda: effects)
    figure = view.figure(_frontier, source, threshold, unit, theme)
    alt = f"Bias and ESS of every cap; chosen: {threshold.name}"
    with frontier:
        draw(figure, "frontier", alt, numbers=lambda: _curve_of(source, threshold))


def _over_steps(
    source: OutcomeSource, threshold: Threshold, names: LineNames, title: str, unit: str, theme: ThemeName
) -> go.Figure:
    effects = source.effects(threshold)
    size = a_step(effects["weights"].cast(pl.Float64).to_list(), unit)
    return series_chart(
        [series_of(effects, name, words, at) for at, (name, words) in enumerate(names)],
        f"{title} <i>{threshold.name}</i>",
        (f"per {unit}",),
        made=(size, NO_ERROR),
        key=(_legend(names, THEMES[theme].series),),
        events=source.view.events(),
        absent="every weight of these steps is 0",
        theme=THEMES[theme],
        height=270,
    )


def _frontier(source: OutcomeSource, threshold: Threshold, unit: str, theme: ThemeName) -> go.Figure:
    part = source.histogram(threshold.level)
    return threshold_frontier(
        _curve_of(source, threshold),
        _chosen(part, threshold),
        unit=count(float(part.counts.sum()), unit),
        low=threshold.low,
        theme=THEMES[theme],
    )


def _curve_of(source: OutcomeSource, threshold: Threshold) -> pl.DataFrame:
    """The frontier through a threshold; it does not depend on the cap."""
    return source.view.figure(_curve, source, threshold.level, _beside(threshold.rule), threshold.low)


def _curve(source: OutcomeSource, level: Level, rules: tuple[ThresholdRule, ...], low: float) -> pl.DataFrame:
    return frontier(source.histogram(level), level, rules=rules, low=low)


def _chosen(part: Histogram, threshold: Threshold) -> tuple[str, float, float, float]:
    whole = whole_effect(part, threshold)
    return threshold.rule, threshold.high, _middle(whole["bias"]), _middle(whole["ess_after"])


def _beside(rule: ThresholdRule) -> tuple[ThresholdRule, ...]:
    return ("truncate", "mask") if rule != "reject" else ("reject",)


def _middle(value: Interval) -> float:
    return (value.low + value.high) / 2


def _legend(names: LineNames, colours: tuple[str, ...]) -> str:
    dashes = ("━", "╍", "┅", "╌·")
    return "  ".join(coloured(f"{dashes[at % 4]} {words}", colours[at]) for at, (_, words) in enumerate(names))
