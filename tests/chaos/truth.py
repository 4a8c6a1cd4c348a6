"""What is logged under fire, known without asking the store: the same values for the same seed, step and rank, in any process."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import polars as pl

from ratioscope.ingest.run import Run

from .figures import Figures
from .logged import POLICY_COLUMNS, Batch, logged, parts

Steps = dict[tuple[int, int], dict[str, list[Any]]]
"""(rank, step) -> sequence_id -> the log-probs of every row with this id, one per row."""


def steps_read(run: Run) -> Steps:
    """Every token row that the run shows."""
    found: Steps = {}
    columns = ["rank", "step", "sequence_id", *POLICY_COLUMNS]
    for rank, step, name, *values in run.records().select(columns).collect().iter_rows():
        found.setdefault((rank, step), {}).setdefault(name, []).append(values)
    return found


def compare(figures: Figures, run: Run, seed: int, acknowledged: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
    """The steps that are there and whole. Counts steps that were acknowledged and are not, parts of steps that are half
    there, and rows that are not as logged.
    """
    found, whole = steps_read(run), set()
    for key in sorted(set(found) | set(acknowledged)):
        truth, rows_read = logged(seed, key[1], key[0]), found.get(key, {})
        fault = _fault(truth, parts(truth, key[1]), rows_read, key in acknowledged)
        if set(rows_read) == set(truth["sequence_ids"]):
            whole.add(key)
        if fault is not None:
            figures.add(**{fault: 1})
            figures.wrong.append(
                f"rank {key[0]}, step {key[1]}: {fault}; {sorted(rows_read)} read of {len(truth['sequence_ids'])}"
            )
    figures.add(lost=0, torn=0, altered=0)
    return whole


def _fault(
    truth: Batch, written_as: list[Batch], rows_read: Mapping[str, list[Any]], is_acknowledged: bool
) -> str | None:
    """What is wrong with the rows of a step. A part of a step that was flushed by itself is whole or not there by itself."""
    if is_acknowledged and not set(rows_read) >= set(truth["sequence_ids"]):
        return "lost"
    known = [set(part["sequence_ids"]) for part in written_as]
    if any(0 < len(ids & set(rows_read)) < len(ids) for ids in known) or not set(rows_read) <= set().union(*known):
        return "torn"
    return None if all(_equal(truth, name, rows) for name, rows in rows_read.items()) else "altered"


def _equal(truth: Batch, name: str, rows: list[Any]) -> bool:
    index = truth["sequence_ids"].index(name)
    expected = [truth[column][index] for column in POLICY_COLUMNS]
    return len(rows) == 1 and all(
        np.array_equal(np.asarray(mine, np.float32), theirs) for mine, theirs in zip(rows[0], expected, strict=True)
    )


def metrics_differ(metrics: pl.DataFrame, clean: pl.DataFrame) -> list[int]:
    """Steps whose metrics are not those of the clean run. Relative 1e-6: parts of a step are summed in another
    order, and a standard error is a small difference of such sums."""
    names = [name for name in clean.columns if clean[name].dtype.is_numeric() and name in metrics.columns]
    steps = ((step, *(_values(frame, step, names) for frame in (metrics, clean))) for step in metrics["step"].to_list())
    return [step for step, mine, theirs in steps if mine.shape != theirs.shape or not _are_close(mine, theirs)]


def _values(frame: pl.DataFrame, step: int, names: list[str]) -> np.ndarray[Any, Any]:
    """The step's rows of these columns: all at once, because a comparison of each column by itself takes four times as long."""
    return frame.filter(pl.col("step") == step).select(names).cast(pl.Float64).to_numpy()


def _are_close(mine: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> bool:
    return np.allclose(mine, theirs, rtol=1e-6, atol=1e-12, equal_nan=True)
