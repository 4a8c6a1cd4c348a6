"""A small made-up run on which every column is computed, so that a column's digest changes with its formula.

The digest depends on values and not on code: a renamed variable keeps it, a changed formula anywhere below the column does not.
Values are compared by six significant digits, which no machine's rounding changes.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import polars as pl
import pyarrow as pa

from ratioscope.arrays import Integers
from ratioscope.ingest.rows.sequences import sequence_table
from ratioscope.ingest.rows.token_frame import token_frame
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.frame import metric_frame
from ratioscope.record import arrow_schema

TOKENS = 16
ROWS = (12, 140, 12, 12)
"""Sequences of each step."""
WIDTHS = (1.0, 1 / 16, 4.0, 1 / 2)
"""The distance of the policies of each step: only many small weights have a fit of their tail and standard errors, only large
ones lie outside a clip. The last step lacks `current`, so that its entropy is that of `old`."""
DIGITS = 6
NOISE = 1e-9
"""Smaller values count as 0: they are what rounding leaves of sums that cancel."""
COMPUTED: dict[str, Callable[[pa.Table], pl.DataFrame]] = {
    "step": lambda rows: _frame(metric_frame(_frame(statistics(rows)))),
    "sequence": sequence_table,
    "token": token_frame,
}
"""Level -> the table of the probe, by the functions that make the tables of a run."""


@cache
def probe_table(level: str) -> pl.DataFrame:
    """The table of the probe at this level."""
    return COMPUTED[level](joined(_records()))


@cache
def digest(level: str, column: str) -> str:
    """16 hex digits of the values of a column of the probe's table."""
    values = [_rounded(value) for value in probe_table(level)[column].to_list()]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


def _rounded(value: object) -> object:
    if not isinstance(value, float):
        return value
    return "0" if abs(value) < NOISE else f"{value:.{DIGITS - 1}e}"


def _records() -> pa.Table:
    """Rows with all three policies, masks, versions and advantages; a few weights are far out, one is 0, one is NaN."""
    numbers, rows = _numbers(), sum(ROWS)
    step = np.repeat(np.arange(len(ROWS)), ROWS)

    def drawn(largest: int) -> Integers:
        return np.array([next(numbers) % largest for _ in range(rows * TOKENS)]).reshape(rows, TOKENS)

    wide = np.array(WIDTHS)[step][:, None]
    rollout = -(drawn(1024) + 65) / 256
    old = rollout + wide * ((drawn(257) - 128) * ((drawn(16) == 0) & (wide > 0.1)) / 64 + (drawn(65) - 32) / 512)
    current = old + wide * (drawn(129) - 64) / 256
    old[3, 5], current[9, 7], rollout[5, 2] = -np.inf, np.nan, 0.5
    mask = drawn(8) > 0
    mask[7] = False
    now: list[list[float] | None] = current.tolist()
    now[-ROWS[-1] :] = [None] * ROWS[-1]
    columns = {
        "attempt": [0] * rows,
        "step": step.tolist(),
        "sequence_id": [f"s{row}" for row in range(rows)],
        "minibatch": [0] * rows,
        "token_ids": drawn(100).tolist(),
        "mask": mask.tolist(),
        "rollout_logprobs": rollout.tolist(),
        "old_logprobs": old.tolist(),
        "current_logprobs": now,
        "entropy": (drawn(512) / 256).tolist(),
        "advantages": ((drawn(33) - 16) / 8).tolist(),
        "trainer_version": [4] * rows,
        "rollout_version_min": [4 - row % 3 for row in range(rows)],
        "rollout_version_max": [4] * rows,
    }
    schema = arrow_schema()
    return pa.table({field.name: pa.array(columns.get(field.name, [None] * rows), field.type) for field in schema})


def _numbers() -> Iterator[int]:
    """Whole numbers of a linear congruential generator (Knuth's MMIX), the same on every machine and in every version."""
    state = 1
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield state >> 33


def _frame(table: pa.Table | pl.DataFrame) -> pl.DataFrame:
    return pl.DataFrame(table) if isinstance(table, pa.Table) else table
