"""Faults of alignment: log-probs of other tokens of the sequence, or of another sequence."""

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from ..cause import Cause, Result, undecided
from ..evidence import Evidence, distances
from ..share import Share, share_explained

SHIFTS = (-3, -2, -1, 1, 2, 3)
BOUND = 1.0
"""A |x| above this counts as this when lists are compared, so that one token cannot decide."""
BETTER = 4.0
"""Another alignment is better if its mean |x| is less than a quarter of the own one."""
BY_CHANCE, UNRELATED = 0.15, 1.0
"""A share up to which another alignment may fit by chance, if K3 in nats/token is still above this when it is undone: then the
two lists have nothing to do with each other. Conventions."""
LEAST_OVERLAP = 4
"""Tokens that two lists need in common to be compared."""
WIDTH, ROWS = 24, 256
"""Sequences are compared by their first WIDTH tokens; so many sequences of a step with one another."""


def _partners(evidence: Evidence, shift: int) -> tuple[Booleans, Integers]:
    """(whether the token `shift` places on is there, its index)."""
    index = np.arange(len(evidence)) + shift
    inside = np.clip(index, 0, len(evidence) - 1)
    same = (evidence.row[inside] == evidence.row) & (evidence.position[inside] == evidence.position + shift)
    return (index == inside) & same, inside


def _best_shifts(evidence: Evidence, row: Integers) -> Integers:
    """The shift of the sampler's list that fits each sequence much better than none; 0 if there is none."""
    rows = int(row.max()) + 1
    own = np.minimum(np.abs(evidence.log_ratio), BOUND)
    best, gains = np.zeros(rows, np.int64), np.zeros(rows)
    for shift in SHIFTS:
        there, partner = _partners(evidence, shift)
        moved = np.minimum(np.abs(evidence.later - evidence.earlier[partner]), BOUND)
        count = np.bincount(row, there, minlength=rows)
        before = np.bincount(row, np.where(there, own, 0), minlength=rows)
        after = np.bincount(row, np.where(there, moved, 0), minlength=rows)
        usual = float(np.median(before / np.maximum(count, 1)))
        # Under a second fault no alignment is clean; then the moved list must be as good as an ordinary sequence is.
        clear = (before > BETTER * after) | ((before > 2 * after) & (after < 1.5 * usual * count))
        gain = np.where((count >= LEAST_OVERLAP) & clear & (before - after > 1.0), before - after, 0)
        best, gains = np.where(gain > gains, shift, best), np.maximum(gain, gains)
    return best


def shifted(evidence: Evidence) -> Result:
    """The sampler's list is shifted against the trainer's, in all or some of the sequences."""
    row = evidence.row_codes
    best = _best_shifts(evidence, row)
    if not best.any():
        return Result(
            False,
            "no sequence fits better when its list is shifted by 1 to 3 tokens",
            "one shifted sequence would show",
        )
    shift = int(np.bincount(best[best != 0] + 3).argmax() - 3)
    sequences = best == shift
    there, partner = _partners(evidence, shift)
    moved = sequences[row]
    realigned = evidence.with_earlier(np.where(moved & there, evidence.earlier[partner], evidence.earlier))
    undone = realigned.kept(~moved | there)
    after = np.where(moved & ~there, undone.mean(undone.distance) if len(undone) else 0.0, realigned.distance)
    # The recorded list runs ahead of its tokens if a token's own value stands before it.
    part = f"{evidence.mean_of_rows(sequences):.0%}"
    effect = f"{part} of the sequences fit when the sampler's list is moved by {-shift:+d}"
    share = share_explained(evidence, after)
    is_clear = sequences.sum() > 2 * (best == -shift).sum() and not _is_chance(share)
    return Result(
        bool(is_clear),
        effect,
        "one shifted sequence would show",
        share,
        undone,
        {"shift": -shift, "sequences": part},
    )


def _is_chance(share: Share) -> bool:
    """True if some lists may fit better in another way by chance alone, because no alignment fits most of them."""
    return share.share < BY_CHANCE and share.after > UNRELATED


def _orders(evidence: Evidence) -> tuple[Integers, ...]:
    """The places by which lists may have been swapped, each of shape (tokens,): those in the response, or among its tokens.

    Texts of tools leave other places out of each sequence, so that the n-th tokens of two sequences are of two places.
    """
    order = np.arange(len(evidence)) - evidence.starts[evidence.row_codes]
    place = evidence.position - evidence.position.min(initial=0)
    return (order,) if np.array_equal(order, place) else (place, order)


def _heads(evidence: Evidence, values: Floats, place: Integers) -> Floats:
    """The values at the first WIDTH places of each sequence, shape (rows, WIDTH), NaN where a place has none."""
    heads, inside = np.full((evidence.rows, WIDTH), np.nan), place < WIDTH
    heads[evidence.row_codes[inside], place[inside]] = values[inside]
    return heads


def _better_rows(evidence: Evidence, place: Integers) -> Integers:
    """For each sequence the sequence of its step whose sampler's list fits it much better than its own; else itself."""
    sampler, trainer = (_heads(evidence, side, place) for side in (evidence.earlier, evidence.later))
    known = np.isfinite(trainer).sum(axis=1)
    starts = evidence.starts
    step = evidence.facts["step"][starts] if evidence.has("step") else np.zeros(len(starts))
    best = np.arange(len(starts))
    for value in np.unique(step):
        rows = np.flatnonzero(step == value)[:ROWS]
        difference = np.minimum(np.abs(trainer[rows][:, None, :] - sampler[rows][None, :, :]), BOUND)
        common = np.isfinite(difference).sum(axis=2)
        cost = np.nansum(difference, axis=2) / np.maximum(common, 1)
        cost[common < np.minimum(LEAST_OVERLAP + 2, known[rows])[:, None]] = np.inf
        at, other = np.arange(len(rows)), cost.argmin(axis=1)
        own, least = cost[at, at], cost[at, other]
        long = known[rows] >= LEAST_OVERLAP + 2
        swapped = (other != at) & long & (own > BETTER * least) & (own > 0.2)
        best[rows[swapped]] = rows[other[swapped]]
    return best


def permuted_rows(evidence: Evidence) -> Result:
    """The sampler's list of a sequence belongs to another sequence of its step."""
    starts = evidence.starts
    if len(starts) < 4:
        return undecided("fewer than 4 sequences are too few to find swapped ones")
    ends = np.append(starts[1:], len(evidence))
    itself, found = np.arange(len(starts)), [(place, _better_rows(evidence, place)) for place in _orders(evidence)]
    place, best = max(found, key=lambda pair: int((pair[1] != itself).sum()))
    swapped = np.flatnonzero(best != itself)
    if len(swapped) < 2:
        return Result(False, "no sequence fits the list of another one", "two swapped sequences would show")
    earlier, known = evidence.earlier.copy(), np.ones(len(evidence), np.bool_)
    for row in swapped:
        own, other = (slice(starts[at], ends[at]) for at in (row, best[row]))
        _, to, source = np.intersect1d(place[own], place[other], True, True)
        known[own] = False
        known[starts[row] + to], earlier[starts[row] + to] = True, evidence.earlier[other][source]
    undone = evidence.with_earlier(earlier).kept(known)
    after = np.where(known, distances(evidence.later - earlier), undone.mean(undone.distance) if len(undone) else 0.0)
    part, share = f"{evidence.mean_of_rows(best != itself):.0%}", share_explained(evidence, after)
    effect = f"{part} of the sequences fit the sampler's list of another sequence of their step"
    return Result(not _is_chance(share), effect, "", share, undone, {"sequences": part})


CAUSES = (
    Cause(
        "shifted",
        "the log-prob lists are shifted against each other",
        "changed numbers",
        shifted,
        "re-aligned",
        "Each weight compares one token with its neighbour. Every importance weight is meaningless.",
        "Align the lists at their own token: position t of both sides must score token t. Look for a dropped first token, a BOS, "
        "or a list of length T-1.",
        "Print ids and log-probs of ten tokens of one sequence on both sides.",
        estimate="{shift:+d} in {sequences} of the sequences",
        mistaken_for={"permuted_rows": "No shift helps swapped sequences; only another sequence's list fits."},
    ),
    Cause(
        "permuted_rows",
        "sequences have the log-probs of other sequences",
        "changed numbers",
        permuted_rows,
        "with each sequence's own list",
        "Weights compare different responses. Every importance weight is meaningless.",
        "Carry an id with each response from the engine to the loss, and sort by it after every gather or shuffle.",
        "Compare the token ids that the engine returned with those that the trainer scored, row by row.",
        estimate="{sequences} of the sequences",
        mistaken_for={"shifted": "A shifted list fits after a move within the sequence."},
    ),
)
