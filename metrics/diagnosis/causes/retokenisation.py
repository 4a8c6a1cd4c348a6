"""Responses that were decoded and encoded again: other ids from a point on, or the same ids after other ones."""

from dataclasses import replace

import numpy as np

from ratioscope.arrays import Booleans

from ..cause import Cause, Parameter, Result, absent, undecided
from ..evidence import Evidence
from ..fits import correlation
from ..subset_faults import FEW_TOKENS, subset_fault
from ..wake import wake
from .change_points import change_points, changed
from .row_places import NEEDS, chunk_boundary

UNRELATED, RELATED = 0.5, 0.8
"""The log-probs of the two sides correlate by less, or more, than this if they are of other tokens, or of the same ones."""
BESIDE = 3
"""So many tokens after one without a counterpart are still read after other ids."""


def _correlation(evidence: Evidence, tokens: Booleans) -> float:
    return correlation(evidence.earlier[tokens], evidence.later[tokens], undefined=1.0)


def _other_ids(evidence: Evidence) -> Result:
    """From a point of a sequence on, maybe its first token, the two lists are of different tokens."""
    changes = change_points(evidence)
    bad = changes.later | changes.whole
    if min(bad.sum(), (~bad).sum()) < FEW_TOKENS or not changes.later.any():
        return absent("no sequence has a point from which on the two lists are of other tokens")
    inside, outside = _correlation(evidence, changes.later), _correlation(evidence, ~bad)
    share = evidence.mean_of_rows(np.bincount(evidence.row_codes[bad], minlength=evidence.rows) > 0)
    words = f"the tokens after a point, in {share:.0%} of the sequences,"
    parameters: dict[str, Parameter] = {
        "sequences": f"{share:.0%}",
        "position": int(np.median(changes.up)),
        "spread": 0,
    }
    result = subset_fault(evidence, bad, words, 2.0, parameters, by_size=True)
    if not result.holds or inside > UNRELATED or outside < RELATED:
        return absent(
            f"after change points the log-probs of the two sides correlate at {inside:.2f}, before at {outside:.2f}"
        )
    return result


def _other_context(evidence: Evidence) -> Result:
    """The tokens right after those without a counterpart are read after other ids than they were sampled after."""
    step = np.diff(evidence.position)
    hole = (np.diff(evidence.row) == 0) & (step > 1)
    missing = int((step[hole] - 1).sum())
    if not missing or missing > evidence.without_number:
        return absent("no token stands after one without a number")
    ends = np.flatnonzero(hole) + 1
    place = np.arange(len(evidence))
    last = ends[np.maximum(np.searchsorted(ends, place, "right") - 1, 0)]
    bad = (place >= last) & (place < last + BESIDE) & (evidence.row == evidence.row[last])
    if min(bad.sum(), (~bad).sum()) < FEW_TOKENS:
        return undecided(f"{len(ends)} tokens stand after one without a number, which is too few")
    share = evidence.mean_of_rows(np.bincount(evidence.row_codes[bad], minlength=evidence.rows) > 0)
    words = f"the {BESIDE} tokens after each that has no counterpart, in {share:.0%} of the sequences,"
    parameters: dict[str, Parameter] = {
        "sequences": f"{share:.0%}",
        "position": int(np.median(evidence.position[ends])),
        "spread": 0,
    }
    return subset_fault(evidence, bad, words, 2.0, parameters, by_size=True)


def _single_ids(evidence: Evidence) -> Result:
    """Single tokens that the trainer hardly expects, with clean tokens before them and bad ones right after them."""
    found = wake(evidence)
    if found is None:
        return absent("no token that the trainer hardly expects has a larger gap right after it than right before it")
    if evidence.has(*NEEDS) and chunk_boundary(evidence).holds:
        return absent("such tokens stand at places that all responses of a prompt share")
    share = evidence.mean_of_rows(found.first >= 0)
    parameters: dict[str, Parameter] = {
        "sequences": f"{share:.0%}",
        "position": int(np.median(evidence.position[found.first[found.first >= 0]])),
        "spread": 0,
    }
    words = f"the tokens from one that the trainer hardly expects, in {share:.0%} of the sequences,"
    result = subset_fault(evidence, found.later, words, 2.0, parameters, by_size=True)
    return replace(result, doubts=("the ids are not on record as they were sampled",))


def retokenised(evidence: Evidence) -> Result:
    """Sequences are clean up to a point of their own and bad after it, or bad after tokens that have no counterpart."""
    results = (_other_ids(evidence), _other_context(evidence), changed(evidence, upward=True), _single_ids(evidence))
    return max(results, key=lambda result: (result.holds, result.share.share if result.share else -1.0))


CAUSES = (
    Cause(
        "retokenised",
        "responses were decoded and encoded again",
        "place",
        retokenised,
        "with the tokens before the change point of each sequence only",
        "From a point on the trainer scores other ids, or the same ids in another context, than the engine sampled.",
        "Keep the sampled ids through all turns. Never decode and encode a response before training.",
        "Compare the ids that the engine returned with those in the batch, up to the change point.",
        estimate="in {sequences} of the sequences, after about token {position}",
        course="constant",
        mistaken_for={
            "switch_inside": "A switch of weights makes the earlier part bad, not the later one.",
            "position_onset": "A fault of position encodings begins at one position in all sequences.",
        },
    ),
)
