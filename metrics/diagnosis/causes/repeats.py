"""The same token after the same ids, scored several times in one step: a side that draws at random gives it several log-probs."""

from ..cause import Cause, Result, undecided
from ..evidence import Evidence
from ..fading import fades
from ..fits import correlation, repeats
from ..share import share_explained
from ..wake import wake
from .numerics import USUAL
from .sources import few_sequences

LEAST_REPEATED, FEW_REPEATED = 8, 24
"""The least tokens that repeat another one, and the number below which they are few."""
VARIES, MOSTLY = 0.25, 0.7
"""Variance between equal tokens, relative to their mean squared log-ratio, from which on a side varies, and from which on it is
most of the gap. The sides of the labelled runs have 0.00 but for this fault and, on the trainer's side, packed rows."""
REPEATS = 0.2
"""The other side repeats itself if it varies by no more than this part. Two sides that round at random vary alike."""
RELATED = 0.3
"""Sides that draw at random still score the same tokens; log-probs that correlate by less are those of other tokens."""
LEAST_GAP = 0.02
"""K3 in nats/token below which kernels that depend on the batch may vary as much, most at a low temperature."""


def train_mode(evidence: Evidence) -> Result:
    """The trainer gives the same token after the same ids several log-probs, and the sampler one; or old and current show it."""
    size = evidence.mean(evidence.distance)
    usual = min(USUAL / max(size, 1e-300), 1.0)
    if "train_mode" in evidence.record.shown:
        told = "the trainer gives the same tokens other log-probs at the same weights"
        return Result(True, told, "", share_explained(evidence, evidence.distance * usual))
    if (found := repeats(evidence)).tokens < LEAST_REPEATED:
        return undecided(f"{found.tokens} tokens repeat another one after the same ids; {LEAST_REPEATED} are needed")
    effect = (
        f"the same token after the same ids, at {found.tokens} places: the trainer's log-probs vary by {found.later:.0%} of the "
        f"squared gap, the sampler's by {found.earlier:.0%}"
    )
    shown = f"a variance of the trainer alone above {VARIES:.0%} would show"
    varies = found.later > VARIES and found.earlier < REPEATS * found.later and size > LEAST_GAP
    if not varies or fades(evidence) or few_sequences(evidence) is not None or wake(evidence) is not None:
        return Result(False, effect, shown)
    if (related := correlation(evidence.earlier, evidence.later)) < RELATED:
        return Result(False, f"{effect}, but the log-probs of the two sides correlate at {related:.2f}", shown)
    doubts = {
        "few tokens repeat another one": found.tokens < FEW_REPEATED,
        f"they vary by no more than {MOSTLY:.0%} of the gap": found.later < MOSTLY,
    }
    share = share_explained(evidence, evidence.distance * usual)
    return Result(True, effect, shown, share, doubts=tuple(words for words, holds in doubts.items() if holds))


CAUSES = (
    Cause(
        "train_mode",
        "the trainer draws at random while it scores, as in train mode with dropout",
        "changed numbers",
        train_mode,
        "without the variance of the trainer's own log-probs",
        "The trainer does not agree with itself: a second pass gives other log-probs. Every weight has this noise.",
        "Score in eval mode: no dropout, no noise of routers. Or set all dropout to 0.",
        "Score one batch twice with the trainer, and compare the two readings.",
        needs=("group", "token"),
        alike=("packing_leak",),
        mistaken_for={
            "packing_leak": "Scored one per row, packed sequences agree with themselves; a random trainer does not.",
            "different_weights": "Other weights give the same token after the same ids one log-prob.",
        },
    ),
)
