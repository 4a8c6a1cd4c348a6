"""The probabilities that both policies gave to each token of the chosen steps. The reader starts it; it reads token rows."""

from collections.abc import Sequence
from functools import reduce

import polars as pl
import streamlit as st

from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.probability_density import PROBABILITY_EDGES, Density, added, probability_density
from ratioscope.record import sides

from ....figures.probability_density import density_map
from ....pages.scope import Scope
from ....presentation.digits import count
from ....presentation.escape import streamlit_label as label
from ...panels.charts import appearance, draw
from ...panels.choices import choice
from ...panels.read_steps import AT_ONCE, are_few

PARTS = 20
"""Number of parts of a longer range. Each part is cached, so that the bar moves and an interrupted job can continue."""


def density_drawer(scope: Scope, steps: Sequence[int]) -> None:
    """A drawer with the density of these steps, for the tokens of the scope's filter."""
    earlier, later = sides(scope.gap)
    drawer = st.expander(
        f"{later} against {earlier} probability, token by token", key="density", on_change="rerun", bind="query-params"
    )
    if not drawer.open:
        return
    with drawer:
        if not steps:
            st.caption("The run has no steps in the chosen range.")
            return
        axes = choice("axes", ("probability", "log-prob"), "axes")
        try:
            density = _density(scope, steps)
        except ConfigError as error:
            st.caption(f":material/error: {label(str(error), 300)}")
            return
        if density is not None:
            _draw(scope, steps, density, axes)


def _density(scope: Scope, steps: Sequence[int]) -> Density | None:
    """The density; None until the reader has started a job of this size."""
    only = scope.only
    parts = _parts(steps)
    job = (scope.view.path, scope.gap, steps[0], steps[-1], len(steps), only)
    if not are_few(scope.view, steps) and st.session_state.get("_density") != job:
        st.caption(f"This reads the token rows of {count(len(steps), 'step')} once and keeps the result.")
        if not st.button(f"read {count(len(steps), 'step')}", key="read_density"):
            return None
        st.session_state["_density"] = job
    if len(parts) == 1:
        return scope.view.of(probability_density, scope.gap, parts[0], only)
    bar = st.progress(0.0, "reading token rows")
    densities = []
    for done, part in enumerate(parts, start=1):
        densities.append(scope.view.of(probability_density, scope.gap, part, only))
        bar.progress(done / len(parts), f"reading token rows: {done} of {len(parts)} parts")
    bar.empty()
    return reduce(added, densities)


def _parts(steps: Sequence[int]) -> list[tuple[int, ...]]:
    if len(steps) <= AT_ONCE:
        return [tuple(steps)]
    size = -(-len(steps) // PARTS)
    return [tuple(steps[at : at + size]) for at in range(0, len(steps), size)]


def _draw(scope: Scope, steps: Sequence[int], density: Density, axes: str) -> None:
    earlier, later = sides(scope.gap)
    over = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    missing = len(steps) - density.steps
    if missing:
        st.caption(f"{count(missing, 'step')} of {len(steps):,} have no such token rows and are not included.")
    draw(
        density_map(density, scope.gap, over, axes=axes, theme=appearance()),
        "density_map",
        f"How often {earlier} and {later} gave a token these two probabilities, {over}",
        numbers=lambda: _numbers(density),
    )


def _numbers(density: Density) -> pl.DataFrame:
    """One row per occupied bin."""
    later, earlier = density.probability.nonzero()
    return pl.DataFrame(
        {
            "earlier_from": PROBABILITY_EDGES[earlier],
            "earlier_to": PROBABILITY_EDGES[earlier + 1],
            "later_from": PROBABILITY_EDGES[later],
            "later_to": PROBABILITY_EDGES[later + 1],
            "tokens": density.probability[later, earlier],
        }
    )
