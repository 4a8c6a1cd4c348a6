"""Faults of a place in the row, prompt included: boundaries of chunks, and windows that end.

The record has no place in the row, but all responses of a prompt share it: they begin after equally many tokens. So a fault of
such a place shows at one position in all responses of a prompt, and at another position in those of the next prompt.
"""

from typing import NamedTuple

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from ..cause import Cause, Parameter, Result, absent, undecided
from ..evidence import Evidence, once
from ..factors import rank_among_equals
from ..fading import FADES, fading
from ..fits import correlation, firsts, prompts
from ..share import separation
from ..subset_faults import log_sizes, mean_by, subset_fault

NEEDS = ("group", "token")
"""The facts by which responses of one prompt are known to share a place."""
REPEATS = (6.0, 0.2)
"""Places matter if the sizes at one place in two halves of a prompt's responses have these (standard errors, correlation)."""
LEAST_CELLS = 60
"""The least number of places with tokens in both halves from which the correlation is computed."""
APART = 3.0
"""Bad places have at least so many times the gap of the others."""
SHARES = (0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02)
"""Shares of bad places that are tried."""
SHORTEST = 12
"""The shortest distance between boundaries that is looked for; bad places nearer to each other are one boundary."""
LIKE_A_PROMPT = 0.3
"""A gap that fades by more log size per doubling of the place is of the prompt, which its responses share, too."""
JITTER = 2
"""Places by which the bad places of two boundaries may lie apart."""
LEAST_PAIRS, STANDS_OUT = 6, 3.0
"""The least pairs of bad places at the distance of a chunk, and their ratio to the pairs at a mean distance."""


class PlaceSizes(NamedTuple):
    """Sizes at each place (prompt, position), in two halves of the prompt's responses."""

    cell: Integers
    """Number of each token's place, shape (tokens,); places are ordered by prompt and position."""
    half: Integers
    """The half of each token, 0 or 1."""
    means: tuple[Floats, Floats]
    """Mean size of each place in each half, without the mean of the response and of the position."""
    known: tuple[Booleans, Booleans]
    """True if a half has a token at the place."""
    correlation: float
    """Between the halves, over the places that both know."""
    cells: int
    """Number of those places."""


@once
def place_sizes(evidence: Evidence) -> PlaceSizes:
    """The sizes at the places of prompts. A text that several responses share is counted once: it is one measurement."""
    prompt, row = prompts(evidence), evidence.row_codes
    of_row = prompt[evidence.starts]
    half = (rank_among_equals(of_row) % 2)[row]
    sizes = _without_mean(_without_mean(log_sizes(evidence), row), evidence.position)
    longest = int(evidence.position.max(initial=0)) + 1
    cell = np.unique(prompt * longest + evidence.position, return_inverse=True)[1].astype(np.int64)
    size = int(cell.max(initial=-1)) + 1
    means, known = [], []
    for side in (0, 1):
        own = (half == side) & firsts(evidence)
        mean, counts = mean_by(cell[own], sizes[own], size)
        means.append(mean)
        known.append(counts > 0)
    both = known[0] & known[1]
    agreement = correlation(means[0][both], means[1][both]) if both.sum() >= LEAST_CELLS else 0.0
    return PlaceSizes(cell, half, (means[0], means[1]), (known[0], known[1]), agreement, int(both.sum()))


def _without_mean(values: Floats, index: Integers) -> Floats:
    return values - mean_by(index, values, int(index.max(initial=-1)) + 1)[0][index]


def _high(evidence: Evidence, sizes: PlaceSizes) -> tuple[Booleans, Booleans]:
    """True where a place is bad by one half of the prompt's responses, and by the other half.

    The share of the bad places is the one that separates the distances of the other half best, see `separation`.
    """
    highest = [np.where(known, means, -np.inf) for means, known in zip(sizes.means, sizes.known, strict=True)]
    gains = []
    for share in SHARES:
        high = [values > np.quantile(values[np.isfinite(values)], 1 - share) for values in highest]
        gains.append(separation(evidence, _foretold(sizes, high[0], high[1])))
    share = SHARES[int(np.argmax(gains))]
    first, second = (values > np.quantile(values[np.isfinite(values)], 1 - share) for values in highest)
    return first, second


def _foretold(sizes: PlaceSizes, first: Booleans, second: Booleans) -> Booleans:
    """Tokens at places that the other half of the prompt's responses finds bad."""
    return np.where(sizes.half == 0, second[sizes.cell], first[sizes.cell])


def _period(evidence: Evidence, bad: Booleans) -> int | None:
    """The distance that most pairs of bad places of a prompt have, if it stands out; None if few prompts have two boundaries."""
    spots = np.unique(np.stack([prompts(evidence)[bad], evidence.position[bad]], axis=1), axis=0)
    pairs = [np.zeros(0, np.int64)]
    for lag in range(1, len(spots)):
        same = spots[lag:, 0] == spots[:-lag, 0]
        if not same.any():
            break
        pairs.append((spots[lag:, 1] - spots[:-lag, 1])[same])
    distances = np.concatenate(pairs)
    counts = np.bincount(distances, minlength=SHORTEST + 1)
    near = np.convolve(counts, np.ones(2 * JITTER + 1), "same")
    near[:SHORTEST] = 0
    best = int(np.argmax(near))
    usual = float(near[SHORTEST:].mean())
    if best <= SHORTEST + JITTER or near[best] < LEAST_PAIRS or near[best] < STANDS_OUT * usual:
        return None
    window = np.arange(max(best - JITTER, 0), min(best + JITTER + 1, len(counts)))
    return round(float(np.average(window, weights=counts[window])))


@once
def chunk_boundary(evidence: Evidence) -> Result:
    """The gap sits at few places that all responses of a prompt share, with clean tokens between and after them."""
    sizes = place_sizes(evidence)
    if sizes.cells < LEAST_CELLS:
        return undecided(f"{sizes.cells} places of prompts have tokens of two responses; {LEAST_CELLS} are needed")
    effect = f"sizes at one place correlate at {sizes.correlation:.2f} between the responses of a prompt"
    if sizes.correlation < max(REPEATS[1], REPEATS[0] / np.sqrt(sizes.cells)):
        return absent(effect)
    slope, error = fading(evidence)
    if slope < -max(FADES[0] * error, LIKE_A_PROMPT):
        faded = f"sizes change by {slope:+.2f} ± {error:.2f} per doubling of the place, as those of another prompt do"
        return absent(f"{effect}, but {faded}")
    high = _high(evidence, sizes)
    bad = _foretold(sizes, *high)
    period = _period(evidence, (high[0] & high[1])[sizes.cell])
    parameters: dict[str, Parameter] = {
        "every": f"about every {period} tokens" if period else "at a distance that the record does not tell"
    }
    return subset_fault(
        evidence, bad, f"tokens at places that the responses of a prompt share ({effect})", APART, parameters
    )


CAUSES = (
    Cause(
        "chunk_boundary",
        "the gap sits at boundaries of chunks",
        "place",
        chunk_boundary,
        "without the tokens near the boundaries",
        "At the same places of the row, prompt included, one side loses a part of the context: chunks of prefill, shards of "
        "context parallelism, or blocks of a kernel or of the KV cache do not see one another right.",
        "Make the chunk longer than the longest row, or turn chunked prefill or context parallelism off, and compare.",
        "Change the length of the chunk: the bad places must move with it.",
        needs=NEEDS,
        partial="tokens that read those near a boundary differ, too, and the undoing reaches only the boundaries",
        estimate="{every}",
        mistaken_for={
            "router_flips": "Other routes hit tokens at random, not the same places in all responses of a prompt.",
            "position_onset": "After an onset the gap stays; after a boundary it falls back.",
        },
    ),
)
