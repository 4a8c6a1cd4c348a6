"""Records as a table with one row per token, for people and for analyses of tokens."""

from collections.abc import Collection, Iterable, Mapping

import numpy as np
import polars as pl
import pyarrow as pa

from ratioscope.arrays import Floats, Integers
from ratioscope.metrics.engines.arrow_columns import ArrowColumn, flat_values, list_lengths, measured_rows
from ratioscope.metrics.pieces import places
from ratioscope.record import BETWEEN, FIELDS, GAPS, POLICIES, polars_schema, sides

LISTS = {
    "token_id": "token_ids", "token_text": "token_texts", "mask": "mask", "loss_mask": "loss_mask",
    **{f"{policy}_logprob": f"{policy}_logprobs" for policy in (*POLICIES, "reference")},
    "entropy": "entropy", "advantage": "advantages", "turn": "turn", "rollout_version": "rollout_versions",
    "kv_version": "kv_versions", "sampled_id": "sampled_ids", "mask_reason": "mask_reason",
    "router_agreement": "router_agreement",
}  # fmt: skip
"""Column of the token table -> per-token column of the Record."""
FACTS = tuple(name for name, field in FIELDS.items() if field.per == "sequence" and name != "prompt_text")
"""Columns of the Record that are repeated for every token."""


def token_schema(further: Iterable[str] = ()) -> pl.Schema:
    """Columns of `token_frame`. further: columns of readings and of gaps of them, such as referee_logprob, rollout:referee."""
    records = polars_schema()
    lists = {name: getattr(records[source], "inner", pl.Null()) for name, source in LISTS.items()}
    gaps = {name: pl.Float64() for gap in GAPS for name in (gap, f"{gap}_weight")}
    return pl.Schema(
        {**{name: records[name] for name in FACTS}, "position": pl.Int64(), **lists, **gaps}
        | {name: pl.Float64() if BETWEEN in name else pl.Float32() for name in further}
    )


def readings_read(columns: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Column -> the readings that it is made of, for those of these columns that are of readings or of gaps of them."""
    found = {}
    for name in columns:
        of = sides(name.removesuffix("_weight")) if BETWEEN in name else (name.removesuffix("_logprob"),)
        if BETWEEN in name or (name.endswith("_logprob") and name not in LISTS):
            found[name] = tuple(side for side in of if side not in (*POLICIES, "reference"))
    return found


def columns_read(wanted: Collection[str]) -> tuple[str, ...]:
    """Columns of the Record that these columns of the token table are made of, and always the log-probs, for the lengths."""
    lists = [source for name, source in LISTS.items() if name in wanted]
    lists += [f"{side}_logprobs" for name in wanted if BETWEEN in name for side in sides(name.removesuffix("_weight"))]
    return tuple(dict.fromkeys((*(name for name in FACTS if name in wanted), *lists, *_logprobs())))


def token_frame(records: pa.Table, wanted: Collection[str] | None = None) -> pl.DataFrame:
    """One row per token of joined Records, in their order.

    A gap's column is its log-ratio x, later minus earlier in nats; null on rows where the gap is not measured (mismatch is
    measured once per sequence, total and drift once per minibatch). `<gap>_weight` is exp(x). Masked tokens are included, see
    `mask`. wanted: columns of readings that stand in the Records, and of gaps of them, too.
    """
    further = readings_read(wanted or ())
    schema = token_schema(further)
    names = [name for name in schema.names() if wanted is None or name in wanted]
    lengths = token_counts(records)
    row: ArrowColumn = pa.array(np.repeat(np.arange(len(lengths)), lengths))
    columns: dict[str, ArrowColumn] = {"position": pa.array(places(lengths))}
    columns |= {name: records[name].take(row) for name in names if name in FACTS}
    columns |= {name: _list(records, LISTS[name], lengths) for name in names if name in LISTS}
    logprobs = (name for name in further if BETWEEN not in name)
    columns |= {name: _list(records, f"{name}s", lengths) for name in logprobs}
    between = (name.removesuffix("_weight") for name in further if BETWEEN in name)
    for gap in (gap for gap in (*GAPS, *dict.fromkeys(between)) if {gap, f"{gap}_weight"} & set(names)):
        columns |= _gap(records, gap, lengths)
    frame = pl.DataFrame(pa.table({name: columns[name] for name in names}))
    return frame.cast({name: schema[name] for name in names})


def token_counts(records: pa.Table) -> Integers:
    """Tokens of each row: those of its longest log-prob list."""
    counts: Integers = np.maximum.reduce([list_lengths(records[name]) for name in _logprobs()])
    return counts


def _logprobs() -> tuple[str, ...]:
    return tuple(f"{policy}_logprobs" for policy in POLICIES)


def _list(records: pa.Table, name: str, lengths: Integers) -> ArrowColumn:
    """The values of a list column, flat; null where a row's list is absent or has another length. A single advantage is repeated
    for all tokens."""
    column: ArrowColumn = records[name]
    flat = flat_values(column, lengths, pa.scalar(None, column.type.value_type))
    own = list_lengths(column)
    if name != "advantages" or not ((own == 1) & (lengths != 1)).any():
        return flat
    single = (own == 1) & (lengths != 1)
    values = _floats(flat).copy()
    ones = column.filter(pa.array(single)).combine_chunks().flatten()
    values[np.repeat(single, lengths)] = np.repeat(ones.to_numpy(zero_copy_only=False), lengths[single])
    return pa.array(values, pa.float32(), from_pandas=True)


def _gap(records: pa.Table, gap: str, lengths: Integers) -> Mapping[str, ArrowColumn]:
    missing = pa.scalar(None, pa.float32())
    earlier, later = (_floats(flat_values(records[f"{p}_logprobs"], lengths, missing)) for p in sides(gap))
    measured = np.zeros(len(lengths), np.bool_)
    measured[measured_rows(records, gap)] = True
    absent = ~np.repeat(measured, lengths)
    with np.errstate(all="ignore"):
        log_ratio = later - earlier
        return {gap: pa.array(log_ratio, mask=absent), f"{gap}_weight": pa.array(np.exp(log_ratio), mask=absent)}


def _floats(flat: ArrowColumn) -> Floats:
    values = flat.to_numpy(zero_copy_only=False) if isinstance(flat, pa.Array) else flat.to_numpy()
    return np.asarray(values, np.float64)
