"""Comparison of steps of one run: ridges of a few steps, and the quantiles of two."""

from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from ratioscope.errors import ConfigError
from ratioscope.metrics.distribution import Level, whole_histogram

from ....figures.quantiles import quantile_comparison
from ....figures.ridgeline import ridgeline
from ....pages.scope import Scope, steps_of
from ....pages.step_choice import worst_step
from ....presentation.escape import streamlit_label as label
from ....presentation.theme import THEMES, ThemeName
from ...panels.charts import appearance, draw
from ...panels.layout import columns, control_row

MOST = 12
"""Most ridges in one chart."""


def compared_steps(scope: Scope, level: Level, step: int | None) -> None:
    """Draws ridges of steps of the chosen range beside the quantiles of two of them. step: the chosen one."""
    recorded = scope.view.figure(_recorded, scope, level)
    if not recorded:
        return
    worst = worst_step(scope.view, recorded)
    usual = tuple(dict.fromkeys((recorded[0], worst if step is None else step, recorded[-1])))
    left, right = columns(2, "ridges")
    with left:
        chosen = _ridges_field(recorded, usual)
        draw(
            scope.view.figure(_ridges, scope, level, chosen, step, appearance().name),
            "ridge_chart",
            f"Distributions of the {scope.gap} log-ratio at steps {', '.join(map(str, chosen))}",
            numbers=lambda: scope.distribution(level).filter(pl.col("step").is_in(chosen)),
        )
    with right:
        if len(recorded) == 1:
            st.caption("Quantiles of two steps are not available, because one step alone has a distribution here.")
            return
        _quantiles(scope, level, recorded, worst if step is None else step)


def _recorded(scope: Scope, level: Level) -> tuple[int, ...]:
    """The steps that have a distribution."""
    return tuple(scope.distribution(level)["step"].unique().sort().to_list())


def _ridges(scope: Scope, level: Level, chosen: tuple[int, ...], marked: int | None, theme: ThemeName) -> go.Figure:
    distribution = scope.distribution(level)
    parts = [(each, whole_histogram(distribution.filter(step=each))) for each in chosen]
    return ridgeline(parts, scope.gap, level, theme=THEMES[theme], marked=marked)


def ridge_steps(text: str, recorded: Sequence[int]) -> list[int]:
    """The steps named in `1, 14, 22` that are on record, ascending, at most MOST. ConfigError if the text is no list of steps.

    >>> ridge_steps("14 2", [1, 2, 14]), ridge_steps("", [1])
    ([2, 14], [])
    """
    try:
        asked_steps = {int(word) for word in text.replace(",", " ").split()}
    except ValueError:
        raise ConfigError(f"ridges {text!r}: wanted steps, such as 1, 14, 22") from None
    return sorted(asked_steps & set(recorded))[:MOST]


def _ridges_field(recorded: Sequence[int], usual: tuple[int, ...]) -> tuple[int, ...]:
    typed = st.text_input(
        "steps shown as ridges", key="ridges", bind="query-params", width=260, placeholder=", ".join(map(str, usual))
    )
    try:
        found = ridge_steps(typed or "", recorded)
    except ConfigError as error:
        st.caption(f":material/error: {label(str(error), 120)}")
        return usual
    if typed and not found:
        st.caption("The chosen range has none of these steps.")
    return tuple(found) or usual


def _quantiles(scope: Scope, level: Level, recorded: Sequence[int], worst: int) -> None:
    first = recorded[0] if recorded[0] != worst else recorded[-1]
    with control_row("quantiles"):
        a = _range_field("from_steps", first, "quantiles of")
        b = _range_field("to_steps", worst, "compared with")
    draw(
        scope.view.figure(_comparison, scope, level, a, b, appearance().name),
        "quantile_chart",
        f"Quantiles of the {scope.gap} log-ratio of {_named(b)} over those of {_named(a)}",
        numbers=lambda: pl.concat(
            [_part(scope, level, each).with_columns(part=pl.lit(_named(each))) for each in (a, b)]
        ),
    )


def _comparison(scope: Scope, level: Level, a: str, b: str, theme: ThemeName) -> go.Figure:
    parts = [whole_histogram(_part(scope, level, each)) for each in (a, b)]
    return quantile_comparison(parts[0], parts[1], (_named(a), _named(b)), scope.gap, level, theme=THEMES[theme])


def _range_field(key: str, usual: int, word: str) -> str:
    typed = st.text_input(word, key=key, bind="query-params", width=150, placeholder=f"{usual}, or 100:200")
    try:
        steps_of(typed or "")
    except ConfigError as error:
        st.caption(f":material/error: {label(str(error), 120)}")
        return str(usual)
    return typed or str(usual)


def _named(text: str) -> str:
    return f"steps {text}" if ":" in text else f"step {text}"


def _part(scope: Scope, level: Level, text: str) -> pl.DataFrame:
    chosen = steps_of(text).of(list(scope.view.figure(_recorded, scope, level)))
    return scope.distribution(level).filter(pl.col("step").is_between(chosen.start, chosen.stop - 1))
