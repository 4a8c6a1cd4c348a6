"""Numbers in place of log-probs: above 0, as a probability is, or log-probs that were multiplied or shifted as numbers."""

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
CERTAIN, UNSURE = 0.3, 1.0
"""Nats below which both sides are nearly certain of a token, and above which neither is. Conventions."""
LEAST_CERTAIN = 3e-3
"""A certain token with less surprisal has few digits left. A convention."""
LEAST_SEEN = 40
"""Fewer certain or unsure tokens cannot show that both are moved alike. A convention."""
ALIKE = 0.1
"""Certain and unsure tokens are moved alike if they differ by this part of the move. A temperature moves them apart."""
SPREAD = 0.25
"""The unsure tokens are moved by one number if their moves differ by this part of it, in the median. A convention."""
LEAST_EXACT = 0.7
"""Moving the numbers back takes out this share of the gap, or the move is not all of the fault. A convention."""
LEAST_MOVE = 0.02
"""A smaller move is left to rounding. A convention."""
EXACT, WIDE = 0.05, 2.0
"""Unsure tokens are multiplied by one number, whatever their size, if their moves differ by the part EXACT in the median, and so
do those of the smaller and the larger half; the sizes must span a factor of WIDE. Conventions."""


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


def moved_log_probs(evidence: Evidence) -> Result:
    """Log-probs of one side that are those of the other times a number, or plus one, certain and unsure alike, or their sums.

    Logits may be scaled by a temperature, which the normaliser answers: then certain tokens move otherwise than unsure ones.
    """
    if (summed := _running_sums(evidence)) is not None:
        return summed
    sides = evidence.earlier, evidence.later
    least, most = -np.maximum(*sides), -np.minimum(*sides)
    unsure, sure = least > UNSURE, most < CERTAIN
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(sides[1] / sides[0])
    scale = _common_move(ratio, sure & (least > LEAST_CERTAIN), unsure)
    scale = _exact_scale(ratio[unsure], least[unsure]) if scale is None else scale
    # Truncation moves unsure tokens alone: those that are certain within half of the move tell the two apart.
    move = abs(float(np.median(evidence.log_ratio[unsure]))) if unsure.any() else 0.0
    shift = _common_move(evidence.log_ratio, np.maximum(*sides) > -min(move / 2, CERTAIN), unsure)
    if scale is not None:
        words, earlier, looks_cut = f"times {np.exp(scale):.3g}", sides[0] * np.exp(scale), False
    elif shift is not None:
        words, earlier, looks_cut = f"{shift:+.3g}", sides[0] + shift, shift < 0
    else:
        return absent("certain and unsure tokens are not multiplied by one number, nor moved by one")
    undone = replace(evidence, earlier=earlier, history=None)
    share = share_explained(evidence, undone.distance)
    if share.share <= LEAST_EXACT:
        return absent(f"the trainer's log-probs are the sampler's {words} at best, and most of the gap is left")
    effect = f"the trainer's log-probs are the sampler's {words}, at certain tokens too"
    return Result(
        True, effect, "", share, undone, {"move": words}, alike=("truncation",) if looks_cut else (),
        doubts=("sampling that cuts off one probability at every token moves them alike",) if looks_cut else (),
    )  # fmt: skip


def _running_sums(evidence: Evidence) -> Result | None:
    """The result if one side has, at each token, the sum of its log-probs up to there, as engines report it beside; else None."""
    is_next = (np.diff(evidence.row, prepend=-1) == 0) & (np.diff(evidence.position, prepend=-1) == 1)
    if is_next.sum() < LEAST_SEEN:
        return None
    for of_sampler, words in (
        (True, "less those of the token before: the sampler's are running sums"),
        (False, "summed up token by token"),
    ):
        own, other = (evidence.earlier, evidence.later)[:: 1 if of_sampler else -1]
        alone = np.where(is_next, own - np.roll(own, 1), own)
        before, after = (float(np.median(np.abs(values - other)[is_next])) for values in (own, alone))
        if after < NEARER * before and before > CERTAIN:
            earlier, later = (alone, other)[:: 1 if of_sampler else -1]
            moved = replace(evidence, earlier=earlier, later=later, history=None)
            kept = moved.kept(is_next | (evidence.position == 0))
            share = share_explained(evidence, np.full(len(evidence), kept.mean(kept.distance)))
            return Result(True, f"the trainer's log-probs are the sampler's {words}", "", share, kept, {"move": words})
    return None


def _common_move(moves: Floats, certain: Booleans, unsure: Booleans) -> float | None:
    """The median move of the unsure tokens if that of the certain ones is equal and is no noise; None if not."""
    if min(certain.sum(), unsure.sum()) < LEAST_SEEN:
        return None
    sure, size = float(np.median(moves[certain])), float(np.median(moves[unsure]))
    # Truncation moves each token by the probability that it cuts off there.
    spread = float(np.median(np.abs(moves[unsure] - size)))
    is_one = abs(sure - size) < ALIKE * abs(size) and spread < SPREAD * abs(size) and abs(size) > LEAST_MOVE
    return size if is_one else None


def _exact_scale(moves: Floats, sizes: Floats) -> float | None:
    """The logarithm of the one number by which nearly all are multiplied, the likelier ones as the rarer ones; None if none is.

    It tells a scale from a temperature if no token is certain: the normaliser weighs less the rarer the token is.
    """
    if len(moves) < 2 * LEAST_SEEN or np.quantile(sizes, 0.9) < WIDE * np.quantile(sizes, 0.1):
        return None
    size, is_large = float(np.median(moves)), sizes > np.median(sizes)
    apart = abs(float(np.median(moves[is_large]) - np.median(moves[~is_large])))
    spread = float(np.median(np.abs(moves - size)))
    return size if abs(size) > LEAST_MOVE and max(apart, spread) < EXACT * abs(size) else None


CAUSES = (
    Cause(
        "moved_log_probs",
        "log-probs of one side were multiplied or shifted as numbers",
        "changed numbers",
        moved_log_probs,
        "with the numbers moved back",
        "Such numbers are no log-probs: their probabilities do not sum to 1. Every weight made of them is wrong.",
        "Divide logits by the temperature, not log-probs. Use natural logarithms, and the logsumexp over the whole vocabulary.",
        "Sum the probabilities of the whole vocabulary at one token on both sides: one of the sums is not 1.",
        estimate="the trainer's are the sampler's {move}",
        comes_first=True,
        mistaken_for={"trainer_temperature": "A temperature moves certain tokens otherwise than unsure ones."},
    ),
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
