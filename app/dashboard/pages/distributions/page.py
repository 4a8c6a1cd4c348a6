"""The Distributions page: log-ratios, weights, and the weights that a cap would clip, remove and leave."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from ratioscope.ingest.analysis.copy_facts import judged_first
from ratioscope.ingest.run import Run
from ratioscope.metrics.corrections.threshold import Threshold
from ratioscope.metrics.corrections.threshold_effect import whole_effect
from ratioscope.metrics.distribution import LEVELS, Histogram, Level, whole_histogram

from ....figures.heat_map import log_ratio_heat_map
from ....figures.weights import weight_histogram, weight_survival
from ....pages.scope import Scope
from ....pages.view import CacheRequest, View, figure_request
from ....presentation.escape import streamlit_label as label
from ....presentation.slice_names import part_words
from ....presentation.theme import THEMES, ThemeName
from ....presentation.weight_bounds import CAP_BY_NAME, FLOOR_BY_NAME, NONE, interval_text
from ...panels.charts import appearance, clicked, draw, last_appearance
from ...panels.choices import choice
from ...panels.controls import asked, step_picker
from ...panels.fact_cards import fact_cards
from ...panels.layout import columns, control_row
from ...panels.links import go_to
from ...panels.step_buttons import step_buttons
from .density import density_drawer
from .step_comparison import compared_steps

CAP = "2"
"""The cap that the page shows first."""
HOWS: dict[str, Literal["truncate", "mask"]] = {"truncated": "truncate", "masked": "mask"}


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


def render(scope: Scope) -> None:
    view, gap = scope.view, scope.gap
    with control_row("level"):
        level = choice("weights of", LEVELS, "level")
        step = step_picker(view, gap) if choice("over", ("run", "step"), "over") == "step" else None
        if step is not None:
            step_buttons(view, step)
    if scope.only is not None:
        st.caption(f":material/filter_alt: Only {label(part_words(scope.only), 200)}, computed from token rows.")
    part = DisplayedWeights(scope, level, step)
    draw(
        view.figure(_heat_map, part, appearance().name),
        "heat",
        f"Distribution of the {gap} log-ratio over the steps; a click on a cell shows its sequences",
        numbers=partial(scope.distribution, level),
        on_click=partial(_cell_chosen, level),
    )
    with st.container(key="bounded"):
        _bounded_weights(part)
    if scope.floor is not None and scope.reference is None:
        st.caption(
            f"The baseline {label(scope.floor.name, 60)} holds no distribution; a run pinned as reference is drawn here."
        )
    compared_steps(scope, level, step)
    density_drawer(scope, scope.recorded if step is None else [step])


@st.fragment
def _bounded_weights(part: DisplayedWeights) -> None:
    """The weights and the effect of a threshold on them. A fragment: a moved threshold redraws these alone."""
    threshold = _threshold(part.level)
    _effect(part, threshold)
    _weight_charts(part, threshold)


def _weight_charts(part: DisplayedWeights, threshold: Threshold) -> None:
    """The displayed weights beside the share of weights beyond each; a click on a bar shows the sequences of one step."""
    view, gap, name = part.scope.view, part.scope.gap, appearance().name
    low, high = threshold.low, threshold.high
    left, right = columns(2, "weights")
    with left:
        draw(
            view.figure(_weights, part, low, high, name),
            "weights",
            f"Distribution of {gap} weights; a click on a bar shows its sequences",
            numbers=lambda: part.rows,
            on_click=None if part.step is None else partial(_bar_chosen, part.level, part.step),
        )
    with right:
        draw(
            view.figure(_beyond, part, low, high, name),
            "beyond",
            f"Share of {gap} weights beyond each weight",
            numbers=lambda: part.rows,
        )


def prefetch(view: View) -> list[CacheRequest]:
    """Requests for the distributions of the default gap, and for its default charts."""
    gap = next(iter(view.of(judged_first)), "")
    if not gap:
        return []
    part, theme = DisplayedWeights(Scope(view, gap), "token", None), last_appearance()
    made: list[CacheRequest] = [(Run.distribution, (level, gap)) for level in ("token", "sequence")]
    charts = ((_heat_map, ()), (_weights, (0.0, CAP_BY_NAME[CAP])), (_beyond, (0.0, CAP_BY_NAME[CAP])))
    return [*made, *(figure_request(make, part, *bounds, theme) for make, bounds in charts)]


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
    """Name and weights of the reference run at all its steps and tokens; None without one."""
    scope = part.scope
    if scope.reference is None or scope.floor is None:
        return None
    rows = scope.reference.distribution(part.level, scope.gap)
    return f"{scope.floor.kind} {scope.floor.name}", whole_histogram(rows)


def _cell_chosen(level: Level) -> None:
    if (cell := clicked("heat")) is not None:
        _to_sequences(level, int(cell[1]), cell[2], cell[3])


def _bar_chosen(level: Level, step: int) -> None:
    if (bar := clicked("weights")) is not None:
        _to_sequences(level, step, bar[1], bar[2])


def _to_sequences(level: Level, step: int, low: float | None, high: float | None) -> None:
    """Goes to the sequences of the step with a value between these log-ratios; None: no bound (JSON has no infinity)."""
    ends = ["" if end is None or math.isinf(end) else f"{end:.12g}" for end in (low, high)]
    at = {"step": step}
    if asked("step") is not None and st.session_state.get("over") == "step":  # the picker has put the step into the URL
        st.session_state["step"], at = step, {}
    if level == "token":
        go_to("sequences", within=":".join(ends), **at)
        return
    bounds = {name: end for name, end in zip(("least", "most"), ends, strict=True) if end}
    go_to("sequences", column=f"log_ratio_{'sum' if level == 'sequence' else 'mean'}", **bounds, **at)


def _threshold(level: Level) -> Threshold:
    """The threshold that the controls choose."""
    with control_row("bounds"):
        rule = HOWS[choice("weights beyond are", list(HOWS), "how")]
        floor = st.select_slider("floor", list(FLOOR_BY_NAME), value=NONE, key="floor", bind="query-params", width=260)
        cap = st.select_slider("cap", list(CAP_BY_NAME), value=CAP, key="cap", bind="query-params", width=360)
    return Threshold(rule, level, FLOOR_BY_NAME.get(floor, 0.0), CAP_BY_NAME.get(cap, math.inf))


def _effect(part: DisplayedWeights, threshold: Threshold) -> None:
    """Cards with the effect of the threshold on these weights. It is exact, because its bounds are edges of the histogram."""
    effect = whole_effect(part.histogram, threshold)
    bounds = {"ess_before": part.bound_of_ess}
    fact_cards((title, bounds.get(name, "") + interval_text(effect[name]), about) for title, name, about in EFFECTS)


EFFECTS = (
    ("clipped share", "clipped_share", "share of the weights that lie outside the bounds"),
    (
        "mass removed",
        "mass_removed",
        "share of the total weight that is lost; negative where a floor adds more than the cap takes",
    ),
    (
        "ESS before",
        "ess_before",
        "share of the sample that counts before correction: (Σw)² / (n Σw²). ≤ marks an upper bound: a few weights dominate",
    ),
    ("ESS after", "ess_after", "share of the sample that counts after correction; n includes masked weights"),
)
"""Title, name and explanation of each card."""
