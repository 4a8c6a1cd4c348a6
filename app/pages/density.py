"""The probabilities that both policies gave to each token of the chosen steps. The reader starts it; it reads token rows."""

from collections.abc import Iterator, Sequence
from functools import partial, reduce

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.probability_density import PROBABILITY_EDGES, Density, added, probability_density
from ratioscope.record import sides

from ..blocks import Action, Block, Chart, Drawer, Paragraph
from ..figures.drawing.plotly_objects import go
from ..figures.probability_density import density_map
from ..presentation.digits import count
from ..presentation.theme import THEMES, ThemeName
from .face import PAPER, Choice, Tell
from .scope import Scope
from .step_choice import AT_ONCE, are_few

PARTS = 20
"""Number of parts of a longer range. Each part is cached, so that the bar moves and an interrupted job can continue."""
STARTED = "_density"
"""The key under which the session keeps the job that the reader has started."""


def density_drawer(scope: Scope, step: int | None) -> Drawer:
    """The density of a step, None for the chosen ones, for the tokens of the scope's filter."""
    earlier, later = sides(scope.gap)
    title = f"{later} against {earlier} probability, token by token"
    return Drawer(title, partial(_blocks, scope, step), "density")


def _blocks(scope: Scope, step: int | None) -> Iterator[Block]:
    steps = _steps(scope, step)
    if not steps:
        yield Paragraph("The run has no steps in the chosen range.", "muted")
        return
    axes = scope.face.ask(Choice("axes", "axes", ("probability", "log-prob"), "probability", look="segments"))
    job = (scope.view.path, scope.gap, steps[0], steps[-1], len(steps), scope.only)
    if not are_few(scope.view, steps) and scope.face.remembered(STARTED, None) != job:
        number = count(len(steps), "step")
        yield Paragraph(
            f"The dashboard reads the token rows of {number} once, when asked, and keeps the result.", "muted"
        )
        yield Action("read_density", f"read {number}", partial(_start, scope, job))
        return
    try:
        with (scope.face if len(steps) > AT_ONCE else PAPER).working("reading token rows") as tell:
            density = _density(scope, steps, tell)
    except ConfigError as error:
        yield Paragraph(str(error), "absent")
        return
    if missing := len(steps) - density.steps:
        of = f"{count(missing, 'step')} of {len(steps):,}"
        yield Paragraph(f"{of} have no such token rows and are not included.", "muted")
    earlier, later = sides(scope.gap)
    label = f"How often {earlier} and {later} gave a token these two probabilities, {_over(steps)}"
    yield Chart("density_map", label, _map, (scope, step, axes), wide=True, numbers=partial(_numbers, density))


def _steps(scope: Scope, step: int | None) -> list[int]:
    return scope.recorded if step is None else [step]


def _start(scope: Scope, job: object) -> None:
    scope.face.forget(STARTED)
    scope.face.remembered(STARTED, job)


def _density(scope: Scope, steps: Sequence[int], tell: Tell) -> Density:
    size = len(steps) if len(steps) <= AT_ONCE else -(-len(steps) // PARTS)
    densities = []
    for at in range(0, len(steps), size):
        part = tuple(steps[at : at + size])
        densities.append(scope.view.of(probability_density, scope.gap, part, scope.only))
        tell(at + len(part), len(steps))
    return reduce(added, densities)


def _over(steps: Sequence[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"


def _map(scope: Scope, step: int | None, axes: str, theme: ThemeName) -> go.Figure:
    steps = _steps(scope, step)
    with PAPER.working("") as tell:
        density = _density(scope, steps, tell)
    return density_map(density, scope.gap, _over(steps), axes=axes, theme=THEMES[theme])


def _numbers(density: Density) -> pl.DataFrame:
    """One row per occupied bin."""
    later, earlier = density.probability.nonzero()
    bins = {
        f"{side}_{end}": PROBABILITY_EDGES[at + beyond]
        for side, at in (("earlier", earlier), ("later", later))
        for beyond, end in enumerate(("from", "to"))
    }
    return pl.DataFrame(bins | {"tokens": density.probability[later, earlier]})
