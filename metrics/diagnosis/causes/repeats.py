"""The same token after the same ids, scored several times in one step: a side that draws at random gives it several log-probs."""

from typing import NamedTuple

import numpy as np

from ratioscope.arrays import Floats

from ..cause import Cause, Result, undecided
from ..evidence import Evidence, once
from ..fading import fades
from ..fits import kinds, prompts
from ..share import share_explained
from .sources import few_sequences

LEAST_REPEATED, LEAST_PROMPTS = 24, 8
"""The least tokens that repeat another one, and the least prompts with some."""
VARIES, REPEATS = 0.7, 0.2
"""Variance between equal tokens, relative to their mean squared log-ratio: a side varies above, and repeats itself below. Two
sides that round independently have one half each."""
LEAST_GAP = 1e-3
"""K3 in nats/token below which kernels that depend on the batch may vary as much."""


class Repeats(NamedTuple):
    """Tokens that stand in several responses of a prompt after the same ids."""

    tokens: int
    """Their number, less one of each kind."""
    prompts: int
    earlier: float
    """Variance of the sampler's log-probs of one kind, relative to the mean squared log-ratio of these tokens."""
    later: float
    """The same of the trainer's."""


@once
def repeats(evidence: Evidence) -> Repeats:
    """How far each side repeats its own log-prob of a token after the same ids."""
    kind = kinds(evidence)
    counts = np.bincount(kind)
    own = counts[kind] > 1
    if not own.any():
        return Repeats(0, 0, 0.0, 0.0)
    extra = int((counts[counts > 1] - 1).sum())
    size = max(float((evidence.log_ratio[own] ** 2).mean()), 1e-300)

    def variance(values: Floats) -> float:
        means = np.bincount(kind, values) / np.maximum(counts, 1)
        return float(((values - means[kind])[own] ** 2).sum() / extra)

    varies = (variance(side) / size for side in (evidence.earlier, evidence.later))
    return Repeats(extra, len(np.unique(prompts(evidence)[own])), *varies)


def train_mode(evidence: Evidence) -> Result:
    """The trainer gives the same token after the same ids several log-probs, and the sampler one."""
    found, size = repeats(evidence), evidence.mean(evidence.distance)
    if found.tokens < LEAST_REPEATED or found.prompts < LEAST_PROMPTS:
        return undecided(
            f"{found.tokens} tokens of {found.prompts} prompts repeat another one after the same ids; {LEAST_REPEATED} of "
            f"{LEAST_PROMPTS} are needed"
        )
    effect = (
        f"the same token after the same ids, at {found.tokens} places: the trainer's log-probs vary by {found.later:.0%} of the "
        f"squared gap, the sampler's by {found.earlier:.0%}"
    )
    shown = f"a variance of the trainer alone above {VARIES:.0%} would show"
    varies = found.later > VARIES and found.earlier < REPEATS and size > LEAST_GAP
    if not varies or fades(evidence) or few_sequences(evidence) is not None:
        return Result(False, effect, shown)
    left = max(1 - found.later, 0.0)
    undone = evidence.with_earlier(evidence.later - evidence.log_ratio * np.sqrt(left))
    return Result(True, effect, shown, share_explained(evidence, evidence.distance * left), undone)


CAUSES = (
    Cause(
        "train_mode",
        "the trainer draws at random while it scores, as in train mode with dropout",
        "changed numbers",
        train_mode,
        "without the variance of the trainer's own log-probs",
        "The trainer does not agree with itself: a second pass over the batch gives other log-probs. Every weight has this noise.",
        "Score in eval mode: no dropout, no noise of routers. Or set all dropout to 0.",
        "Score one batch twice with the trainer, and compare the two readings.",
        needs=("group", "token"),
        mistaken_for={"different_weights": "Other weights give the same token after the same ids the same log-prob each time."},
    ),
)
