"""The buckets of a slice for tables and charts: labelled, in order, each with its share of the gap; the last ones merged.

The input is a metric frame by slice. kl_k3 and similar metrics are means over tokens, so value times tokens is the sum over the
bucket. Shares of the gap and means over several buckets are therefore exact, unless a token has a later log-prob of -inf.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.record import kin

from ..definitions.registry import BY_NAME
from ..engines.slices import POSITION_EDGES, PROBABILITY_EDGES
from ..metric import SAMPLED
from .over_steps import badness

NUMERIC = ("position", "probability", "turn", "lag", "minibatch", "length_decile")
"""Slices whose keys are numbers in a meaningful order. Ranks are names, not numbers."""
FIXED = ("negative", "zero", "positive")
MOST = 20
MOST_NUMERIC = 40

PARTS = pl.Schema(
    {
        "key": pl.String(), "label": pl.String(), "value": pl.Float64(), "error": pl.Float64(), "tokens": pl.Float64(),
        "share_of_tokens": pl.Float64(), "share_of_gap": pl.Float64(), "buckets": pl.Int64(),
    }
)  # fmt: skip
"""Columns of `slice_parts`. key: null in the row of merged buckets. buckets: the number of buckets of the row."""


def size_metric(gap: str) -> str:
    """The metric whose sum over tokens is the gap that buckets have shares of."""
    return "kl_k3" if kin(gap) in SAMPLED else "kl_k2"


def bucket_label(slice_name: str, key: str) -> str:
    """The label of a bucket: an interval for position and probability, else its key.

    >>> bucket_label("position", "4"), bucket_label("probability", "0.999"), bucket_label("replica", "vllm-3")
    ('[4, 8)', '[0.999, 1]', 'vllm-3')
    """
    if slice_name == "position" and key.isdecimal():
        return _interval(POSITION_EDGES.tolist(), float(key), math.inf)
    if slice_name == "probability":
        try:
            return _interval(PROBABILITY_EDGES, float(key), 1.0)
        except ValueError:
            return key
    return key


def slice_parts(
    frame: pl.DataFrame, slice_name: str, gap: str, metric: str, *, largest: bool = False, most: int | None = None
) -> pl.DataFrame:
    """One row per bucket of a metric frame by slice, with the columns PARTS. Buckets beyond the first `most` share a last row.

    Numeric slices are in the order of their keys. Others are ordered by value, worst first, or with `largest` by their share
    of the gap. share_of_gap: the share of the sum of size_metric over all buckets; null if that sum is 0.
    """
    named = [f"{gap}/{name}" for name in ("tokens", metric, size_metric(gap))]
    if slice_name not in frame.columns or any(name not in frame.columns for name in named):
        return pl.DataFrame(schema=PARTS)
    rows = frame.filter(pl.col(named[0]) > 0)
    tokens, value, size = (rows[name].cast(pl.Float64).fill_null(math.nan).to_numpy() for name in named)
    error = f"{gap}/{metric}_se"
    keys = rows[slice_name].cast(pl.String).to_list()
    parts = pl.DataFrame(
        {
            "key": keys,
            "label": [bucket_label(slice_name, key) for key in keys],
            "value": value,
            "error": rows[error].cast(pl.Float64) if error in rows.columns else [None] * len(rows),
            "tokens": tokens,
            "share_of_tokens": tokens / tokens.sum() if len(tokens) else tokens,
            "share_of_gap": shares(size * tokens),
            "buckets": [1] * len(rows),
        },
        schema=PARTS,
    ).with_columns(pl.col("value", "error", "share_of_gap").fill_nan(None))
    order = _order(parts, slice_name, metric, largest=largest)
    ordered, limit = parts[order], most or (MOST_NUMERIC if slice_name in NUMERIC else MOST)
    if len(ordered) <= limit:
        return ordered
    rest = rows[order[limit:]]
    return pl.concat([ordered.head(limit), _rest(ordered[limit:], pooled_value(rest, gap, metric))])


def shares(amounts: Floats) -> Floats:
    """Each amount's share of the sum; NaN for a NaN amount, or if the sum is 0. Infinite amounts share everything equally."""
    filled = np.where(np.isnan(amounts), 0.0, amounts)
    if np.isinf(filled).any():
        filled = np.isinf(filled) * 1.0
    total = filled.sum()
    return np.where(np.isnan(amounts), np.nan, filled / total) if total > 0 else np.full(len(filled), np.nan)


def pooled_value(rows: pl.DataFrame, gap: str, metric: str) -> float | None:
    """The metric over the tokens of all these buckets together; None if it is unknown. rows: of a metric frame by slice."""
    tokens = rows[f"{gap}/tokens"].cast(pl.Float64).to_numpy()

    def mean(name: str) -> float:
        if f"{gap}/{name}" not in rows.columns:
            return math.nan
        values = rows[f"{gap}/{name}"].cast(pl.Float64).fill_null(math.nan).to_numpy()
        available = ~np.isnan(values)
        total = float(tokens[available].sum())
        return float((values[available] * tokens[available]).sum() / total) if available.any() else math.nan

    if metric == "ess_token":
        square = mean("chi2_token") + 1
        value = mean("mean_weight_token") ** 2 / square if square > 0 else math.nan
    elif metric.startswith("max_"):
        value = _float(rows[f"{gap}/{metric}"].max())
    else:
        value = mean(metric)
    return None if math.isnan(value) else value


def _rest(rest: pl.DataFrame, value: float | None) -> pl.DataFrame:
    summed = {name: float(rest[name].sum()) for name in ("tokens", "share_of_tokens", "share_of_gap")}
    label = f"the other {len(rest):,}"
    row = {"key": None, "label": label, "value": value, "error": None, **summed, "buckets": len(rest)}
    return pl.DataFrame([row], schema=PARTS)


def _order(parts: pl.DataFrame, slice_name: str, metric: str, *, largest: bool) -> Sequence[int]:
    """Row numbers in the order of display."""
    placed = parts.with_row_index("place")
    if slice_name in NUMERIC:
        by = placed.with_columns(at=pl.col("key").cast(pl.Float64, strict=False)).sort("at", "key", nulls_last=True)
    elif set(parts["key"]) <= set(FIXED):
        ranks: Mapping[str, int] = {key: rank for rank, key in enumerate(FIXED)}
        by = placed.sort(pl.col("key").replace_strict(ranks, return_dtype=pl.Int8))
    else:
        worse = pl.col("share_of_gap") if largest else badness(BY_NAME[metric], pl.col("value"))
        by = placed.sort(worse, "key", descending=[True, False], nulls_last=True)
    return by["place"].to_list()


def _interval(edges: Sequence[float], low: float, end: float) -> str:
    above = [edge for edge in edges if edge > low]
    high = min(above) if above else end
    return f"[{low:g}, {high:g}{']' if high == end else ')'}"


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
