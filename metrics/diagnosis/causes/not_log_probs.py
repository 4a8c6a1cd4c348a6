"""Numbers above 0 in place of log-probs: log-probs with the sign changed, probabilities, or scores without a normaliser."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ratioscope.arrays import Booleans, Floats

from ...columns import ROUNDING
from ..cause import Cause, Result, absent
from ..evidence import Evidence
from ..share import share_explained, undone_by_leaving

RATIO = 4
"""A sequence has so many values above 0 for each one below, or it has log-probs with noise."""
FEWEST = 20
"""Fewer values above 0 are not told from noise."""
IMPOSSIBLE = 0.05
"""No precision rounds a log-prob to so many nats above 0, in bfloat16 neither. A convention."""
MOST = 0.8
"""Single tokens above 0 have this share of the gap, or they are noise that passes 0 as it does elsewhere. A convention."""
SMALLEST = 1e-30
"""Probabilities below this count as this, so that each has a logarithm."""
FORMS: Mapping[str, tuple[float, Callable[[Floats], Floats]]] = {
    "minus the log-prob": (np.inf, np.negative),
    "the probability": (1.0, lambda values: np.log(np.clip(values, SMALLEST, 1))),
}
"""Form of a number above 0 in words -> (its greatest value, the log-prob that it stands for)."""
NEARER = 0.2
"""A form is named if it brings the sides to this part of their distance or nearer, in the median."""
UNKNOWN = "an unknown form"


def _above(evidence: Evidence, values: Floats) -> Booleans:
    """The tokens above 0 of the sequences in which nearly every value is; else the single tokens that no noise explains.

    Noise around a log-prob near 0 is above it at half of such tokens, and a constant above 0 is a filler: neither is meant.
    """
    single = values > IMPOSSIBLE
    above, below = values > ROUNDING, values < -ROUNDING
    highs, lows, sums = (np.add.reduceat(found * 1.0, evidence.starts) for found in (above, below, values))
    above &= ((highs > RATIO * lows) & (sums > 0))[evidence.row_codes]
    if above.sum() >= FEWEST and not _is_constant(values[above]):
        return above
    gap = evidence.distance * evidence.weights
    is_gap = single.any() and not _is_constant(values[single]) and gap[single].sum() > MOST * gap.sum()
    return single if is_gap else np.zeros(len(values), np.bool_)


def _is_constant(values: Floats) -> bool:
    """True if half of the values are one number."""
    return bool(2 * np.unique(values, return_counts=True)[1].max() >= len(values) > 1)


def _mended(evidence: Evidence, above: tuple[Booleans, Booleans], form: Callable[[Floats], Floats]) -> Evidence:
    sides = (evidence.earlier, evidence.later)
    earlier, later = (np.where(bad, form(values), values) for values, bad in zip(sides, above, strict=True))
    return replace(evidence, earlier=earlier, later=later, history=None)


def _form(evidence: Evidence, above: tuple[Booleans, Booleans]) -> str | None:
    """The form under which the numbers above 0 agree with the other side; None if there is none, or no other side."""
    bad, both = above[0] | above[1], above[0] & above[1]
    if both.any():
        return None
    values = np.maximum(evidence.earlier, evidence.later)[bad]
    forms = {form: undo for form, (most, undo) in FORMS.items() if values.max() <= most + ROUNDING}
    apart = {form: _mended(evidence, above, undo).log_ratio[bad] for form, undo in forms.items()}
    best = min(apart, key=lambda form: float(np.median(np.abs(apart[form]))))
    before = np.median(np.abs(evidence.log_ratio[bad]))
    return best if np.median(np.abs(apart[best])) < NEARER * before else None


def positive_log_probs(evidence: Evidence) -> Result:
    """Values above 0 by more than rounding, on either side; a constant in their place is a filler and another cause."""
    above = {"sampler": _above(evidence, evidence.earlier), "trainer": _above(evidence, evidence.later)}
    sides = " and ".join(side for side, bad in above.items() if bad.any())
    if not sides:
        return absent("no sequence has log-probs above 0, but for rounding, noise and constants")
    masks = (above["sampler"], above["trainer"])
    bad, form = masks[0] | masks[1], _form(evidence, masks)
    undone: Evidence | None
    if form is not None:
        mended = _mended(evidence, masks, FORMS[form][1])
        undone, share = mended, share_explained(evidence, mended.distance)
    elif bad.all():
        undone, share = None, share_explained(evidence, np.zeros(len(evidence)))
    else:
        undone, share = evidence.kept(~bad), share_explained(evidence, undone_by_leaving(evidence, bad))
    effect = f"{evidence.share(bad)} of the tokens have a log-prob above 0: {form or UNKNOWN} ({sides})"
    return Result(True, effect, "", share, undone, {"side": sides, "form": form or UNKNOWN}, bad)


CAUSES = (
    Cause(
        "positive_log_probs",
        "numbers above 0 stand in place of log-probs",
        "changed numbers",
        positive_log_probs,
        "with the log-probs that the numbers stand for",
        "A log-prob is never above 0. Every weight made of such a number is wrong.",
        "Record log_softmax of the logits in float32 at the sampled token: not the loss of the token, not its probability, not "
        "its logit.",
        "Print the numbers of one token: its logit, log-prob and probability on both sides.",
        estimate="{form}, on the side of the {side}",
        comes_first=True,
        mistaken_for={"filler_values": "A filler is one constant; these numbers vary."},
    ),
)
