"""Charts of the comparison: the weights after each correction, over the steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from ....figures.drawing.bands import NO_ERROR
from ....figures.series_chart import Series, series_chart, series_key, series_of
from ....pages.scope import Scope
from ....pages.view import CacheRequest, View, figure_request
from ....presentation.digits import a_step, count
from ....presentation.sentence import capital
from ....presentation.theme import THEMES, ThemeName
from ...panels.charts import appearance, draw
from ...panels.layout import cells
from .outcomes import CorrectionOutcome

CHARTS = (
    ("ess_after", "ESS after", "share of the sample that still counts"),
    ("mean_weight", "mean weight", "a factor on the learning rate"),
    ("bias", "bias", "distance from exact weights: mean |v − w|, a proxy"),
    ("variance", "variance", "of the corrected weights, a proxy"),
    ("removed_share", "removed tokens", "share removed from the loss"),
    ("removed_share_sequence", "removed sequences", "share with no token left"),
)
FIRST = 2
"""Number of charts that are always shown; the others are in a drawer."""


def comparison_charts(scope: Scope, outcomes: Sequence[CorrectionOutcome]) -> None:
    theme = appearance()
    st.html(series_key([each.entry.name for each in outcomes], theme=theme))
    _grid(scope, outcomes, CHARTS[:FIRST])
    drawer = st.expander(
        "bias, variance and removed tokens", key="more_effects", on_change="rerun", bind="query-params"
    )
    if drawer.open:
        with drawer:
            _grid(scope, outcomes, CHARTS[FIRST:])


def _grid(scope: Scope, outcomes: Sequence[CorrectionOutcome], charts: Sequence[tuple[str, str, str]]) -> None:
    drawn = sum(len(each.steps) > 0 for each in outcomes)
    for place, (name, title, about) in zip(cells(len(charts), charts[0][0]), charts, strict=True):
        figure = scope.view.figure(*_drawing(scope.view, outcomes, (name, title, about), appearance().name))
        with place:
            alt = f"{title} of {count(drawn, 'correction')} over the steps"
            draw(figure, f"lab_{name}", alt, numbers=partial(_by_step, outcomes, name))


def charts_to_prefetch(view: View, outcomes: Sequence[CorrectionOutcome], theme: ThemeName) -> list[CacheRequest]:
    """Requests for the charts that are always shown."""
    return [figure_request(*_drawing(view, outcomes, chart, theme)) for chart in CHARTS[:FIRST]]


def _drawing(
    view: View, outcomes: Sequence[CorrectionOutcome], chart: tuple[str, str, str], theme: ThemeName
) -> tuple[Callable[..., go.Figure], View, "ChartLines", str, str, str, ThemeName]:
    """The function that draws a chart, and its arguments."""
    name, title, about = chart
    sizes = (
        _size([each.steps for each in outcomes if each.over == f"{noun}s"], noun) for noun in ("token", "sequence")
    )
    size = " or ".join(each for each in sizes if each)
    return _series_chart, view, ChartLines.of(outcomes, name), capital(title), about, size, theme


def _size(steps: Sequence[pl.DataFrame], noun: str) -> str:
    longest = max(steps, key=len, default=None)
    return "" if longest is None else a_step(longest["weights"].cast(pl.Float64).to_list(), noun)


@dataclass(frozen=True)
class ChartLines:
    """The lines of a chart. Partial results of a job belong to no revision of the run, so the cache key includes their digest."""

    digest: bytes
    series: tuple[Series, ...] = field(compare=False)

    @staticmethod
    def of(outcomes: Sequence[CorrectionOutcome], name: str) -> "ChartLines":
        series = tuple(
            series_of(each.steps, name, each.entry.name, at) for at, each in enumerate(outcomes) if len(each.steps)
        )
        digest = blake2b()
        for one in series:
            digest.update(f"{one.place} {len(one.steps)} {len(one.name)} {one.name}".encode())
            for values in (one.steps, one.least, one.most):
                digest.update(values.tobytes())
        return ChartLines(digest.digest(), series)


def _series_chart(view: View, laid: ChartLines, title: str, about: str, size: str, theme: ThemeName) -> go.Figure:
    absent, made = "nothing was computed yet", (size, NO_ERROR)
    return series_chart(
        laid.series, title, (about,), made=made, events=view.events(), absent=absent, theme=THEMES[theme]
    )


def _by_step(outcomes: Sequence[CorrectionOutcome], name: str) -> pl.DataFrame:
    parts = [
        each.steps.select(
            "step", correction=pl.lit(each.entry.name), over=pl.lit(each.over), least=name, most=f"{name}_most"
        )
        for each in outcomes
        if len(each.steps)
    ]
    return pl.concat(parts) if parts else pl.DataFrame(schema={"step": pl.Int64, "correction": pl.String})
