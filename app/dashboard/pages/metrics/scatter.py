"""Any metric against any other, over the steps or over the sequences of one step. A click opens what a point stands for."""

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from ....figures.scatter import scatter
from ....pages.scope import Scope
from ....pages.step_choice import worst_step
from ....presentation.escape import streamlit_label as label
from ....presentation.metric_places import FIRST_PAIR, in_words, title_of
from ....presentation.theme import THEMES, ThemeName
from ...panels.charts import appearance, clicked, draw
from ...panels.choices import choice, dropdown
from ...panels.layout import control_row
from ...panels.links import go_to

OF = ("steps", "sequences")
LOG = {"none": (False, False), "x": (True, False), "y": (False, True), "both": (True, True)}


def scatter_drawer(scope: Scope) -> None:
    """A drawer with the scatter of two metrics."""
    drawer = st.expander("one metric against another", key="against", on_change="rerun", bind="query-params")
    if not drawer.open:
        return
    with drawer, control_row("against_choices"):
        of = choice("a point is one of the", OF, "points")
        step = worst_step(scope.view, scope.recorded or scope.view.steps)
        frame = scope.course() if of == "steps" else scope.view.sequences(step, scope.gap)
        names = _names(frame, scope.gap)
        if len(names) < 2:
            st.caption(f"Not available, because there are fewer than two metrics over the {of}.")
            return
        x, y = (
            _picked(name, key, names, first)
            for name, key, first in zip("xy", ("ax", "ay"), FIRST_PAIR[of], strict=True)
        )
        log = choice("log axis", tuple(LOG), "alog")
    with drawer:
        if of == "sequences":
            st.caption(f"the sequences of step {step}, the worst of the chosen ones")
        table = points_of(frame, names[x], names[y], of)
        alt = f"{y} against {x} over the {of}"
        figure = scope.view.figure(_figure, scope, of, step, x, y, log, appearance().name)
        draw(
            figure,
            "against_chart",
            label(alt),
            numbers=lambda: table,
            on_click=_opened_steps if of == "steps" else _opened,
        )


def points_of(frame: pl.DataFrame, x: str, y: str, of: str) -> pl.DataFrame:
    """Columns x, y, step, key and label of the points."""
    key = pl.col("step").cast(pl.String) if of == "steps" else pl.col("sequence_id")
    named = pl.format("step {}", pl.col("step")) if of == "steps" else pl.format("step {}, {}", pl.col("step"), key)
    return frame.select(
        x=pl.col(x).cast(pl.Float64), y=pl.col(y).cast(pl.Float64), step=pl.col("step"), key=key, label=named
    )


def _figure(scope: Scope, of: str, step: int, x: str, y: str, log: str, theme: ThemeName) -> go.Figure:
    frame = scope.course() if of == "steps" else scope.view.sequences(step, scope.gap)
    names = _names(frame, scope.gap)
    points = points_of(frame, names[x], names[y], of)
    return scatter(points, (title_of(x), title_of(y)), of.removesuffix("s"), logarithmic=LOG[log], theme=THEMES[theme])


def _names(frame: pl.DataFrame, gap: str) -> dict[str, str]:
    """Name of each number -> its column: the metrics of the gap first, then facts."""
    errors = {f"{name}_se" for name in frame.columns}
    numbers = [name for name, kind in frame.schema.items() if kind.is_numeric() and name not in errors]
    own = {name.removeprefix(f"{gap}/"): name for name in numbers if name.startswith(f"{gap}/")}
    return own | {name: name for name in numbers if "/" not in name}


def _picked(name: str, key: str, names: dict[str, str], first: str) -> str:
    options = list(names)
    return dropdown(
        name,
        options,
        key,
        width=340,
        default=first if first in names else options[0 if name == "x" else 1],
        shown=in_words,
    )


def _opened_steps() -> None:
    if (point := clicked("against_chart")) is not None:
        go_to("sequences", step=int(point[0]))


def _opened() -> None:
    if (point := clicked("against_chart")) is not None:
        step = str(point[1]).split(",")[0].removeprefix("step ")
        go_to("tokens", step=int(step), sequence=point[0])
