"""Reads the tokens without two finite log-probs out of all tokens of some sequences."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ratioscope.arrays import Floats, Integers

from .evidence import distances
from .marked import all_marked, marked
from .non_finite import AtSteps, NonFinite


@dataclass(frozen=True)
class Tokens:
    """The tokens of some sequences of one gap, sequence after sequence, with and without numbers. Shape (tokens,)."""

    earlier: Floats
    """Log-prob under the earlier policy of the gap, in nats."""
    later: Floats
    """Log-prob under the later policy of the gap, in nats."""
    row: Integers
    """Index of the token's sequence, ascending from 0."""
    position: Integers
    lengths: Integers
    """Tokens of the response, shape (sequences,)."""
    steps: Integers
    """Shape (sequences,)."""
    policies: Sequence[str]
    """(earlier, later) policy of the gap."""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label of `marked.LABELS` -> its value for each sequence."""


def of_tokens(counts: AtSteps, tokens: Tokens) -> NonFinite:
    """Those among these tokens. counts: of all steps."""
    finite = np.isfinite(tokens.earlier) & np.isfinite(tokens.later)
    found = marked(tokens.row, tokens.position, ~finite, tokens.lengths, tokens.steps, tokens.labels)
    apart = distances(tokens.later[finite] - tokens.earlier[finite])
    sums = np.bincount(tokens.row[finite], apart, minlength=len(tokens.lengths)).astype(np.float64)
    return NonFinite(counts, kinds_of(tokens), found, sums)


def kinds_of(tokens: Tokens) -> dict[str, int]:
    """The value that is no finite number, with its side -> tokens."""
    kinds: dict[str, int] = {}
    for policy, values in zip(tokens.policies, (tokens.earlier, tokens.later), strict=True):
        for name, where in {"NaN": np.isnan(values), "−inf": np.isneginf(values), "+inf": np.isposinf(values)}.items():
            if count := int(where.sum()):
                kinds[f"{name} on {side_of(policy, tokens.policies)}"] = count
    return kinds


def side_of(policy: str, policies: Sequence[str]) -> str:
    """The side of a policy in words: between policies of the trainer alone, it is named."""
    if "rollout" not in policies:
        return f"the side of {policy}"
    return "the sampler's side" if policy == "rollout" else "the trainer's side"


def joined(counts: AtSteps, parts: Sequence[NonFinite]) -> NonFinite:
    """Those of several steps together. counts: of all steps."""
    kinds: Counter[str] = Counter()
    for part in parts:
        kinds.update(part.kinds)
    distance = np.concatenate([np.zeros(0), *(part.distance for part in parts)])
    return NonFinite(counts, kinds, all_marked([part.found for part in parts]), distance)


def at_steps(tokens: Tokens) -> AtSteps:
    """The counts of the steps of these tokens."""
    step = tokens.steps[tokens.row]
    steps, index = np.unique(step, return_inverse=True)
    impossible = np.isfinite(tokens.earlier) & np.isneginf(tokens.later)
    without = ~(np.isfinite(tokens.earlier) & np.isfinite(tokens.later)) & ~impossible
    sums = (np.bincount(index[own], minlength=len(steps)) for own in (without | ~without, without, impossible))
    return AtSteps(steps, *sums)
