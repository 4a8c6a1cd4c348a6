"""Records made for tests: a builder from rows of lists, and Hypothesis strategies of ragged, empty and extreme rows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from hypothesis import strategies as st

from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.frame import metric_frame
from ratioscope.record import GAPS, arrow_schema
from support import oracle

Row = Mapping[str, Any]


def table(rows: Sequence[Row]) -> pa.Table:
    """Records of these rows; absent fields are null, attempt and step 0, sequence_id the row's number."""
    schema = arrow_schema()
    whole = [{"attempt": 0, "step": 0, "sequence_id": str(i), **row} for i, row in enumerate(rows)]
    columns = [pa.array([row.get(field.name) for row in whole], field.type) for field in schema]
    return pa.table(columns, schema=schema)


def stats(records: pa.Table) -> pl.DataFrame:
    """The engine's table as polars has it."""
    return pl.DataFrame(statistics(records))


def measured(records: pa.Table) -> dict[str, float]:
    """Every metric of the whole table; NaN where not available."""
    rows = metric_frame(stats(records), by=()).rows(named=True)
    return {name: math.nan if value is None else value for name, value in rows[0].items()} if rows else {}


def gap_of(rows: Sequence[Row], gap: str) -> list[oracle.Tokens]:
    """The rows as the oracle reads them, after the rounding to float32 that storing does."""
    earlier, later = (f"{policy}_logprobs" for policy in GAPS[gap])
    chosen = [row for row in rows if row.get(earlier) is not None and row.get(later) is not None]
    return [_tokens(row, earlier, later, gap) for row in chosen]


def _tokens(row: Row, earlier: str, later: str, gap: str) -> oracle.Tokens:
    sides = [_rounded(row[name]) for name in (earlier, later)]
    mask = [True] * len(sides[0]) if row.get("mask") is None else list(row["mask"])
    of_current = row.get("current_logprobs") is not None
    known = row.get("entropy") is not None and (gap == "total" if of_current else gap == "mismatch")
    advantages = None if row.get("advantages") is None else _rounded(row["advantages"])
    return oracle.Tokens(sides[0], sides[1], mask, _rounded(row["entropy"]) if known else None, advantages)


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(v) for v in np.asarray(values, np.float32)]


# Multiples of 1/1024 add up exactly, so a constant stays a constant in any order of summation.
ORDINARY = st.integers(-20 * 1024, 0).map(lambda n: n / 1024)
EXTREME = st.sampled_from([0.0, -0.0, -1e-38, -1e-8, -90.0, -400.0, -1e4, -3e38, 0.5, 3.0])
BROKEN = st.sampled_from([math.nan, math.inf, -math.inf])


def advantages(length: int) -> st.SearchStrategy[list[float]]:
    """One for the sequence, or one per token. Multiples of 1/64 add up exactly, too."""
    one = st.integers(-256, 256).map(lambda n: n / 64)
    return st.lists(one, min_size=1, max_size=1) | st.lists(one, min_size=length, max_size=length)


def rows_of(logprob: st.SearchStrategy[float], *, current: bool = False) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Lists of ragged rows, some of them empty, with masks that may have holes or be absent."""
    names = ["rollout_logprobs", "old_logprobs", *(["current_logprobs"] if current else [])]

    def row(length: int) -> st.SearchStrategy[dict[str, Any]]:
        values = st.lists(logprob, min_size=length, max_size=length)
        mask = st.none() | st.lists(st.booleans(), min_size=length, max_size=length)
        weighed = {"entropy": values, "advantages": st.none() | advantages(length)}
        return st.fixed_dictionaries({**dict.fromkeys(names, values), **weighed, "mask": mask})

    return st.lists(st.integers(0, 7).flatmap(row), max_size=8)


def sampled_rows(seed: int, *, sequences: int, longest: int, noise: float = 0.05) -> list[dict[str, Any]]:
    """A seeded batch of all three policies, noise apart, with holes in the masks."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(sequences):
        length = int(random.integers(1, longest + 1))
        rollout = -random.exponential(1.5, length)
        old = np.minimum(rollout + random.normal(0, noise, length), 0)
        rows.append(
            {
                "rollout_logprobs": rollout.tolist(),
                "old_logprobs": old.tolist(),
                "current_logprobs": np.minimum(old + random.normal(0, noise, length), 0).tolist(),
                "entropy": random.exponential(1.5, length).tolist(),
                "mask": (random.random(length) > 0.1).tolist(),
                "advantages": random.normal(0, 1, length).tolist(),
            }
        )
    return rows
