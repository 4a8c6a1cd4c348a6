"""A fault of all sequences from one position on."""

from dataclasses import replace

import numpy as np

from ratioscope.arrays import Booleans, Integers

from ..cause import Cause, Result, absent
from ..evidence import Evidence
from ..fits import best_changes, firsts, prompts
from ..subset_faults import log_sizes, mean_by, subset_fault
from .edges import SHARP, best_cut, sharpness
from .row_places import REPEATS, place_sizes

EARLIEST = 8
"""The first position at which an onset is looked for; the last one is two thirds of the longest response.

The first tokens of responses differ from the rest anyway, the last ones may suffer from the length limit."""

LEAST_ONSETS = 6
"""Halves of prompts that must have an onset for a place in the row."""
ONSET_GAIN = 8.0
"""Half the drop of the squared error, in variances, that makes an onset clear in one half of a prompt's responses."""


def position_onset(evidence: Evidence) -> Result:
    """The gap begins at one position: the same of all responses, or of all responses of a prompt."""
    results = [_of_all(evidence)]
    if evidence.has("group", "token"):
        results.append(_of_prompts(evidence))
    return max(results, key=lambda result: (result.holds, result.share.share if result.share else -1.0))


def _of_all(evidence: Evidence) -> Result:
    """All sequences become bad at one position of the response, at once."""
    row = evidence.row_codes
    last = int(evidence.position.max(initial=0))
    every = tuple(range(last // 3 + 1, last - EARLIEST))
    bad, cut = np.zeros(len(evidence), np.bool_), 0
    for half in (0, 1):
        own = row % 2 == half
        if own.any() and every:
            cut = last + 1 - best_cut(evidence.kept(own), last - evidence.position[own], every)
            bad |= ~own & (evidence.position >= cut)
    if not bad.any():
        return absent("from no position on the gap is larger than before it")
    result = subset_fault(evidence, bad, f"the tokens from position {cut} on", 2.0, {"position": cut})
    sharp = sharpness(evidence, np.full(len(evidence), cut)) if result.holds else 0.0
    return replace(result, holds=result.holds and sharp > SHARP)


def _of_prompts(evidence: Evidence) -> Result:
    """The responses of a prompt become bad at one position, which is another one for the next prompt: a place in the row."""
    sizes = place_sizes(evidence)
    if sizes.correlation < max(REPEATS[1], REPEATS[0] / np.sqrt(max(sizes.cells, 1))):
        return absent("no position of the responses of a prompt has a larger gap than the one before it")
    bad, cuts = _after_onsets(evidence)
    if len(cuts) < LEAST_ONSETS or not bad.any():
        return absent(f"the gap begins at one position in the responses of {len(cuts)} prompts")
    return subset_fault(
        evidence,
        bad,
        f"the tokens after a position that the responses of a prompt share, in {len(cuts)} halves of prompts,",
        2.0,
        {"position": int(np.median(cuts))},
    )


def _after_onsets(evidence: Evidence) -> tuple[Booleans, Integers]:
    """(tokens after the onset of their prompt, positions of the onsets), found in the other half of the prompt's responses.

    A prompt without an onset is bad as a whole if its level is nearer to that after the onsets: its onset is in the prompt.
    """
    found, prompt = place_sizes(evidence), prompts(evidence)
    bad, cuts = np.zeros(len(evidence), np.bool_), [np.zeros(0, np.int64)]
    sizes = log_sizes(evidence)
    for side in (0, 1):
        own = np.flatnonzero((found.half == side) & firsts(evidence))
        cells, first = np.unique(found.cell[own], return_index=True)
        values = mean_by(found.cell[own], sizes[own], len(found.known[0]))[0][cells]
        of_prompt, position = prompt[own][first], evidence.position[own][first]
        at, rises = best_changes(values, of_prompt, ONSET_GAIN * max(float(values.var()), 1e-12))
        onset = np.full(int(prompt.max()) + 1, np.iinfo(np.int64).max)
        onset[of_prompt[at[rises]]] = position[at[rises]]
        after = position >= onset[of_prompt]
        if len(at) and after.any() and not after.all():
            changed = onset[of_prompt] < np.iinfo(np.int64).max
            low, high = float(values[changed & ~after].mean()), float(values[after].mean())
            level = mean_by(of_prompt, values, len(onset))[0]
            onset[(level > (low + high) / 2) & (onset == np.iinfo(np.int64).max)] = 0
            bad |= (found.half != side) & (evidence.position >= onset[prompt])
            cuts.append(position[at[rises]])
    return bad, np.concatenate(cuts)


CAUSES = (
    Cause(
        "position_onset",
        "the gap begins at one position",
        "place",
        position_onset,
        "with the positions before the onset only",
        "From one position on the two sides encode positions, windows or chunks differently.",
        "Compare rope scaling, sliding window, chunk length of prefill and the tile size of the KV cache on both sides.",
        "Change the length of the prompt: an onset that moves with it has an absolute position.",
        estimate="from position {position} on",
        course="constant",
        mistaken_for={"retokenised": "Re-encoding begins at another place in each sequence."},
    ),
)
