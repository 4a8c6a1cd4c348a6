"""The tokens of a part of the run, found in token rows: statistics, histograms, sequences, and the parts of one sequence."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa

from ratioscope.arrays import Booleans
from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.metrics.engines.arrow_columns import ArrowColumn, GapRows, gap_rows
from ratioscope.metrics.engines.numpy_engine import gap_cells, statistics
from ratioscope.metrics.engines.slices import SliceCodes, labelled, written_slices
from ratioscope.metrics.engines.statistics_table import schema, statistics_table
from ratioscope.metrics.frame import metric_frame
from ratioscope.metrics.merging import LISTS
from ratioscope.record import sides

from ..rows.part import Only, Part
from ..rows.slices import ON_DEMAND, slice_named
from ..run import Run
from .step_rows import columns_of

SLICED = ("replica", "rollout_version_min", "rollout_version_max", "rollout_versions", "trainer_version", "turn")
_OF_SEQUENCES = ("sequence", "geometric")
"""Beginnings of the names of lists of sequences."""


def part_columns(part: Part | None) -> tuple[str, ...]:
    """Columns of the Record that a part is made from."""
    names = [] if part is None else [term.slice for term in part.terms]
    made = (column for name in names if name in ON_DEMAND for column in ON_DEMAND[name].columns)
    return tuple(dict.fromkeys((*SLICED, *made)))


def part_statistics(records: pa.Table, gap: str, part: Part) -> pa.Table:
    """Statistics of the part in joined Records, under the slice `all`, with histograms of its tokens.

    A part that divides sequences has token statistics and token histograms only.
    """
    rows = gap_rows(records, gap)
    if not len(rows.rows):
        return schema().empty_table()
    own, by_token = part_mask(records, rows, part)
    codes = own if by_token else _of_rows(own, rows)
    slices = [SliceCodes("part", ("",), np.where(codes, 0, -1), by_token)]
    table = statistics_table(gap_cells(records, rows, slices))
    whole = statistics_table(gap_cells(records, replace(rows, mask=rows.mask & own), [_every(rows)]))
    places = {key: place for place, key in enumerate(_keys(whole))}
    at = np.array([places[key] for key in _keys(table)], np.int64)
    lists = [name for names in LISTS for name in names if not (by_token and name.startswith(_OF_SEQUENCES))]
    columns: dict[str, ArrowColumn] = {name: whole[name].take(at) for name in lists}
    columns["slice"] = pa.array(["all"] * len(table), pa.string())
    return pa.table([columns.get(name, table[name]) for name in table.schema.names], schema=table.schema)


def part_mask(records: pa.Table, rows: GapRows, part: Part) -> tuple[Booleans, bool]:
    """(for each token whether it is in the part, whether the part may divide a sequence)."""
    masks = {term: _term_mask(records, rows, term) for term in dict.fromkeys(part.terms)}
    inside = np.ones(len(rows.mask), np.bool_)
    for group in part.groups:
        inside &= np.logical_or.reduce([masks[term][0] for term in group])
    return inside, any(by_token for _, by_token in masks.values())


def part_sequences(run: Run, step: int, gap: str, part: Part) -> pl.DataFrame:
    """The sequences of a step with a sampled token of the part. Columns: sequence_id, minibatch, matching (number of tokens)."""
    records = columns_of(run, step, ("mask", "minibatch", *part_columns(part)), gap)
    rows = gap_rows(records, gap)
    own = part_mask(records, rows, part)[0] & rows.mask
    row = np.repeat(np.arange(len(rows.rows)), rows.lengths)
    matching = np.bincount(row[own], minlength=len(rows.rows))
    kept = np.flatnonzero(matching)
    minibatches = records.select(["sequence_id", "minibatch"]).take(rows.rows[kept])
    return pl.DataFrame(
        {
            "sequence_id": pl.Series(minibatches["sequence_id"].to_pylist(), dtype=pl.String),
            "minibatch": pl.Series(minibatches["minibatch"].to_pylist(), dtype=pl.Int32),
            "matching": pl.Series(matching[kept], dtype=pl.Int64),
        }
    )


def _term_mask(records: pa.Table, rows: GapRows, term: Only) -> tuple[Booleans, bool]:
    """`part_mask` for one term. A slice that is not on record at this step has no token. ConfigError for an unknown slice."""
    made = slice_named(term.slice)
    if made is None:
        slices = [each for each in written_slices(records, rows) if each.name == term.slice]
    elif any(records[name].null_count == len(records) for name in made.columns):
        slices = []
    else:
        slices = [labelled(term.slice, made.labels(records), rows)]
    if not slices:
        return np.zeros(len(rows.mask), np.bool_), False
    codes = slices[0]
    own = codes.codes == (codes.keys.index(term.key) if term.key in codes.keys else -2)
    return (own, True) if codes.by_token else (np.repeat(own, rows.lengths), False)


def _of_rows(own: Booleans, rows: GapRows) -> Booleans:
    """For each row whether it is in a part that divides no row. A row without tokens is in none."""
    inside = np.zeros(len(rows.lengths), np.bool_)
    filled = rows.lengths > 0
    inside[filled] = own[rows.starts[filled]]
    return inside


def _every(rows: GapRows) -> SliceCodes:
    return SliceCodes("all", ("",), np.zeros(len(rows.rows), np.int64), False)


def _keys(table: pa.Table) -> list[tuple[object, object]]:
    return list(zip(table["attempt"].to_pylist(), table["step"].to_pylist(), strict=True))


LARGEST = "max_abs_log_ratio"


def part_metrics(tokens: pl.DataFrame, starts: Sequence[int], gap: str) -> pl.DataFrame:
    """One row per part with sampled tokens: `part` (its number), the gap's size (see `size_metric`), its `_se`, and LARGEST.

    tokens: as Run.sequence gives them. starts: the first row of each part, ascending from 0. Metrics are of sampled tokens, as
    for any slice of a run. A single sequence has no standard error, which is one between sequences.
    """
    logprobs = {
        f"{side}_logprobs": tokens[f"{side}_logprob"] for side in sides(gap) if f"{side}_logprob" in tokens.columns
    }
    if len(logprobs) < 2 or tokens[gap].null_count() == len(tokens):
        return pl.DataFrame(schema={"part": pl.Int64})
    keys = {name: pa.array([0], pa.int64()) for name in ("attempt", "step")} | {"sequence_id": pa.array([""])}
    lists = {name: pa.array([column.to_list()], pa.list_(pa.float32())) for name, column in logprobs.items()}
    masks = {"mask": pa.array([tokens["mask"].fill_null(True).to_list()])} if "mask" in tokens.columns else {}
    parts = np.searchsorted(starts, np.arange(len(tokens)), side="right") - 1
    records = pa.table({**keys, **lists, **masks})
    own = statistics(records, slices={"part": pa.array([parts.tolist()])}, written=False, gaps=[gap])
    frame = metric_frame(pl.DataFrame(own), by=("part",), names=(size_metric(gap), LARGEST))
    return frame.cast({"part": pl.Int64})
