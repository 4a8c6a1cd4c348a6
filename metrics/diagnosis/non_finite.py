"""Sampled tokens without two finite log-probs: no log-ratio is known of them, and every other cause is judged without them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers


@dataclass(frozen=True)
class Marked:
    """Sequences with the number and the place of their marked tokens. Every array has shape (sequences,)."""

    steps: Integers
    lengths: Integers
    """Tokens of the response."""
    tokens: Integers
    """Sampled tokens that were looked at."""
    count: Integers
    """Those of them that are marked."""
    first: Integers
    """Position of the first marked token; -1 without one."""
    last: Integers
    """Position of the last marked token; -1 without one."""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label -> its value for each sequence; empty text where it is not known."""

    @property
    def hit(self) -> Booleans:
        """True for each sequence with a marked token."""
        return self.count > 0

    @property
    def sequences(self) -> str:
        """The number of sequences with a marked token, in words."""
        return f"{int(self.hit.sum()):,} of {len(self.hit):,} sequences"


@dataclass(frozen=True)
class AtSteps:
    """The sampled tokens of every step of a run, ascending. Every array has shape (steps,)."""

    steps: Integers
    tokens: Integers
    """Sampled tokens of the step, with or without numbers."""
    without: Integers
    """Those with a log-prob that is NaN or infinite, but for the next ones."""
    impossible: Integers
    """Those to which the later policy gives probability 0 (-inf): the KL of such a step is infinite."""


@dataclass(frozen=True)
class NonFinite:
    """The sampled tokens without two finite log-probs: how many, of what kind, and in which sequences."""

    over_steps: AtSteps
    """The counts of all steps."""
    kinds: Mapping[str, int]
    """The value in place of the log-prob, with its side -> tokens, at the steps that were read."""
    found: Marked
    """The sequences of the steps that were read."""
    distance: Floats
    """Sum of the clipped K3 over the other tokens of each sequence, shape (sequences,)."""

    @property
    def share(self) -> float:
        """The largest share of such tokens at one step, 0 to 1."""
        own = self.over_steps
        return float(((own.without + own.impossible) / np.maximum(own.tokens, 1)).max(initial=0.0))
