"""The sampled tokens of a run without two finite log-probs: counted at every step, located at a few steps that have them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from ratioscope.arrays import Integers
from ratioscope.metrics.diagnosis.marked import LABELS
from ratioscope.metrics.diagnosis.non_finite import AtSteps, NonFinite
from ratioscope.metrics.diagnosis.non_finite_tokens import Tokens, at_steps, joined, of_tokens
from ratioscope.metrics.engines.arrow_columns import GapRows, gap_rows
from ratioscope.metrics.pieces import places, repeated
from ratioscope.record import GAPS

from .step_rows import columns_of

if TYPE_CHECKING:
    from ..run import Run

MOST_STEPS = 6
"""At most so many steps with such tokens are read: the worst ones, the first and the newest."""
NAMES = ("tokens", "non_finite", "zero_weight_tokens")
FARTHEST = "max_abs_log_ratio"
"""It is asked for together with NAMES, because `sentinels_of` reads it at every step."""
COLUMNS = {"replica": "replica", "rank": "rank", "minibatch": "minibatch", "finish": "finish_reason"}
"""Label of `marked.LABELS` -> its column of the Record."""


def non_finite_of(run: "Run", gap: str, steps: Sequence[int] | None = None) -> NonFinite | None:
    """The tokens of these steps without two finite log-probs; None if there are none. steps: None for all."""
    frame = run.once(counts_by_step)
    known = frame if steps is None else frame.filter(pl.col("step").is_in(list(steps)))
    tokens, without, impossible = (
        known.get_column(f"{gap}/{name}", default=pl.zeros(len(known), eager=True))
        .fill_null(0)
        .cast(pl.Int64)
        .to_numpy()
        for name in NAMES
    )
    counts = AtSteps(known["step"].to_numpy(), tokens + without, without, impossible)
    bad = counts.without + counts.impossible
    if not bad.any():
        return None
    chosen = worst_steps(run, counts.steps, bad)
    parts = [non_finite_of_records(columns_of(run, step, ("mask", *COLUMNS.values())), gap) for step in chosen]
    return joined(counts, [part for part in parts if part is not None])


def worst_steps(run: "Run", steps: Integers, bad: Integers) -> list[int]:
    """Few of the steps with a bad token that have token rows, ascending: the worst ones, the first and the newest.

    bad: bad tokens of each step.
    """
    kept = np.isin(steps, list(run.row_digests())) & (bad > 0)
    own, worst = steps[kept], np.argsort(-bad[kept], kind="stable")
    return sorted({*own[:1].tolist(), *own[-1:].tolist(), *own[worst][: MOST_STEPS - 2].tolist()})


def non_finite_of_records(records: pa.Table, gap: str) -> NonFinite | None:
    """The same of joined Records, whose steps are all that is known; None if they have no such token."""
    tokens = tokens_of(records, gap_rows(records, gap), {name: COLUMNS[name] for name in LABELS})
    counts = at_steps(tokens)
    return of_tokens(counts, tokens) if (counts.without + counts.impossible).any() else None


def tokens_of(records: pa.Table, own: GapRows, columns: Mapping[str, str]) -> Tokens:
    """The sampled tokens of these rows of Records. columns: name of a label -> the column of the Record that holds it."""
    position, row = places(own.lengths), repeated(np.arange(len(own.lengths)), own.lengths)
    labels = {
        name: _texts(records, column, own.rows) for name, column in columns.items() if column in records.column_names
    }
    return Tokens(
        own.earlier[own.mask].astype(np.float64), own.later[own.mask].astype(np.float64), row[own.mask], position[own.mask],
        own.lengths, records["step"].to_numpy()[own.rows].astype(np.int64), GAPS[own.gap], labels,
    )  # fmt: skip


def counts_by_step(run: "Run") -> pl.DataFrame:
    """NAMES and FARTHEST of every gap, steps ascending."""
    return run.metrics(by=("step",), names=(*NAMES, FARTHEST)).sort("step")


def _texts(records: pa.Table, column: str, rows: np.ndarray) -> tuple[str, ...]:
    return tuple("" if value is None else str(value) for value in records[column].take(rows).to_pylist())
