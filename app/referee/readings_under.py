"""The log-ratios of recorded columns under alternatives, by sequence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ratioscope.arrays import Floats
from ratioscope.record import POLICIES

from .answer import BOUND, ROUNDING
from .hypotheses import PLAIN, Hypothesis, read_under
from .inputs import Sequence_
from .judges import ASSUMED, DECODE, PRECISIONS, Judge
from .sampled import OwnDistance
from .scoring import Logprobs

OnTried = Callable[[int, int, str], None]
"""A function of (alternatives tried, alternatives of this stage, name of the next)."""


class Readings:
    """The log-ratios of every column under the alternatives that were tried, by sequence."""

    def __init__(
        self,
        judge: Judge,
        sequences: Sequence[Sequence_],
        precisions: Mapping[str, str],
        progress: OnTried | None,
        most: int | None = None,
    ) -> None:
        """most: response tokens of a sequence that are read; None: all."""
        self.judge, self._progress = judge, progress
        self.sequences = [_beginning(sequence, most) for sequence in sequences]
        self.policies = list(dict.fromkeys(policy for sequence in sequences for policy in sequence.recorded))
        self.steps = sorted({sequence.step for sequence in sequences})
        self.known: dict[str, Hypothesis] = {}
        self.x: dict[str, dict[str, dict[int, Floats]]] = {policy: {} for policy in self.policies}
        """Policy -> alternative -> sequence -> column minus ours, nats, at sampled tokens."""
        self.skipped: dict[str, str] = {}
        self._is_part = most is not None
        self._told = {policy: own for policy, own in precisions.items() if own in PRECISIONS}
        if judge.measures_itself:
            self._told = {policy: DECODE for policy in self.policies if policy == POLICIES[0]}
        self._precision = {policy: self._told.get(policy, ASSUMED) for policy in self.policies}
        self._read: dict[tuple[str, str], dict[int, Logprobs]] = {}
        """(alternative, precision or "") -> sequence -> its log-probs."""

    def read(self, every: Sequence[Hypothesis], places: Sequence[int] | None = None, *, floors: bool = False) -> None:
        """Reads the sequences at these places (None: all) under each alternative. floors: at the columns' precisions too."""
        wanted = list(range(len(self.sequences)) if places is None else places)
        lower = [name for name in dict.fromkeys(self._precision.values()) if floors and self.judge.precisions.get(name)]
        groups: dict[tuple[Any, ...], list[tuple[Hypothesis, str]]] = {}
        for precision, own in product(("", *lower), every):
            if own.name not in self.skipped and not set(wanted) <= self._read.get((own.name, precision), {}).keys():
                key = own.tokens, own.weights, own.checkpoint, own.how.forward, own.setting is None, precision
                groups.setdefault(key, []).append((own, precision))
        for place, group in enumerate(groups.values()):
            if self._progress is not None:
                self._progress(place, len(groups), group[0][0].name)
            try:
                scored = self.judge.scored(group, read_under(group[0][0], [self.sequences[index] for index in wanted]))
            except self.judge.passed_over as error:
                self.skipped |= {own.name: f"{type(error).__name__}: {str(error)[:200]}" for own, _ in group}
                continue
            for (own, precision), logprobs in zip(group, scored, strict=True):
                self._read.setdefault((own.name, precision), {}).update(
                    found := {wanted[place]: each for place, each in logprobs.items()}
                )
                if not precision:
                    self._compare(own, found)

    def _compare(self, hypothesis: Hypothesis, scored: Mapping[int, Logprobs]) -> None:
        self.known[hypothesis.name] = hypothesis
        for index, logprobs in scored.items():
            for policy in self.sequences[index].recorded:
                own = _apart(self.sequences[index], policy, logprobs, hypothesis.shift)
                if PLAIN in hypothesis.parts:
                    own = _switched(own, self.x[policy][PLAIN.name][index])
                self.x[policy].setdefault(hypothesis.name, {})[index] = own

    def at(self, steps: Sequence[int]) -> list[int]:
        """The sequences of these steps."""
        return [index for index, sequence in enumerate(self.sequences) if sequence.step in steps]

    def log_ratios(self, policy: str, name: str, places: Sequence[int] | None = None) -> Floats:
        """Column minus alternative at the finite sampled tokens of these sequences; None: of all that were read."""
        own = self.x[policy].get(name, {})
        parts = [own[index] for index in (own if places is None else places) if index in own]
        every = np.concatenate(parts) if parts else np.zeros(0)
        finite: Floats = every[np.isfinite(every)]
        return finite

    def mean(self, policy: str, name: str, places: Sequence[int] | None = None) -> float:
        """mean |x|, nats/token; NaN without a token."""
        return mean_size(self.log_ratios(policy, name, places))

    def means(self, policy: str) -> dict[str, float]:
        """Alternative -> mean |x| over the sequences that were read under it."""
        return {name: self.mean(policy, name) for name in self.x[policy]}

    def floor(self, policy: str, name: str, places: Sequence[int]) -> OwnDistance:
        """mean |x| of the alternative from itself at the column's precision; 0 in float32, NaN if it was not read.

        A server's is measured with other tokens. That of the plain reading stands for all while few tokens are read.
        """
        if self.judge.measures_itself:
            own = PLAIN if self._is_part else self.known[name]
            return self.judge.own_distance(own, self.sequences)
        if not PRECISIONS[self._precision[policy]]:
            return OwnDistance(0.0, 0.0)
        one, two = (self._read.get((name, precision), {}) for precision in ("", self._precision[policy]))
        both = [index for index in places if index in one and index in two]
        parts = [(one[index] - two[index])[_sampled(self.sequences[index])] for index in both]
        return OwnDistance(mean_size(np.concatenate(parts).astype(np.float64)), 0.0) if parts else OwnDistance()

    def reach(self, policy: str, name: str, places: Sequence[int]) -> float:
        """mean |x| up to which the alternative reproduces the column."""
        floor = self.floor(policy, name, places).least
        return max(ROUNDING, BOUND * floor) if floor == floor else ROUNDING

    def told(self, policy: str) -> str:
        """The precision of the column on record, or DECODE; empty if neither is known."""
        return self._told.get(policy, "")

    def is_off(self, policy: str, steps: Sequence[int] | None = None) -> bool:
        """True if the referee as it is does not reproduce the column at some of these steps."""
        own, is_told = (policy, PLAIN.name), self.judge.measures_itself or bool(self.told(policy))
        every = [self.at([step]) for step in steps or self.steps]
        return any(self.mean(*own, places) > (self.reach(*own, places) if is_told else ROUNDING) for places in every)

    def best(self, policy: str, places: Sequence[int], most: int, *, pairs: bool = False) -> list[Hypothesis]:
        """The alternatives that are nearest to the column at these sequences, among those that are nearer than the plain reading.

        One for each setting that was searched. pairs: the pairs instead of the single ones.
        """
        plain = self.mean(policy, PLAIN.name, places)
        means = {
            name: self.mean(policy, name, places)
            for name, own in self.x[policy].items()
            if self.known[name].is_pair == pairs and name != PLAIN.name and set(places) <= own.keys()
        }
        nearest: dict[Any, Hypothesis] = {}
        for name in sorted(means, key=lambda name: means[name]):
            if means[name] < plain:
                nearest.setdefault(self.known[name].search, self.known[name])
        return list(nearest.values())[:most]


def _beginning(sequence: Sequence_, most: int | None) -> Sequence_:
    """The sequence with so many response tokens. Attention is causal, so their log-probs stay what they are."""
    mask = None if sequence.mask is None else sequence.mask[:most]
    recorded = {policy: own[:most] for policy, own in sequence.recorded.items()}
    return replace(sequence, response=sequence.response[:most], mask=mask, recorded=recorded)


def _sampled(sequence: Sequence_) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    return np.ones(len(sequence.response), bool) if sequence.mask is None else np.asarray(sequence.mask, bool)


def _apart(sequence: Sequence_, policy: str, ours: Logprobs, shift: int) -> Floats:
    """The column minus ours at the sampled tokens: minus the farther one of two bounds, shape (2, tokens)."""
    recorded, sampled = np.asarray(sequence.recorded[policy], np.float64), _sampled(sequence)
    kept, other = (
        slice(max(0, -shift), len(recorded) - max(0, shift)),
        slice(max(0, shift), len(recorded) + min(0, shift)),
    )
    apart: Floats = (recorded[kept] - ours[..., other])[..., sampled[kept]]
    if apart.ndim == 1:
        return apart
    low, high = apart
    farther: Floats = np.where(np.abs(low) > np.abs(high), low, high)
    return farther


def _switched(one: Floats, other: Floats) -> Floats:
    """The log-ratios of a sequence that begins as one reading and goes on as the other, at the token that fits best."""
    both = []
    for first, second in ((one, other), (other, one)):
        place = int(np.concatenate([[0.0], np.nancumsum(np.abs(first)) - np.nancumsum(np.abs(second))]).argmin())
        both.append(np.concatenate([first[:place], second[place:]]))
    return min(both, key=lambda own: float(np.nansum(np.abs(own))))


def mean_size(x: Floats) -> float:
    """mean |x| of the finite ones; NaN without one."""
    finite = np.abs(x[np.isfinite(x)])
    return float(finite.mean()) if len(finite) else float("nan")
