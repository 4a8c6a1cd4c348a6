"""How the weights that a correction leaves are distributed, on the edges of every other distribution."""

import numpy as np
import numpy.typing as npt

from ..distribution import BUCKETS, bucket_of
from .effect import CarriedOut

Floats = npt.NDArray[np.float64]


def weights_left(each: CarriedOut) -> tuple[npt.NDArray[np.int64], Floats]:
    """(occupied buckets of log v, how many tokens lie in each), v > 0 the weight of a token that is still in the loss.

    Counts are estimates where chance kept the rows.
    """
    result = each.result
    kept = result.mask & (result.weight > 0)
    times = None if each.times is None else each.times[result.sequence][kept]
    counts = np.bincount(bucket_of(np.log(result.weight[kept])), times, BUCKETS).astype(np.float64)
    occupied = np.flatnonzero(counts)
    return occupied, counts[occupied]
