"""The sequences of a step as a table with the metrics of each sequence per gap. The worst sequences are picked from it."""

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from ratioscope.metrics.analysis.token_values import confident_disagreement
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.frame import metric_frame
from ratioscope.record import FIELDS, GAPS, sides

from .token_frame import token_counts, token_frame

FACTS = tuple(name for name, field in FIELDS.items() if field.per == "sequence")
METRICS = ("tokens", "kl_k3", "abs_log_ratio", "max_abs_log_ratio", "non_finite", "zero_weight_tokens")
"""Metrics of each sequence: the sequence is treated as a slice of its own."""
COUNTS = ("tokens", "non_finite", "zero_weight_tokens")
READ = (
    *FACTS, "mask", "rollout_logprobs", "old_logprobs", "current_logprobs", "entropy", "advantages", "rollout_versions",
    "turn",
)  # fmt: skip


def sequence_table(records: pa.Table, gaps: Sequence[str] = tuple(GAPS)) -> pl.DataFrame:
    """One row per joined Record, in the order of the files, with the metrics of these gaps.

    Columns: FACTS, `length` in tokens, `lag`, `advantage` (mean over its tokens), and per gap `<gap>/log_ratio_sum`,
    `log_ratio_mean` (nats; null where a token was set aside), METRICS, `worst_position` and `confident_disagreements` (a count,
    see metrics/analysis/token_values.py). mismatch has values once per sequence, total and drift once per minibatch.
    """
    frame = pl.DataFrame(records.select([name for name in FACTS if name in records.column_names]))
    frame = frame.with_columns(
        length=pl.Series(token_counts(records), dtype=pl.Int64),
        lag=pl.col("trainer_version") - pl.col("rollout_version_min"),
        advantage=_advantage(records),
        _row=pl.int_range(pl.len(), dtype=pl.Int64),
    )
    for part in _gaps(records, gaps):
        frame = frame.join(part, on="_row", how="left", maintain_order="left")
    return frame.drop("_row")


def _gaps(records: pa.Table, gaps: Sequence[str]) -> Iterator[pl.DataFrame]:
    """One frame per gap on record, with a column `_row` to join by."""
    by_row = pl.DataFrame(
        statistics(records, slices={"_row": pa.array(np.arange(len(records)))}, written=False, gaps=gaps)
    )
    if by_row.is_empty():
        return
    metrics = metric_frame(by_row, by=("_row",), names=METRICS).with_columns(pl.col("_row").cast(pl.Int64))
    worst = _of_tokens(records, gaps)
    for gap in gaps:
        own = by_row.filter(gap=gap)
        if own.is_empty():
            continue
        named = [f"{gap}/{name}" for name in METRICS if f"{gap}/{name}" in metrics.columns]
        yield (
            _sums(own, gap)
            .join(
                metrics.select("_row", *named).cast({f"{gap}/{name}": pl.Int64() for name in COUNTS}),
                on="_row",
                how="left",
            )
            .join(
                worst.select("_row", f"{gap}/worst_position", f"{gap}/confident_disagreements"), on="_row", how="left"
            )
        )


def _sums(own: pl.DataFrame, gap: str) -> pl.DataFrame:
    whole = pl.when(pl.col("non_finite") == 0, pl.col("tokens") > 0)
    total = pl.when(pl.col("zero_weight_tokens") > 0).then(float("-inf")).otherwise(pl.col("sum_log_ratio"))
    return own.select(
        pl.col("key").cast(pl.Int64).alias("_row"),
        whole.then(total).alias(f"{gap}/log_ratio_sum"),
        whole.then(total / pl.col("tokens")).alias(f"{gap}/log_ratio_mean"),
    )


def _of_tokens(records: pa.Table, gaps: Sequence[str]) -> pl.DataFrame:
    """Per row and gap: position of the unmasked token with the largest |x|, and number of confident disagreements."""
    row = pl.Series("_row", np.repeat(np.arange(len(records)), token_counts(records)), dtype=pl.Int64)
    earlier = {gap: f"{sides(gap)[0]}_logprob" for gap in gaps}
    tokens = token_frame(records, ("position", "mask", *gaps, *earlier.values())).with_columns(row)
    sampled = tokens.filter(pl.col("mask").fill_null(True)).with_columns(pl.col(*gaps).fill_nan(None))
    worst = (pl.col("position").get(pl.col(gap).abs().arg_max()).alias(f"{gap}/worst_position") for gap in gaps)
    confident = (
        confident_disagreement(pl.col(earlier[gap]), pl.col(gap))
        .sum()
        .cast(pl.Int64)
        .alias(f"{gap}/confident_disagreements")
        for gap in gaps
    )
    return sampled.group_by("_row").agg(*worst, *confident)


def _advantage(records: pa.Table) -> pl.Series:
    if "advantages" not in records.column_names:
        return pl.Series("advantage", [None] * len(records), dtype=pl.Float64)
    column = pl.from_arrow(records["advantages"].cast(pa.list_(pa.float64())))
    assert isinstance(column, pl.Series)
    return column.list.mean()
