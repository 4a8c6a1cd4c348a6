"""The sequences that a referee reads: the worst of each step for certain, and others by chance, each with its probability.

Estimates weigh each sequence by the inverse of its probability, so that they are of all sequences of the chosen steps although
the worst are among those read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ratioscope.metrics.metric import SAMPLED

from ..presentation.metric_places import sequence_measures_at

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

SEQUENCES = 256
"""Sequences that are read unless another number is given. A convention."""
WORST_SHARE = 0.5
"""Share of the sequences of a step that are its worst. A convention."""
FEWEST = 4
"""Sequences of a step at least, as long as it has them: more steps than `SEQUENCES / FEWEST` are read at even distances."""
SEED = 20


@dataclass(frozen=True)
class Wanted:
    """The steps and sequences to read."""

    steps: range | None = None
    """Steps to choose from; None: all."""
    sequences: int = SEQUENCES
    """About so many sequences over all steps."""
    everything: bool = False
    """True: every sequence of every step, whatever `sequences` says."""
    worst: float = WORST_SHARE
    """Share of the sequences of a step that are its worst."""


EVERY_STEP = Wanted()
"""SEQUENCES over all steps."""


def chosen(run: "Run", wanted: Wanted) -> dict[int, dict[str, float]]:
    """step -> sequence_id -> the probability with which it was chosen. The same run gives the same choice."""
    with_rows = [step for step in run.row_digests() if wanted.steps is None or step in wanted.steps]
    if wanted.everything:
        return {step: dict.fromkeys(_ids(run.sequences(step)), 1.0) for step in with_rows}
    steps = at_even_distances(with_rows, max(1, wanted.sequences // FEWEST))
    quota = max(FEWEST, wanted.sequences // max(1, len(steps)))
    return {step: _of_step(run.sequences(step), min(quota, wanted.sequences), step, wanted.worst) for step in steps}


def at_even_distances(steps: Sequence[int], most: int) -> list[int]:
    """At most so many of the steps, the first and the last among them.

    >>> at_even_distances(range(10), 4)
    [0, 3, 6, 9]
    """
    if not steps:
        return []
    places = np.linspace(0, len(steps) - 1, min(most, len(steps))).round().astype(int)
    return [steps[place] for place in dict.fromkeys(places.tolist())]


def _of_step(table: pl.DataFrame, quota: int, step: int, share: float) -> dict[str, float]:
    ids = _ids(table)
    if len(ids) <= quota:
        return dict.fromkeys(ids, 1.0)
    worst = _worst_first(table)[: round(share * quota)]
    others = sorted(set(ids) - set(worst))
    number = quota - len(worst)
    picked = np.random.default_rng((SEED, abs(step))).choice(len(others), number, replace=False)
    probability = number / len(others)
    return dict.fromkeys(worst, 1.0) | {others[place]: probability for place in sorted(picked)}


def _worst_first(table: pl.DataFrame) -> list[str]:
    """The ids, the worst by the measure of the report first, of those that have any."""
    worst = sequence_measures_at("report")[0]
    by = next((name for gap in SAMPLED if (name := f"{gap}/{worst}") in table.columns), None)
    if by is None:
        return []
    return _ids(table.drop_nulls(by).sort(by, "sequence_id", descending=[True, False]))


def _ids(table: pl.DataFrame) -> list[str]:
    return list(dict.fromkeys(table["sequence_id"].to_list()))


def count(choice: Mapping[int, Mapping[str, float]]) -> int:
    """Number of sequences in a choice."""
    return sum(map(len, choice.values()))
