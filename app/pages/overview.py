"""How the run is: the verdict, severity per step, the headline metrics, and their course over the steps."""

import polars as pl
import streamlit as st

from ..figures.cards import metric_cards, verdict_line
from ..figures.over_steps import metric_over_steps
from ..figures.ribbon import severity_ribbon
from ..headline import BY_NAME, CARDS, CHARTS, limits_of
from ..view import View
from .drawn import appearance, clicked, draw, numbers_behind
from .links import go_to

FIRST = 6
"""Charts shown at once; the others wait in a drawer, so that the page paints quickly."""


def render(view: View, gap: str) -> None:
    theme = appearance()
    frame, verdict = view.metrics(), view.verdict()
    st.html(verdict_line(verdict, theme=theme))
    grades = view.grades()
    draw(
        severity_ribbon(grades, theme=theme),
        "ribbon",
        f"Severity of each of {len(grades)} steps; the worst is {verdict.severity.label}",
        on_click=_step_chosen,
    )
    st.html(metric_cards(frame, [BY_NAME[name] for name in CARDS[gap]], gap, theme=theme))
    names = CHARTS[gap]
    _charts(view, frame, gap, names[:FIRST])
    drawer = st.expander(f"more metrics ({len(names) - FIRST})", key="more", on_change="rerun", bind="query-params")
    if drawer.open:
        with drawer:
            _charts(view, frame, gap, names[FIRST:])
    numbers_behind(frame, "overview_numbers")


def _charts(view: View, frame: pl.DataFrame, gap: str, names: tuple[str, ...]) -> None:
    theme = appearance()
    with st.grid(2, min_column_width=420, gap="small"):
        for name in names:
            metric = BY_NAME[name]
            figure = metric_over_steps(
                frame, metric, gap, limits=limits_of(metric, gap), events=view.run.events, theme=theme
            )
            draw(figure, f"chart_{name}", f"{gap} {name} over {len(frame)} steps")


def _step_chosen() -> None:
    if (bar := clicked("ribbon")) is not None:
        go_to("sequences", step=int(bar[1]))
