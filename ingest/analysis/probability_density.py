"""Two-dimensional histogram of the probabilities that two policies gave to the same token.

It counts all tokens of the chosen steps, not a sample. It is read step by step, so that memory stays that of one step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ratioscope.arrays import Floats
from ratioscope.metrics.engines.arrow_columns import gap_rows

from ..files.progress import OnProgress
from ..rows.part import Part
from ..run import Run
from .part_rows import part_columns, part_mask
from .step_rows import columns_of

PROBABILITY_EDGES: Floats = np.linspace(0.0, 1.0, 51)
"""Edges of fifty equal bins of probabilities. The last bin includes 1."""
SURPRISAL_EDGES: Floats = np.concatenate(([0.0], np.geomspace(1e-3, 100.0, 51), [np.inf]))
"""Edges of bins of -logprob in nats: one bin up to 0.001, then ten a decade, and one beyond 100 that includes -inf."""


@dataclass(frozen=True)
class Density:
    """Counts of tokens by (bin of the later policy, bin of the earlier policy)."""

    probability: Floats
    """Counts between PROBABILITY_EDGES."""
    surprisal: Floats
    """Counts between SURPRISAL_EDGES."""
    tokens: int
    set_aside: int
    """Tokens left out: NaN or +inf on a side, or -inf on the earlier side."""
    above: int
    """Tokens with a log-prob above 0, counted in the bin next to 0."""
    steps: int
    """Steps with a token in the histogram."""
    exact: bool
    """False where a budget kept rows by chance: each counts 1 / inclusion probability times, and counts are estimates."""


def probability_density(
    run: Run, gap: str, steps: Sequence[int], only: Part | None = None, progress: OnProgress | None = None
) -> Density:
    """The density of the unmasked tokens of these steps. only: its tokens alone."""
    whole = Density(_empty(PROBABILITY_EDGES), _empty(SURPRISAL_EDGES), 0, 0, 0, 0, True)
    for done, step in enumerate(steps, start=1):
        whole = added(
            whole,
            of_rows(columns_of(run, step, ("mask", "inclusion_probability", *part_columns(only)), gap), gap, only),
        )
        if progress:
            progress(done, len(steps))
    return whole


def of_rows(records: pa.Table, gap: str, only: Part | None = None) -> Density:
    """The density of joined Records."""
    rows = gap_rows(records, gap)
    chosen = rows.mask if only is None else rows.mask & part_mask(records, rows, only)[0]
    earlier, later = (side[chosen].astype(np.float64) for side in (rows.earlier, rows.later))
    usable = np.isfinite(earlier) & (np.isfinite(later) | np.isneginf(later))
    stands = None if rows.stands_for is None else np.repeat(rows.stands_for, rows.lengths)[chosen][usable]
    set_aside = int((~usable).sum())
    earlier, later = earlier[usable], later[usable]
    return Density(
        _counted(np.exp(np.minimum(earlier, 0)), np.exp(np.minimum(later, 0)), PROBABILITY_EDGES, stands),
        _counted(np.maximum(-earlier, 0), np.maximum(-later, 0), SURPRISAL_EDGES, stands),
        tokens=len(earlier),
        set_aside=set_aside,
        above=int(((earlier > 0) | (later > 0)).sum()),
        steps=int(len(earlier) > 0),
        exact=stands is None,
    )


def _counted(earlier: Floats, later: Floats, edges: Floats, times: Floats | None) -> Floats:
    bins = len(edges) - 1
    places = [np.clip(np.searchsorted(edges, side, side="right") - 1, 0, bins - 1) for side in (later, earlier)]
    return np.bincount(places[0] * bins + places[1], times, bins * bins).astype(np.float64).reshape(bins, bins)


def added(a: Density, b: Density) -> Density:
    """The density of both together."""
    return Density(
        a.probability + b.probability,
        a.surprisal + b.surprisal,
        a.tokens + b.tokens,
        a.set_aside + b.set_aside,
        a.above + b.above,
        a.steps + b.steps,
        a.exact and b.exact,
    )


def _empty(edges: Floats) -> Floats:
    return np.zeros((len(edges) - 1, len(edges) - 1))
