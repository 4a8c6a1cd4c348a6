"""Which tokens stand after the same text of the same prompt: their log-probs are one measurement, not several."""

import numpy as np
import numpy.typing as npt

from ratioscope.arrays import Booleans, Integers

from .evidence import Evidence
from .once import once

Hashes = npt.NDArray[np.uint64]
_ODD = np.uint64(0x9E3779B97F4A7C15)


@once
def prompts(evidence: Evidence) -> Integers:
    """Number of each token's prompt, from 0, shape (tokens,). A prompt that returns at another step counts as another one."""
    groups, group = np.unique(evidence.facts["group"], return_inverse=True)
    step = evidence.step_codes[1] if evidence.has("step") else np.zeros(len(evidence), np.int64)
    return np.asarray(np.unique(step * len(groups) + group, return_inverse=True)[1], np.int64)


@once
def firsts(evidence: Evidence) -> Booleans:
    """True if no earlier response of the prompt has the same ids up to and including the token, shape (tokens,)."""
    keys = (evidence.row_codes, _hash_so_far(evidence), evidence.position, prompts(evidence))
    order = np.lexsort(keys)
    again = np.logical_and.reduce([np.diff(values[order]) == 0 for values in keys[1:]])
    first = np.ones(len(evidence), np.bool_)
    first[order[1:]] = ~again
    return first


def _hash_so_far(evidence: Evidence) -> Hashes:
    """A hash of the ids of the response up to and including each token, shape (tokens,)."""
    place, token = evidence.position.astype(np.uint64), evidence.facts["token"].astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (token + np.uint64(1)) * ((np.uint64(2) * place + np.uint64(1)) * _ODD) ** np.uint64(3)
        so_far = np.cumsum(mixed ^ (mixed >> np.uint64(29)), dtype=np.uint64)
        before = np.concatenate((np.zeros(1, np.uint64), so_far))[evidence.starts]
        return so_far - before[evidence.row_codes]
