"""Faults of the record itself: fillers in place of log-probs, and log-probs that were stored with few digits."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ratioscope.arrays import Booleans, Floats

from ..cause import Cause, Result
from ..evidence import Evidence, once
from ..grid import grid_of, widths
from ..marked import marked_of, places, since_read
from ..share import expected_from, share_explained
from .not_log_probs import IMPOSSIBLE

APART = 0.05
"""A log-prob that differs from a repeated constant by less than this, in nats, may honestly be that constant."""
FAR = 10.0
"""Tokens with a filler differ by this many times the median of the others."""
FILLED = 0.3
"""The other side gives tokens with a filler at least this surprisal in nats, in the median."""
NEAR, BESIDE = 1e-3, 0.2
"""A constant is no filler if within so many nats of it lie this part as many other values that the other side denies."""
NEVER = 20.0
"""A number that the other side denies by so many nats is no log-prob of a token that was sampled."""
UNDRAWN = -103.28
"""Log of 2^-149, the least number above 0 in float32: a sampler cannot draw a token of a smaller probability."""
MOST_TIED = 8.5
"""Up to so many tokens may be tied for the first place."""
HONEST = 0.15
"""Share of the tokens with a constant on the rarer side of it from which on the other side may honestly mean it."""
UNLIKE, SCARCE = 1.0, 0.01
"""Sides that differ by so many nats elsewhere meet by chance: a constant at a smaller share of the tokens shows nothing there."""
RUN = 3
"""So many fillers in a row are a span that nobody sampled, not single missing values."""
MOST_LONE = 2
"""More numbers that no sampler can draw, each of them seldom, are no constants: sums over a sequence are such numbers."""
AT_AN_END = 0.9
"""Share of the fillers at one end of the responses from which on the mask may be one token off. A convention."""
SURE = 1.0
"""Nats by which the other side denies a 0 that stands alone, on a side that is never sure otherwise. A convention."""
SIDES = ("sampler", "trainer")
OF_FILLERS = ("filler_values", "unscored_tokens")
"""Codes of the causes that name fillers."""


@once
def fillers_of(evidence: Evidence) -> tuple[tuple[str, float, Booleans], ...]:
    """(side, constant, tokens) of each constant that stands where log-probs are missing. side: one of SIDES."""
    return tuple(_found_fillers(evidence))


def _found_fillers(evidence: Evidence) -> Iterator[tuple[str, float, Booleans]]:
    """The same, one after the other.

    An honest value repeats where the same token follows the same prefix. There the other side repeats, too. A number that no
    sampler can draw and that the trainer denies is a filler if it stands alone, too.
    """
    for side, own, other in (
        (SIDES[0], evidence.earlier, evidence.later),
        (SIDES[1], evidence.later, evidence.earlier),
    ):
        if _is_lone_zero(own, other):
            yield side, 0.0, own == 0
        values, counts = np.unique(own, return_counts=True)
        are_lone = ((values < UNDRAWN) & (counts < RUN)).sum() <= MOST_LONE
        often = np.argsort(-counts, kind="stable")[:20]
        for value in values[often]:
            same = own == value
            is_lone = side == SIDES[0] and value < UNDRAWN and (are_lone or same.sum() >= RUN)
            if is_lone and (other[same] - value > NEVER).all():
                yield side, float(value), same
                continue
            if same.sum() < RUN:
                continue
            apart = same & (np.abs(other - value) > APART)
            tied = float(np.exp(min(-value, 5.0)))
            if 1 < tied < MOST_TIED and abs(tied - round(tied)) < 1e-4:
                continue  # so many equal logits of 16 bits share all the probability
            if apart.sum() < max(RUN, 0.5 * same.sum() if value else 0) or (~same).sum() == 0:
                continue
            if value > IMPOSSIBLE:  # no token has such a log-prob, wherever it stands
                yield side, float(value), same
                continue
            if _is_denied(evidence, value, (own, other), same, apart) and _is_scattered(evidence, apart):
                yield side, float(value), apart if value == 0 else same


def _is_lone_zero(own: Floats, other: Floats) -> bool:
    """True if fewer than RUN tokens have log-prob 0, and by all its other numbers this side is sure of no token.

    A policy that comes within float32 of certainty comes near it at other tokens.
    """
    zero = own == 0
    return bool(0 < zero.sum() < RUN and own[~zero].max(initial=-np.inf) < -NEAR and other[zero].max() < -SURE)


def _is_denied(evidence: Evidence, value: float, sides: tuple[Floats, Floats], same: Booleans, apart: Booleans) -> bool:
    """True if the other side denies the constant as it denies no honest value.

    sides: the side with the constant, and the other one. same: the tokens with it. apart: those that the other side denies.
    """
    own, other = sides
    beside = ~same & np.isin(evidence.row, evidence.row[apart])
    others = np.median(np.abs(evidence.log_ratio[beside])) if beside.any() else 0.0
    # A certain token has log-prob 0 honestly; a filler of 0 stands for tokens of any probability.
    far = float(np.median(np.abs(other[apart] - value)))
    # Ties of coarse logits repeat a value honestly, most at a low temperature. Then the other side is off to both sides,
    # as far as it is at other uncertain tokens, and the value is one that the other side expects there.
    loose = ~same & (other < -FILLED)
    noise = float(np.median(np.abs(evidence.log_ratio[loose]))) if loose.sum() >= RUN else 0.0
    below = float((other[apart] < value).mean())
    honest = min(below, 1 - below) > HONEST and far < FAR * noise
    # A side that is sure where the other is not has many values near its 0; where log-probs are missing it has none.
    near = (np.abs(own - value) < NEAR) & (own != value) & (np.abs(other - value) > APART)
    honest |= bool(near.sum() > BESIDE * apart.sum())
    varied = len(np.unique(other[apart])) >= max(RUN, 0.5 * apart.sum()) and (np.std(other[apart]) > 0.1 or far > NEVER)
    return bool(varied and not honest and far > max(FAR * others, FILLED))


def _is_scattered(evidence: Evidence, tokens: Booleans) -> bool:
    """True if the tokens are not one and the same token after one and the same prefix, which has one log-prob honestly."""
    if evidence.has("token") and len(np.unique(evidence.facts["token"][tokens])) > 1:
        return True
    return len(np.unique(evidence.position[tokens])) >= min(RUN, 0.3 * float(tokens.sum()) + 1)


def _in_spans(evidence: Evidence, bad: Booleans) -> float:
    """Share of the bad tokens that lie in spans of RUN and more, one after the other in a sequence."""
    if not bad.any():
        return 0.0
    breaks = np.concatenate(
        ([True], (np.diff(evidence.row) != 0) | (np.diff(evidence.position) != 1) | (np.diff(bad) != 0))
    )
    span = np.cumsum(breaks) - 1
    lengths = np.bincount(span)
    return float((lengths[span][bad] >= RUN).mean())


def _without_fillers(evidence: Evidence, spans: bool) -> Result:
    fillers = fillers_of(evidence)
    where = "spans of equal values stand" if spans else "constant stands"
    none = Result(
        False, f"no {where} in place of log-probs", f"{RUN} equal values that the other side contradicts would show"
    )
    if not fillers:
        return none
    bad = np.logical_or.reduce([tokens for _, _, tokens in fillers])
    is_floor = all(_is_floor(evidence, *filler) for filler in fillers)
    if (not is_floor and _in_spans(evidence, bad) >= 0.5) != spans:
        return none
    share = share_explained(evidence, _as_others(evidence, bad, fillers))
    if share.share <= 0 and share.after > UNLIKE and evidence.mean(bad) < SCARCE:
        return none
    read = " that were read" if evidence.sampled else ""
    named = ", ".join(f"{value:g} ({side}, {int(tokens.sum())} tokens{read})" for side, value, tokens in fillers)
    # A certain token has log-prob 0 honestly, so that only those count which the other side contradicts.
    least = "at least " if any(value == 0 for _, value, _ in fillers) else ""
    effect = f"{least}{evidence.share(bad)} of the tokens have a constant in place of a log-prob: {named}"
    found = marked_of(evidence, bad)
    floor = "a floor: none of its numbers is lower" if is_floor else ""
    at = "".join(f", {place}" for place in (floor, *places(found), since_read(evidence, found)) if place)
    return Result(
        True,
        f"{effect}{_at_an_end(evidence, bad)}",
        "",
        share,
        evidence.kept(~bad),
        {
            "values": ", ".join(f"{value:g}" for _, value, _ in fillers),
            "tokens": int(bad.sum()),
            "read": read,
            "side": " and of the ".join(dict.fromkeys(side for side, _, _ in fillers)),
            "where": at,
        },
        alike=("filler_values",) if spans else (),
        doubts=() if bad.sum() >= RUN else (f"fewer than {RUN} such numbers are no repetition",),
    )


def _as_others(evidence: Evidence, bad: Booleans, fillers: Sequence[tuple[str, float, Booleans]]) -> Floats:
    """Distance of each token if those with a filler were like the others of the probability that the honest side gives them."""
    honest = evidence.later.copy()
    for side, _, tokens in fillers:
        if side == SIDES[1]:
            honest[tokens] = evidence.earlier[tokens]
    earlier, later = (np.where(bad, honest, own) for own in (evidence.earlier, evidence.later))
    usual = expected_from(replace(evidence, earlier=earlier, later=later), ~bad)
    return np.where(bad, usual, evidence.distance)


def _is_floor(evidence: Evidence, side: str, value: float, tokens: Booleans) -> bool:
    """True if the constant is the least number of its side, and stands where the other side has lower ones: they were cut off."""
    own, other = (evidence.earlier, evidence.later) if side == SIDES[0] else (evidence.later, evidence.earlier)
    return bool(value == own.min() and (other[tokens] < value).mean() > AT_AN_END)


def _at_an_end(evidence: Evidence, bad: Booleans) -> str:
    """The end of the responses at which nearly all bad tokens stand, in words; empty if they stand elsewhere, too."""
    ends = {"first": evidence.position == 0}
    if evidence.has("length"):
        ends["last"] = evidence.position == evidence.facts["length"] - 1
    named = (name for name, at in ends.items() if evidence.mean(at) < 0.5 and at[bad].mean() > AT_AN_END)
    return next((f"; they are the {name} tokens of responses, as if the mask were one token off" for name in named), "")


def filler_values(evidence: Evidence) -> Result:
    """Single tokens with a constant instead of a log-prob."""
    return _without_fillers(evidence, spans=False)


def unscored_tokens(evidence: Evidence) -> Result:
    """Spans of tokens with a constant instead of a log-prob: text of tools or of the environment inside the mask."""
    return _without_fillers(evidence, spans=True)


def stored_precision(evidence: Evidence) -> Result:
    """Log-probs rounded when they were stored or sent. A uniform error of width w adds w^2 / 24 to the mean K3."""
    both = [(side, grid_of(own), own) for side, own in zip(SIDES, (evidence.earlier, evidence.later), strict=True)]
    coarse = [(side, grid.name, widths(grid, own)) for side, grid, own in both if grid is not None]
    if not coarse:
        return Result(
            False, "both sides have all digits of float32", "values on a grid of 5 decimals or coarser would show"
        )
    rounding = np.sum([width**2 / 24 for _, _, width in coarse], axis=0)
    explained = min(1.0, evidence.mean(rounding) / max(evidence.mean(evidence.distance), 1e-300))
    share = share_explained(evidence, evidence.distance * (1 - explained))
    named = " and ".join(f"{name} ({side})" for side, name, _ in coarse)
    effect = f"the log-probs lie on the grid of {named}; this rounding alone gives K3 {rounding.mean():.2g} nats/token"
    return Result(True, effect, "", share, evidence, {"grid": coarse[0][1], "side": coarse[0][0]})


CAUSES = (
    Cause(
        "filler_values",
        "a constant stands in place of missing log-probs",
        "changed numbers",
        filler_values,
        "without the tokens that have the constant",
        "The engine or the trainer had no log-prob for these tokens. Every weight made of the constant is wrong.",
        "Find out why log-probs are missing (stop tokens, streaming, incomplete UTF-8). Record NaN for a missing one, not "
        "a number.",
        "Count the engine's log-probs per response and compare the count with the number of sampled tokens.",
        estimate="{values} at {tokens} tokens{read} of the {side}{where}",
        comes_first=True,
        mistaken_for={
            "unscored_tokens": "Fillers in spans at turn boundaries are unscored tokens; single ones are missing values."
        },
    ),
    Cause(
        "unscored_tokens",
        "tokens that nobody sampled are inside the mask",
        "changed numbers",
        unscored_tokens,
        "without the spans that nobody sampled",
        "Text of tools or of the environment is trained as if the policy had sampled it.",
        "Set the mask to 0 at tool and environment tokens, in the loss and in the record.",
        "Read the text of the spans on Samples, tab Tokens: it is text of a tool or of the prompt.",
        estimate="{values} at {tokens} tokens of the {side}{where}",
        comes_first=True,
        mistaken_for={"filler_values": "Single fillers are missing log-probs."},
    ),
    Cause(
        "stored_precision",
        "log-probs were stored with few digits",
        "changed numbers",
        stored_precision,
        "without the rounding of the stored numbers",
        "The rounding adds noise to every weight. The policies themselves are closer than the record shows.",
        "Keep log-probs in float32 from the engine's response to the loss.",
        "Print one log-prob at each hand-over and find the first place where its digits are gone.",
        estimate="{grid} on the side of the {side}",
        mistaken_for={
            "different_weights": "Rounded logits give errors that vanish near probability 1; a grid of stored values does not."
        },
    ),
)
