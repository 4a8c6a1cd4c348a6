"""Faults of the first tokens: another prompt, or old keys and values of the prompt."""

from dataclasses import replace

import numpy as np

from ..cause import Cause, Result, absent, undecided
from ..evidence import Evidence, once
from ..fading import fades, fading, is_less_sure
from ..subset_faults import FEW_TOKENS, mean_by, ratio_of, subset_fault
from .edges import cross_cut
from .numerics import all_older

LARGE_HEAD = 0.3
"""Mean |x| of the first token in nats from which on another prompt is likelier than old keys and values."""
AS_GOOD = np.log(1.5)
"""Log ratio of the first tokens to the others below which they are as good as these."""
VERY_FIRST = 3
"""Tokens that the prompt moves most: another prompt, or old keys of it, show there if anywhere."""
FAR = 2 / 3
"""Share of the places whose tokens are compared with the last ones if the gap fades over the whole response."""
GONE = 0.1
"""The level of the last third of the places, relative to the others, above which a gap has not faded away. A convention."""
NONE, SOME = 2.0, 0.2
"""Sequences whose first tokens are not so many times as large as the far ones lack the gap, and the share of them that is a
doubt: what both sides read alike in a fifth of the sequences is not another prompt of all. A convention."""
ENOUGH = 0.3
"""Share from which on few first tokens stand for the fault, and not all but the last ones."""
FROM_START = "it is there from the first step on, where old keys and values are seldom"
LEAST_FADED = 1.3
"""The least ratio of the first tokens to the last ones."""
FADED_SHARE = 2.0
"""Standard errors of the share of the first tokens; the decay itself is tested before."""


@once
def _head(evidence: Evidence) -> Result:
    bad, cut = cross_cut(evidence, evidence.position)
    if not cut:
        return absent("no number of first tokens has a larger gap than the rest")
    result = subset_fault(evidence, bad, f"the first {cut} tokens of the responses", 2.0, {"tokens": cut})
    outside = evidence.kept((evidence.position < VERY_FIRST) | (evidence.position >= cut))
    first = outside.position < VERY_FIRST
    if (
        cut <= VERY_FIRST
        or min(first.sum(), (~first).sum()) < FEW_TOKENS
        or ratio_of(outside, first)[0] > np.exp(AS_GOOD)
    ):
        return result
    words = f"but the very first {VERY_FIRST} are as good as the last ones, and they depend on the prompt most"
    return replace(result, holds=False, effect=f"{result.effect}, {words}")


def _first_size(evidence: Evidence) -> float:
    first = evidence.position == 0
    return float(np.abs(evidence.log_ratio[first]).mean()) if first.any() else 0.0


def _grows(evidence: Evidence, cut: int) -> bool | None:
    """True if the first tokens are as good as the others at the first step and worse later; None if this cannot be told."""
    if not evidence.has("step") or len(evidence.step_codes[0]) < 2:
        return None
    first = evidence.step_codes[1] == 0
    parts = [evidence.kept(own) for own in (first, ~first)]
    if min(min((part.position < cut).sum(), (part.position >= cut).sum()) for part in parts) < FEW_TOKENS:
        return None
    (ratio, error), (later, later_error) = (ratio_of(part, part.position < cut) for part in parts)
    logs = np.log(np.maximum([ratio, later], 1e-300))
    if logs[0] > max(2 * error, AS_GOOD):
        return False
    return True if logs[1] - logs[0] > 2 * np.hypot(error, later_error) or 2 * error < AS_GOOD else None


def _all_but_last(evidence: Evidence) -> Result:
    """The tokens of the first two thirds of the places, if the gap fades over the whole response."""
    slope, error = fading(evidence)
    if not fades(evidence):
        return absent(f"sizes change by {slope:+.2f} ± {error:.2f} per doubling of the place, which is no decay")
    cut = int(np.quantile(evidence.position, FAR)) + 1
    words = f"sizes change by {slope:+.2f} ± {error:.2f} per doubling of the place: the first {cut} tokens"
    result = subset_fault(evidence, evidence.position < cut, words, LEAST_FADED, {"tokens": cut})
    return replace(result, holds=result.share is not None and result.share.z > FADED_SHARE)


def _explains(result: Result) -> float:
    return result.share.share if result.share else 0.0


def _comes_later(evidence: Evidence, result: Result) -> bool:
    """True if the fault of the first tokens is absent at the first step; without steps, whether it is small."""
    grows = _grows(evidence, int(result.parameters["tokens"]))
    return grows if grows is not None else _first_size(evidence) <= LARGE_HEAD


def _is_one_sided(evidence: Evidence, result: Result) -> bool:
    """True if the trainer expects all tokens less than the sampler, or the first ones."""
    first = evidence.position < int(result.parameters["tokens"])
    return is_less_sure(evidence) or is_less_sure(evidence.kept(first))


def _shown_by_age(evidence: Evidence, result: Result, old_keys: bool) -> bool:
    """True if all tokens are of older weights by the record, and the first tokens show no more than these do."""
    return all_older(evidence) and (old_keys or result.share is None or result.share.share < 0.5)


def _doubts(evidence: Evidence, result: Result) -> tuple[str, ...]:
    """Doubts if the gap is still there far from the prompt, or some sequences lack it: its place alone is weak evidence."""
    far = evidence.position >= np.quantile(evidence.position, FAR)
    level = 1 / max(ratio_of(evidence, ~far)[0], 1e-9) if far.any() and not far.all() else 1.0
    head = evidence.position < int(result.parameters["tokens"])
    sizes = mean_by(evidence.row_codes[head], np.abs(evidence.log_ratio[head]), evidence.rows)[0]
    without = evidence.mean_of_rows(sizes < NONE * float(np.abs(evidence.log_ratio[far]).mean())) if far.any() else 0.0
    found = {
        f"far from the prompt the gap is still {level:.0%} of its level before": level > GONE,
        f"{without:.0%} of the sequences lack it at their first tokens": without > SOME,
    }
    return tuple(words for words, holds in found.items() if holds)


def different_prompt(evidence: Evidence) -> Result:
    """The gap is largest at the first tokens and fades, from the first step on, and the trainer expects the tokens less."""
    head, whole = _head(evidence), _all_but_last(evidence)
    result = head if head.holds and (not whole.holds or _explains(head) > ENOUGH) else whole if whole.holds else head
    if not result.holds:
        return result
    if _shown_by_age(evidence, result, old_keys=False):
        return undecided("every token is of older weights, which the first tokens show most, too")
    if not _is_one_sided(evidence, result):
        effect = (
            f"{result.effect}, but the trainer does not expect the tokens less than the sampler, as with another prompt"
        )
        return replace(result, holds=False, effect=effect)
    return replace(result, holds=not _comes_later(evidence, result), doubts=_doubts(evidence, result))


def stale_prefix(evidence: Evidence) -> Result:
    """The gap is largest at the first token and decays: keys and values of older weights.

    Another prompt is there from the first step on, and the trainer expects the tokens less: the gap lacks one of these.
    """
    result = _head(evidence)
    if not result.holds:
        return result
    if _shown_by_age(evidence, result, old_keys=True):
        return undecided("every token is of older weights, which the first tokens show most, too")
    later = _comes_later(evidence, result)
    holds = later or _explains(result) > ENOUGH and not _is_one_sided(evidence, result)
    alike = ("switch_inside",) if later else ("switch_inside", "different_prompt")
    doubts = _doubts(evidence, result) if later else (*_doubts(evidence, result), FROM_START)
    return replace(result, holds=holds, doubts=doubts, alike=alike)


CAUSES = (
    Cause(
        "different_prompt",
        "the two sides scored different prompts",
        "place",
        different_prompt,
        "without the first tokens",
        "The first tokens of a response depend on the prompt most. A template, a system prompt, a BOS or a truncated "
        "prompt differs; or one side reads the same ids at other positions, or with another mask.",
        "Render the prompt once and hand its ids to both sides: same chat template, generation prompt, system prompt, BOS "
        "and truncation.",
        "Compare the prompt ids of one request with those of the training batch.",
        partial="another prompt changes every token, and the undoing reaches only the first ones",
        estimate="first {tokens} tokens",
        alike=("stale_prefix", "switch_inside"),
        course="constant",
        mistaken_for={
            "stale_prefix": "Old keys and values are absent at the first step and grow with the updates; another prompt is "
            "there from the first step on."
        },
    ),
    Cause(
        "stale_prefix",
        "keys and values of older weights were reused",
        "place",
        stale_prefix,
        "without the first tokens",
        "A prefix cache was kept over a weight update. The prompt's keys and values are of older weights, so the first "
        "tokens suffer most.",
        "Reset the prefix cache at each weight sync, or salt it with the version.",
        "Repeat one step with the prefix cache off. Or record cached_tokens: prompts without cached tokens have no such gap.",
        estimate="first {tokens} tokens",
        alike=("different_prompt", "switch_inside"),
        mistaken_for={
            "different_prompt": "Another prompt gives a large gap at the first token, from the first step on."
        },
    ),
)
