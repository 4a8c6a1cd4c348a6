"""Any metric against any other, over the steps or over the sequences of one step. A click opens what a point stands for."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import polars as pl

from ..blocks import Block, Chart, Link, Paragraph
from ..figures.drawing.plotly_objects import go
from ..figures.scatter import scatter
from ..presentation.metric_places import FIRST_PAIR, in_words, title_of
from ..presentation.theme import THEMES, ThemeName
from .face import Choice
from .scope import Scope
from .step_choice import worst_step

OF = ("steps", "sequences")
LOG = {"none": (False, False), "x": (True, False), "y": (False, True), "both": (True, True)}


def scatter_blocks(scope: Scope) -> Iterator[Block]:
    """The scatter of two metrics."""
    ask = scope.face.ask
    with scope.face.row("against_choices"):
        of = ask(Choice("points", "a point is one of the", OF, OF[0], look="segments"))
        step = worst_step(scope.view, scope.recorded or scope.view.steps)
        frame = _frame(scope, of, step)
        names = _names(frame, scope.gap)
        axes = [ask(_axis(at, names, of)) for at in (0, 1)] if len(names) >= 2 else []
        log = ask(Choice("alog", "log axis", tuple(LOG), "none", look="segments")) if axes else ""
    if not axes:
        yield Paragraph(f"Not available, because there are fewer than two metrics over the {of}.", "muted")
        return
    x, y = axes
    if of == "sequences":
        yield Paragraph(f"the sequences of step {step}, the worst of the chosen ones", "muted")
    yield Chart(
        "against_chart",
        f"{y} against {x} over the {of}",
        _figure,
        (scope, of, step, x, y, log),
        wide=True,
        numbers=partial(points_of, frame, names[x], names[y], of),
        leads=_steps if of == "steps" else _sequence,
    )


def _frame(scope: Scope, of: str, step: int) -> pl.DataFrame:
    return scope.course() if of == "steps" else scope.view.sequences(step, scope.gap)


def points_of(frame: pl.DataFrame, x: str, y: str, of: str) -> pl.DataFrame:
    """Columns x, y, step, key and label of the points."""
    key = pl.col("step").cast(pl.String) if of == "steps" else pl.col("sequence_id")
    named = pl.format("step {}", pl.col("step")) if of == "steps" else pl.format("step {}, {}", pl.col("step"), key)
    return frame.select(
        x=pl.col(x).cast(pl.Float64), y=pl.col(y).cast(pl.Float64), step=pl.col("step"), key=key, label=named
    )


def _figure(scope: Scope, of: str, step: int, x: str, y: str, log: str, theme: ThemeName) -> go.Figure:
    frame = _frame(scope, of, step)
    names = _names(frame, scope.gap)
    points = points_of(frame, names[x], names[y], of)
    return scatter(points, (title_of(x), title_of(y)), of.removesuffix("s"), logarithmic=LOG[log], theme=THEMES[theme])


def _names(frame: pl.DataFrame, gap: str) -> dict[str, str]:
    """Name of each number -> its column: the metrics of the gap first, then facts."""
    errors = {f"{name}_se" for name in frame.columns}
    numbers = [name for name, kind in frame.schema.items() if kind.is_numeric() and name not in errors]
    own = {name.removeprefix(f"{gap}/"): name for name in numbers if name.startswith(f"{gap}/")}
    return own | {name: name for name in numbers if "/" not in name}


def _axis(at: int, names: Mapping[str, str], of: str) -> Choice[str]:
    """The choice of the metric on the x axis (0) or the y axis (1)."""
    options, first = [*names], FIRST_PAIR[of][at]
    return Choice(("ax", "ay")[at], "xy"[at], options, first if first in names else options[at], in_words, width=340)


def _steps(point: Mapping[str, Any]) -> Link | None:
    found = point.get("customdata")
    return None if found is None or isinstance(found, str) else Link("samples", {"step": int(found[0])})


def _sequence(point: Mapping[str, Any]) -> Link | None:
    found = point.get("customdata")
    if found is None or isinstance(found, str):
        return None
    step = str(found[1]).split(",")[0].removeprefix("step ")
    return Link("tokens", {"step": int(step), "sequence": found[0]})
