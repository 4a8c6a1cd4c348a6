"""The distribution of the weights that a correction leaves, on the same bucket edges as every other distribution."""

import numpy as np
import polars as pl

from ratioscope.arrays import Floats, Integers

from ..distribution import BUCKETS, Histogram, bucket_of
from .effect import CarriedOut


def corrected_weights(each: CarriedOut) -> tuple[Integers, Floats]:
    """(occupied buckets of log v, number of tokens in each); v > 0 is the weight of a token that is still in the loss.

    The counts are estimates if the recording budget kept rows by chance.
    """
    result = each.result
    kept = result.mask & (result.weight > 0)
    times = None if each.times is None else each.times[result.sequence][kept]
    counts = np.bincount(bucket_of(np.log(result.weight[kept])), times, BUCKETS).astype(np.float64)
    occupied = np.flatnonzero(counts)
    return occupied, counts[occupied]


def merged_weights(steps: pl.DataFrame) -> Histogram:
    """The weights that a correction leaves in all steps together, counts rounded to whole tokens, sums unknown (NaN).

    steps: one row per step with the lists `buckets` and `counts` of `corrected_weights`; null or empty where nothing is left.
    """
    merged = (
        steps.select("buckets", "counts")
        .explode("buckets", "counts")
        .drop_nulls()
        .group_by("buckets")
        .agg(pl.col("counts").sum())
        .sort("buckets")
    )
    unknown = np.full(len(merged), np.nan)
    counts = merged["counts"].to_numpy().round().astype(np.int64)
    return Histogram(merged["buckets"].to_numpy(), counts, unknown, unknown)
