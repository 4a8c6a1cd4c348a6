"""Evidence: the scored tokens of one gap, flat, with the facts about each token that a cause may need."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import TypeVar, cast

import numpy as np

from ratioscope.arrays import Array, Booleans, Floats, Integers

from .history import History
from .non_finite import NonFinite
from .on_record import OnRecord

ODD = np.uint64(0x9E3779B97F4A7C15)
"""A multiplier that mixes the bits of a hash."""
CLIP = 3.0
"""A log-ratio above this counts as this. K3 grows like a weight there, and one token would outweigh the whole run."""


FACTS = {
    "token": "the token id", "entropy": "the entropy", "lag": "the version lag", "replica": "the replica",
    "group": "the prompt group", "turn": "the turn", "step": "the step", "length": "the length of the response",
    "cached": "the number of cached prompt tokens", "kv_age": "the age of keys and values", "media": "the number of media",
    "pack": "the place in the packed row", "router": "the agreement of expert routers", "other_id": "the id that was sampled",
}  # fmt: skip
"""Fact of a token that evidence may hold -> its name in words."""


@dataclass(frozen=True)
class Evidence:
    """Tokens with two finite log-probs, sequence after sequence. Every array has shape (tokens,)."""

    earlier: Floats
    """Log-prob under the earlier policy of the gap, the sampler in most gaps, in nats."""
    later: Floats
    """Log-prob under the later policy of the gap, in nats."""
    row: Integers
    """Index of the token's sequence, ascending."""
    position: Integers
    """Place of the token in its response, from 0."""
    facts: Mapping[str, Array]
    """Further columns: entropy, token, lag, replica, rank, group, turn, step, length, and labels of
    causes. A column that was not recorded is absent."""
    names: Mapping[str, tuple[str, ...]]
    """Fact that holds codes -> the name of each code, such as the names of replicas."""
    history: History | None = None
    """The level of the gap at each step of the whole run; None: only the steps of the evidence are known."""
    without_number: int = 0
    """Number of sampled tokens that are left out because one of their log-probs is no finite number."""
    weight: Floats | None = None
    """Tokens of the run that each token stands for, relative to the mean; None: each stands for itself. Under a budget the worst
    sequences are always kept and the others by chance: Horvitz and Thompson 1952."""
    sampled: bool = False
    """True if it holds only some of the tokens that it stands for, so that its means have an error."""
    non_finite: NonFinite | None = None
    """The tokens of the whole run without two finite log-probs; None if every token has them."""
    computed_apart: bool = False
    """True if by the record each side comes from a computation of its own: then equal sides are a measurement."""
    partial: frozenset[str] = frozenset()
    """Facts that only some of the tokens have, and that `facts` therefore lacks."""
    record: OnRecord = field(default_factory=OnRecord)
    """Facts on record about the whole run, outside of its tokens."""
    results: dict[Hashable, object] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Function -> its result for this evidence, see `once`. Empty again in evidence that is made of this one."""

    def __len__(self) -> int:
        return len(self.earlier)

    @cached_property
    def log_ratio(self) -> Floats:
        """x = later - earlier, in nats."""
        return self.later - self.earlier

    @cached_property
    def distance(self) -> Floats:
        """The clipped K3 of each token, see `distances`."""
        return distances(self.log_ratio)

    @cached_property
    def weights(self) -> Floats:
        """The weight of each token; 1 if every token stands for itself."""
        return np.ones(len(self)) if self.weight is None else self.weight

    def mean(self, values: Floats | Booleans) -> float:
        """The mean of the values over the tokens that the evidence stands for; NaN without tokens."""
        return float((self.weights * values).sum() / self.weights.sum()) if len(self) else np.nan

    def mean_of_rows(self, flags: Booleans) -> float:
        """The share of the sequences that have the flag. flags: shape (rows,)."""
        return float(np.average(flags, weights=self.weights[self.starts]))

    def share(self, flags: Booleans) -> str:
        """The share of the tokens that have the flag, in words; with its error, if it has one."""
        error = self.error(flags)
        return f"{self.mean(flags):.2%}" + (f" ± {error:.2%}" if error else "")

    def error(self, values: Floats | Booleans) -> float:
        """The standard error of their mean from the choice of tokens, sequences as the units; 0 if all tokens were read."""
        if not self.sampled:
            return 0.0
        total = self.weights.sum()
        residual = row_sums(self, np.asarray(values - self.mean(values), np.float64))
        return float(np.sqrt((residual**2).sum() * self.rows / (self.rows - 1)) / total) if self.rows > 1 else np.inf

    @cached_property
    def effective_tokens(self) -> float:
        """Number of equally weighted tokens with the same variance: (sum of weights)^2 / sum of squares. Kish 1965."""
        return _effective(self.weights)

    @cached_property
    def effective_rows(self) -> float:
        """The same number of independent sequences, see `units`."""
        return _effective(np.bincount(self.units[self.starts], self.weights[self.starts]).astype(np.float64))

    @cached_property
    def starts(self) -> Integers:
        """Index of the first token of each sequence, shape (rows,)."""
        return np.flatnonzero(np.concatenate(([True], np.diff(self.row) != 0))) if len(self) else np.zeros(0, np.int64)

    @cached_property
    def rows(self) -> int:
        """Number of sequences."""
        return len(self.starts)

    @cached_property
    def row_codes(self) -> Integers:
        """Number of each token's sequence among those with a token, from 0, shape (tokens,)."""
        return np.repeat(np.arange(self.rows), np.diff(np.append(self.starts, len(self))))

    @cached_property
    def units(self) -> Integers:
        """Number of each token's independent unit, from 0, shape (tokens,): a sequence, and those equal to it to the last bit.

        A sampler that repeats itself, at a low temperature or greedy, measures nothing anew.
        """
        if not len(self):
            return np.zeros(0, np.int64)
        bits = (np.ascontiguousarray(side, np.float64).view(np.uint64) for side in (self.earlier, self.later))
        with np.errstate(over="ignore"):
            mixed = self.position.astype(np.uint64) + ODD
            for own in bits:
                mixed = (mixed ^ own) * ODD
                mixed ^= mixed >> np.uint64(29)
            hashes = np.add.reduceat(mixed, self.starts)
        return np.unique(hashes, return_inverse=True)[1].astype(np.int64)[self.row_codes]

    @cached_property
    def step_codes(self) -> tuple[Integers, Integers]:
        """(distinct steps ascending, index of each token's step among them)."""
        steps, index = np.unique(self.facts["step"], return_inverse=True)
        return steps, np.asarray(index, np.int64)

    def kept(self, mask: Booleans) -> "Evidence":
        """Only the tokens of the mask. Their history is their own, and no longer that of the whole run."""
        facts = {name: values[mask] for name, values in self.facts.items()}
        return replace(
            self,
            earlier=self.earlier[mask],
            later=self.later[mask],
            row=self.row[mask],
            position=self.position[mask],
            facts=facts,
            history=None,
            weight=None if self.weight is None else self.weight[mask],
        )

    def with_earlier(self, earlier: Floats) -> "Evidence":
        """The same tokens with other log-probs of the earlier policy, and so with another history."""
        return replace(self, earlier=earlier, history=None)

    def has(self, *names: str) -> bool:
        """True if all of these facts are on record."""
        return all(name in self.facts for name in names)


def distances(log_ratio: Floats) -> Floats:
    """K3 of each token, exp(x) - 1 - x in nats, with x above CLIP taken as CLIP. Schulman 2020; the clip is ours."""
    x = np.minimum(log_ratio, CLIP)
    # Below 1e-5 expm1(x) - x loses its digits; x^2 / 2 is exact to 1e-11 there.
    return np.where(np.abs(x) < 1e-5, x * x / 2, np.expm1(x) - x)


def unit_sums(evidence: Evidence, values: Floats) -> Floats:
    """The weighted sum of the values over each independent unit, shape (units,)."""
    return np.bincount(evidence.units, evidence.weights * values).astype(np.float64)


def row_sums(evidence: Evidence, values: Floats) -> Floats:
    """The weighted sum of the values over each sequence, shape (rows,)."""
    return np.add.reduceat(evidence.weights * values, evidence.starts) if len(evidence) else np.zeros(0)


def _effective(weights: Floats) -> float:
    return float(weights.sum() ** 2 / (weights**2).sum()) if len(weights) else 0.0


Of = TypeVar("Of")


def once(function: Callable[[Evidence], Of]) -> Callable[[Evidence], Of]:
    """The same function with one call for each evidence.

    Evidence never changes, and evidence that is made of another one remembers nothing of it. Callers share the result: they
    must not write into its arrays.
    """

    @wraps(function)
    def remembered(evidence: Evidence) -> Of:
        if remembered not in evidence.results:
            evidence.results[remembered] = function(evidence)
        return cast(Of, evidence.results[remembered])

    return remembered
