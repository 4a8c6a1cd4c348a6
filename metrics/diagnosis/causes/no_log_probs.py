"""Tokens of which no log-ratio is known: log-probs that are no finite numbers, and constants in place of all log-probs."""

import numpy as np

from ratioscope.arrays import Booleans

from ...grading.signals import SIGNALS
from ..cause import Cause, Result, absent
from ..evidence import Evidence
from ..marked import counted, level, marked_of, places, same_span, share_words, since, since_read
from ..non_finite import NonFinite
from ..subset_faults import CLEAR, FEW_TOKENS

LEAST = next(signal.watch for signal in SIGNALS if signal.name == "non_finite") or 0.001
"""Share of such tokens at one step from which on the cause is named: that from which on the verdict is watch."""

SUSPECT = 2.0
"""Tokens are suspect if their gap is so many times that of the others. A convention."""

UNSCORED = (
    "; NaN at the same places of every sequence is of tokens that were not scored: pass a mask= that is false there, "
    "if the policy did not sample them"
)


def non_finite(evidence: Evidence) -> Result:
    """Log-probs that are NaN or infinite, at more tokens than the verdict allows, or a single -inf on the later side."""
    own, shown = (
        evidence.non_finite,
        f"{LEAST:.1%} of the tokens of one step, or one −inf on the later side, would show",
    )
    if own is None:
        return Result(False, "every token has two finite log-probs", shown)
    steps = own.over_steps
    count, hit = steps.without + steps.impossible, steps.without + steps.impossible > 0
    words = share_words(int(count.sum()), int(steps.tokens[hit].sum()))
    if own.share < LEAST and not steps.impossible.any():
        return Result(False, f"{words} of the steps that have any lack a finite log-prob", shown)
    span = same_span(own.found) if own.kinds and all(kind.startswith("NaN") for kind in own.kinds) else ""
    kinds = _kinds(own)
    where = ", ".join(
        (words, *((f"not scored: {span}",) if span else places(own.found)), *filter(None, [since(steps.steps, count)]))
    )
    infinite = "; the KL is infinite" if steps.impossible.any() else ""
    return Result(
        True,
        f"{_counts(own)}{_rest(own)}{UNSCORED if span else ''}",
        shown,
        undone=evidence,
        parameters={"kinds": kinds, "where": where, "infinite": infinite},
    )


def _kinds(own: NonFinite) -> str:
    """The values in place of the log-probs, the most frequent first; without rows it is known of the later side alone."""
    kinds = sorted(own.kinds, key=lambda kind: -own.kinds[kind])
    sides = [kind.partition(" on ")[2] for kind in kinds]
    kinds = [
        kind.removesuffix(f" on {side}" if side == then else "")
        for kind, side, then in zip(kinds, sides, [*sides[1:], ""], strict=True)
    ]
    steps = own.over_steps
    seen = [
        *(["−inf on the later side"] if steps.impossible.any() else []),
        *(["NaN or ±inf"] if steps.without.any() else []),
    ]
    *others, last = kinds or seen
    return f"{', '.join(others)} and {last}" if others else last


def _counts(own: NonFinite) -> str:
    if not own.kinds:
        return "no row with such a token was read, so its place is not known"
    each = ", ".join(f"{kind} at {counted(count, 'token')}" for kind, count in own.kinds.items())
    return f"at the steps that were read: {each}, in {own.found.sequences}"


def _rest(own: NonFinite) -> str:
    """The gap of the other tokens of the sequences with such a token, against that of the other sequences, in words."""
    if not own.kinds:
        return ""
    tokens, hit = own.found.tokens - own.found.count, own.found.hit
    inside, outside = (level(tokens, own.distance, part) for part in (hit, ~hit))
    if np.isnan(inside[0]):
        return "; these sequences have no other token"
    those = f"; the other tokens of these sequences have K3 {inside[0]:.3g} nats/token"
    if np.isnan(outside[0]):
        return f"{those.replace(' of these sequences', '')}, and no sequence without such a token is there to compare"
    is_odd = is_suspect(inside, outside)
    verdict = "these tokens are suspect, too" if is_odd else "the record gives no reason to doubt these"
    return f"{those}, and those of the other sequences {outside[0]:.3g}: {verdict}"


def is_suspect(own: tuple[float, float], others: tuple[float, float]) -> bool:
    """True if a level is SUSPECT times another one, and above it beyond chance. Both: as `level` returns them."""
    return own[0] > SUSPECT * others[0] and own[0] - others[0] > CLEAR * float(np.hypot(own[1], others[1]))


def placeholders(evidence: Evidence) -> Result:
    """One number in place of every log-prob of a side, in all of the record or in whole steps."""
    sides = {"the sampler": evidence.earlier, "the trainer": evidence.later}
    bad = {side: _constant(evidence, values) for side, values in sides.items()}
    named = [side for side, tokens in bad.items() if tokens.any()]
    whole = np.logical_or.reduce(list(bad.values()))
    if not named:
        return absent("no step has one and the same number in place of every log-prob of a side")
    values = " and ".join(
        dict.fromkeys(f"{value + 0.0:g}" for side in named for value in np.unique(sides[side][bad[side]])[:3])
    )
    steps = "" if whole.all() else f", {since_read(evidence, marked_of(evidence, whole))}"
    return Result(
        True,
        f"every log-prob of {' and of '.join(named)} is {values}{steps}: {share_words(int(whole.sum()), len(evidence))}",
        undone=None if whole.all() else evidence.kept(~whole),
        parameters={"values": values, "sides": " and of ".join(named), "steps": steps},
    )


def _constant(evidence: Evidence, values: np.ndarray) -> Booleans:
    """The tokens of the steps in which all values are one number."""
    step = evidence.facts.get("step", np.zeros(len(values), np.int64))
    _, index = np.unique(step, return_inverse=True)
    size = int(index.max(initial=-1)) + 1
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, index, values)
    np.maximum.at(high, index, values)
    is_constant = (low == high) & (np.bincount(index, minlength=size) >= FEW_TOKENS)
    return np.asarray(is_constant[index], np.bool_)


CAUSES = (
    Cause(
        "non_finite",
        "log-probs are missing or infinite",
        "nothing",
        non_finite,
        "",
        "No log-ratio of these tokens is known, so their share of the gap cannot be computed by an undoing. They are outside "
        "every other number here. A weight made of one of them is NaN, 0 or infinite, and a loss with one NaN is NaN.",
        "Look for log-probs that the engine's response lacks, for an overflow of float16, and for a mask that covers tokens "
        "that nobody scored. −inf at the trainer: the sampled token lies outside the trainer's own top-k, top-p or grammar mask. "
        "Never put a number in their place.",
        "Score one of these sequences again in float32, and print both log-probs from the first such position on.",
        estimate="{kinds} at {where}{infinite}",
        comes_first=True,
        follows_from=("retokenised",),
        mistaken_for={"filler_values": "A side that replaces NaN by a number such as 0.0 hides the same fault."},
    ),
    Cause(
        "placeholders",
        "one number stands in place of every log-prob",
        "nothing",
        placeholders,
        "",
        "Nothing is known of the gap at these tokens: a side did not return log-probs, and a constant was recorded.",
        "Ask the engine for log-probs (vLLM: logprobs=0 or 1; SGLang: return_logprob=True), and record those of the trainer's "
        "forward pass. Record NaN for a log-prob that is missing, not a number.",
        "Print the first log-probs of one response on both sides. Greedy sampling at temperature 0 may report 0 for each token.",
        estimate="{values} on the side of {sides}{steps}",
        comes_first=True,
        mistaken_for={"filler_values": "A filler stands at some tokens; this number stands at all of them."},
    ),
)
