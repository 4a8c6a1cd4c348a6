"""The facts on a run's trust region in sentences, the same on every face: those that hold, each with what it means."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .digits import count, digits, percent
from .sentence import sentence

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.trust_region import TrustRegion

NAME = "trust region"
_MEANING = {
    "mismatch": "The clip of {trainer} then holds current near the engine's own log-probs, so that their numerics use up a part "
    "of it.",
    "drift": "In {trainer} the clip then bounds no update: only the learning rate, the gradient clip, a KL penalty and a "
    "correction of the mismatch do.",
}
"""Gap -> the meaning of its two sides being one at every step."""


def trust_words(trust: "TrustRegion") -> str:
    """The sentences; empty if none of the facts holds."""
    return " ".join(_sentences(trust))


def _sentences(trust: "TrustRegion") -> Iterator[str]:
    trainer = trust.trainer or "the trainer"
    for fact in trust.copies:
        yield sentence(fact.head)
        yield _MEANING[fact.gap].format(trainer=trainer)
    if trust.spent is not None and trust.band is not None and trust.spent.outside:
        band = f"{digits(trust.band.low)} to {digits(trust.band.high)}"
        among = f"{count(trust.spent.tokens, 'token')} at the first minibatch of {count(trust.spent.steps, 'step')}"
        yield (
            f"{percent(trust.spent.share)} of {among} lie outside the run's own clip, {band}, before any update. "
            "The clip may cut their gradient off although no update has moved them."
        )
