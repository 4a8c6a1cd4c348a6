"""Faults of the last tokens: the end token, or those before the length limit."""

from dataclasses import replace

import numpy as np

from ..cause import Cause, Result, absent, undecided
from ..evidence import Evidence
from ..subset_faults import subset_fault
from .edges import best_cut, unless_a_slope

LEAST_LIMIT = 12
"""The least length limit that has last tokens, and others before them."""
LEAST_ROWS = 8
"""The least responses at the limit whose last tokens are compared. A convention."""


def end_token(evidence: Evidence) -> Result:
    """The last token of the responses alone has the fault."""
    last = evidence.facts["length"] - 1 == evidence.position
    return subset_fault(evidence, last, "the last tokens of the responses", 2.0)


def near_limit(evidence: Evidence) -> Result:
    """The last tokens of the responses that reach the length limit have the fault."""
    length = evidence.facts["length"]
    limit = int(length.max(initial=0))
    reached = length == limit
    rows = len(np.unique(evidence.row[reached]))
    if limit < LEAST_LIMIT:
        return undecided(f"the longest response has {limit} tokens, and {LEAST_LIMIT} are needed")
    if rows < LEAST_ROWS:
        return undecided(f"too few responses reach the longest length: {rows}, and {LEAST_ROWS} are needed")
    part = evidence.kept(reached)
    cut = min(best_cut(part, limit - 1 - part.position), limit // 2)
    if not cut:
        return absent(f"no last tokens of the {rows} responses with {limit} tokens have a larger gap than the rest")
    if cut == 1:
        return absent(
            f"the last token alone of the {rows} responses with {limit} tokens has a larger gap than the rest"
        )
    bad = reached & (limit - 1 - evidence.position < cut)
    words = f"the last {cut} tokens of responses with {limit} tokens"
    result = subset_fault(evidence, bad, words, 3.0, {"tokens": cut, "limit": limit})
    # If most responses are as long, the end of the limit is a position, too.
    result = replace(result, alike=("position_onset",) if evidence.mean(reached) > 0.5 else ())
    return unless_a_slope(result, part, np.full(len(part), limit - cut)) if result.holds else result


CAUSES = (
    Cause(
        "end_token",
        "the last token alone differs",
        "place",
        end_token,
        "without the last tokens",
        "The two sides treat the end of a response differently: a stop token that one side does not score, or a synthetic EOS.",
        "Score the stop token that the engine sampled, and leave out the one it did not sample.",
        "Read the last three tokens of some responses on Samples, tab Tokens.",
        needs=("length",),
        mistaken_for={"biased_ids": "A bias on the id of EOS shows at this id wherever it stands."},
    ),
    Cause(
        "near_limit",
        "the last tokens before the length limit differ",
        "place",
        near_limit,
        "without the tokens near the limit",
        "Decoding near the length limit differs: a block table, speculative decoding or padding at the end.",
        "Raise the engine's maximum length by some tokens over the sampling limit, or turn off speculative decoding.",
        "Repeat one step with a larger max_model_len.",
        needs=("length",),
        estimate="last {tokens} tokens before {limit}",
        mistaken_for={"end_token": "A fault of the end token shows in responses of all lengths."},
    ),
)
