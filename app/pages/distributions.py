"""How log-ratios and weights are distributed, and what a cap on the weights would clip, remove and leave."""

import math

import polars as pl
import streamlit as st

from ratioscope.metrics.distribution import (
    LEVELS,
    THRESHOLDS,
    Histogram,
    How,
    Interval,
    Level,
    clipped_share,
    ess_after,
    mass_removed,
)

from ..controls import step_picker
from ..digits import digits, percent
from ..figures.heat_map import log_ratio_heat_map
from ..figures.weights import weight_histogram, weight_survival
from ..grading import whole_histogram
from ..view import View
from .drawn import appearance, draw, numbers_behind

NONE = "none"
CAPS = [digits(threshold, 5) for threshold in THRESHOLDS if threshold > 1] + [NONE]
FLOORS = [NONE] + [digits(threshold, 5) for threshold in THRESHOLDS if threshold < 1]
HOWS: dict[str, How] = {"truncated": "truncate", "masked": "mask"}
BY_NAME = {digits(threshold, 5): float(threshold) for threshold in THRESHOLDS}
"""The thresholds that are edges of the histogram: what is said about them is exact."""


def render(view: View, gap: str) -> None:
    theme = appearance()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.segmented_control(
            "weights of", list(LEVELS), default="token", required=True, key="level", bind="query-params"
        )
        level: Level = chosen if chosen in LEVELS else "token"
        scope = st.segmented_control(
            "over", ["run", "step"], default="run", required=True, key="over", bind="query-params"
        )
        step = step_picker(view) if scope == "step" else None
    distribution = view.distribution(level, gap)
    draw(
        log_ratio_heat_map(distribution, gap, level, events=view.run.events, theme=theme),
        "heat",
        f"Distribution of the {gap} log-ratio over the steps",
    )
    shown = distribution if step is None else distribution.filter(pl.col("step") == step)
    part = whole_histogram(shown)
    low, high, how = _bounds()
    _effect(part, low, high, how)
    left, right = st.columns(2)
    with left:
        draw(
            weight_histogram(part, gap, level, low=low, high=high, theme=theme),
            "weights",
            f"Distribution of {gap} weights",
        )
    with right:
        draw(
            weight_survival(part, gap, level, low=low, high=high, theme=theme),
            "beyond",
            f"Share of {gap} weights beyond each weight",
        )
    numbers_behind(shown, "distribution_numbers")


def _bounds() -> tuple[float, float, How]:
    """(floor, cap, how) of the weights, from the controls."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        word = st.segmented_control(
            "weights beyond are", list(HOWS), default="truncated", required=True, key="how", bind="query-params"
        )
        floor = st.select_slider("floor", FLOORS, value=NONE, key="floor", bind="query-params", width=260)
        cap = st.select_slider("cap", CAPS, value="2", key="cap", bind="query-params", width=360)
    return BY_NAME.get(floor, 0.0), BY_NAME.get(cap, math.inf), HOWS.get(word or "", "truncate")


def _effect(part: Histogram, low: float, high: float, how: How) -> None:
    """What the bounds do to these weights, exactly: the bounds are edges of the histogram."""
    clipped = clipped_share(part, low=low, high=high)
    removed = mass_removed(part, low=low, high=high, how=how)
    before, after = ess_after(part), ess_after(part, low=low, high=high, how=how)
    facts = (
        ("clipped share", clipped, "share of the weights that lie outside the bounds"),
        (
            "mass removed",
            removed,
            "share of the summed weight that is lost; negative where a floor adds more than the cap takes",
        ),
        ("ESS before", before, "(Σw)² / (n Σw²) of the weights as they are"),
        ("ESS after", after, "the same of the treated weights; n counts masked ones too"),
    )
    with st.grid(4, min_column_width=150):
        for name, found, about in facts:
            st.metric(name, _spelled(found), help=about, border=True)


def _spelled(found: Interval) -> str:
    if math.isnan(found.low):
        return "–"
    exact = found.high - found.low < 1e-12
    return percent(found.low) if exact else f"{percent(found.low)} to {percent(found.high)}"
