"""The positions of a response on each context-parallel rank of slime: zig-zag chunks of the whole sequence."""

import numpy as np
import numpy.typing as npt


def context_parallel_positions(
    total_length: int, response_length: int, cp_size: int, cp_rank: int
) -> npt.NDArray[np.int64]:
    """Response positions on one rank, in the rank's order.

    The sequence is cut into 2 * cp_size chunks of equal size; the last may be short or empty. Rank r has chunks r and
    2 * cp_size - 1 - r. The rank of a response token is the rank of the position before it, which predicts it.
    """
    predicting = np.arange(response_length) + (total_length - response_length - 1)
    if cp_size == 1:
        return np.arange(response_length)
    chunk = predicting // -(-total_length // (2 * cp_size))
    return np.flatnonzero((chunk == cp_rank) | (chunk == 2 * cp_size - 1 - cp_rank))
