"""The statistics that relate tokens to their neighbours, of each sequence of a block."""

import numpy as np

from ratioscope.arrays import Integers, Matrix

from .block_tokens import Tokens
from .long_cells import sums_of_cells
from .loops import Loops
from .program import APART, Program, neighbour_programs


def neighbour_sums(tokens: Tokens, begins: Integers, statistics: int, loops: Loops) -> Matrix:
    """Shape (statistics, sequences). begins: the first token of each sequence that has one. statistics: how many there are."""
    if not statistics:
        return np.empty((0, len(begins)))
    if tokens.has_pairs:
        return sums_of_cells(loops, tokens.program(whole=True), tokens.columns, begins, ())[0]
    result = np.zeros((statistics, len(begins)))
    lengths = tokens.lengths[tokens.lengths > 0]
    for distance, (program, places) in neighbour_programs(tokens.gap).items():
        have = np.flatnonzero(lengths > distance)
        if len(have):
            result[np.ix_(np.array(places), have)] = _sums(
                tokens, begins[have], lengths[have], distance, program, loops
            )
    return result


def _sums(tokens: Tokens, begins: Integers, lengths: Integers, distance: int, program: Program, loops: Loops) -> Matrix:
    """The sums over the pairs of tokens so far apart, of sequences that are longer than the distance.

    Their columns are moved against each other. Behind the pairs of a sequence come those of two sequences, which are left out.
    """
    first, behind = slice(None, -distance), slice(distance, None)
    columns = dict(zip(APART, (tokens.columns[n][part] for part in (first, behind) for n in APART[:2]), strict=True))
    bounds = np.stack((begins, begins + lengths - distance), axis=1).reshape(-1)
    within = bounds[bounds < int(tokens.lengths.sum()) - distance]
    return sums_of_cells(loops, program, columns, within, ())[0][:, ::2]
