"""Comparison of steps of one run: ridges of a few steps, and the quantiles of two."""

from collections.abc import Iterator, Sequence
from functools import partial

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.metrics.distribution import Level, whole_histogram

from ..blocks import Beside, Block, Chart, Paragraph, Part
from ..figures.drawing.plotly_objects import go
from ..figures.quantiles import quantile_comparison
from ..figures.ridgeline import ridgeline
from ..presentation.theme import THEMES, ThemeName
from .face import Text
from .scope import Scope, steps_of
from .step_choice import worst_step

MOST = 12
"""Most ridges in one chart."""


def compared_steps(scope: Scope, level: Level, step: int | None, end: str) -> Iterator[Block]:
    """Ridges of steps of the chosen range beside the quantiles of two of them. step: the chosen one. end: of names."""
    recorded = scope.view.figure(_recorded, scope, level)
    if recorded:
        shown = worst_step(scope.view, recorded) if step is None else step
        sides = (("ridges", partial(_ridge_chart, scope, level, step, shown, end)),
                 ("quantiles", partial(_quantile_chart, scope, level, shown, end)))  # fmt: skip
        yield Beside(f"ridges{end}", tuple((Part(f"{name}_part{end}", blocks),) for name, blocks in sides))


def _recorded(scope: Scope, level: Level) -> tuple[int, ...]:
    """The steps that have a distribution."""
    return tuple(scope.distribution(level)["step"].unique().sort().to_list())


def _ridge_chart(scope: Scope, level: Level, step: int | None, shown: int, end: str) -> Iterator[Block]:
    recorded = scope.view.figure(_recorded, scope, level)
    chosen = tuple(dict.fromkeys((recorded[0], shown, recorded[-1])))
    placeholder = ", ".join(map(str, chosen))
    typed = scope.face.ask(Text("ridges", "steps shown as ridges", width=260, placeholder=placeholder))
    try:
        found = ridge_steps(typed, recorded)
    except ConfigError as error:
        yield Paragraph(str(error), "absent")
    else:
        if typed and not found:
            yield Paragraph("The chosen range has none of these steps.", "muted")
        chosen = tuple(found) or chosen
    yield Chart(
        f"ridge_chart{end}",
        f"Distributions of the {scope.gap} log-ratio at steps {', '.join(map(str, chosen))}",
        _ridges,
        (scope, level, chosen, step),
        numbers=lambda: scope.distribution(level).filter(pl.col("step").is_in(chosen)),
    )


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


def _quantile_chart(scope: Scope, level: Level, shown: int, end: str) -> Iterator[Block]:
    recorded = scope.view.figure(_recorded, scope, level)
    if len(recorded) == 1:
        alone = "Quantiles of two steps are not available, because one step alone has a distribution here."
        yield Paragraph(alone, "muted")
        return
    first = recorded[0] if recorded[0] != shown else recorded[-1]
    parts, wrong = [], []
    with scope.face.row("quantiles"):
        for key, usual, words in (("from_steps", first, "quantiles of"), ("to_steps", shown, "compared with")):
            typed = scope.face.ask(Text(key, words, width=150, placeholder=f"{usual}, or 100:200"))
            try:
                steps_of(typed)
            except ConfigError as error:
                wrong.append(Paragraph(str(error), "absent"))
                typed = ""
            parts.append(typed or str(usual))
    yield from wrong
    a, b = parts
    yield Chart(
        f"quantile_chart{end}",
        f"Quantiles of the {scope.gap} log-ratio of {_named(b)} over those of {_named(a)}",
        _comparison,
        (scope, level, a, b),
        numbers=lambda: pl.concat(
            [_part(scope, level, each).with_columns(part=pl.lit(_named(each))) for each in parts]
        ),
    )


def _comparison(scope: Scope, level: Level, a: str, b: str, theme: ThemeName) -> go.Figure:
    parts = [whole_histogram(_part(scope, level, each)) for each in (a, b)]
    return quantile_comparison(parts[0], parts[1], (_named(a), _named(b)), scope.gap, level, theme=THEMES[theme])


def _named(text: str) -> str:
    return f"steps {text}" if ":" in text else f"step {text}"


def _part(scope: Scope, level: Level, text: str) -> pl.DataFrame:
    chosen = steps_of(text).of(list(scope.view.figure(_recorded, scope, level)))
    return scope.distribution(level).filter(pl.col("step").is_between(chosen.start, chosen.stop - 1))
