"""Two runs compared: prompt by prompt, and the first step from which they are apart.

Metrics per prompt of a run, so that two runs can be compared by prompt. They are computed from token rows and cached.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from ratioscope.metrics.analysis.comparison import Paired, first_apart, paired
from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.record import GAPS

from ..files.cache import Cache, cache_key
from ..files.cache_folder import cache_folder
from ..files.progress import OnProgress
from ..rows.text_columns import changed
from ..run import Run

METRICS = ("kl_k3", "abs_log_ratio")
"""Metrics per prompt: means over its unmasked tokens."""

PromptKey = Literal["prompt_text", "group_id", "sequence_id"]

BY_ITSELF: tuple[PromptKey, ...] = ("prompt_text", "group_id")
"""Keys that are tried unless one is named. A sequence_id tells nothing of the prompt."""


@dataclass(frozen=True)
class PairedRuns:
    """Two runs compared prompt by prompt."""

    key: PromptKey
    metric: str
    pairs: Paired
    """The pairs, and the difference over them."""

    @property
    def caution(self) -> str:
        """The facts that partners have in common, and when that is sound."""
        return KEYS[self.key]


@dataclass(frozen=True)
class Parting:
    """The first step from which two runs are apart."""

    step: int
    a: float
    """The value of the first run at the step."""
    b: float
    """The value of the second run."""
    compared: int
    """Number of steps that both runs have."""


def paired_runs(a: Run, b: Run, gap: str, key: PromptKey | None = None) -> PairedRuns | None:
    """The comparison by prompt; None if no key has two partners. key: None tries those of BY_ITSELF. Reads all token rows."""
    metric = size_metric(gap) if size_metric(gap) in METRICS else "abs_log_ratio"
    for name in BY_ITSELF if key is None else (key,):
        tables = [prompt_table(run, _all(run), name, gap) for run in (a, b)]
        pairs = paired(*(of_metric(table, metric) for table in tables))
        if pairs.pairs > 1:
            return PairedRuns(name, metric, pairs)
    return None


def parting(a: Run, b: Run, gap: str) -> Parting | None:
    """The first of two adjacent common steps on which the gap's size differs beyond chance; None if there is none."""
    column = f"{gap}/{size_metric(gap)}"
    frames = [run.metrics(by=("step",), names=(size_metric(gap),), gap=asked_gap(gap)) for run in (a, b)]
    if not all(column in frame.columns and f"{column}_se" in frame.columns for frame in frames):
        return None
    one, other = (frame.select("step", value=column, error=f"{column}_se") for frame in frames)
    both = one.join(other, on="step", suffix="_b").sort("step").drop_nulls(["value", "value_b"])
    values = [both[name].cast(float).fill_null(np.nan).to_numpy() for name in ("value", "error", "value_b", "error_b")]
    at = first_apart(*values)
    return None if at is None else Parting(both["step"][at], values[0][at], values[2][at], len(both))


def asked_gap(gap: str) -> str | None:
    """The gap that Run.metrics is asked for: one with a reading; None for all of GAPS at once."""
    return None if gap in GAPS else gap


def _all(run: Run) -> range:
    return range(run.steps[0], run.steps[-1] + 1) if run.steps else range(0)


KEYS: dict[PromptKey, str] = {
    "prompt_text": "the same prompt, found by the digest of its text",
    "group_id": "the same group_id: sound only where both runs give a prompt the same one",
    "sequence_id": "the same sequence_id: sound only where both runs measured the same samples",
}
"""Columns by which rows of two runs can be paired, the most reliable first."""


def prompt_table(
    run: Run, steps: range, key: PromptKey, gap: str, *, progress: OnProgress | None = None, cache: Cache | None = None
) -> pl.DataFrame:
    """One row per prompt in the token rows of these steps: key (a digest), sequences, tokens, and METRICS of the gap.

    Rows without a key are left out. Only rows on disk count: where a budget left rows out, they are a sample.
    """
    table = PromptTable(run, steps, key, gap, Cache(cache_folder()) if cache is None else cache)
    for done, step in enumerate(sorted(table.unread), start=1):
        table.read(step)
        if progress is not None:
            progress(done, len(table.steps))
    table.save()
    return table.total


class PromptTable:
    """A prompt table that is filled step by step.

    total: the table of the steps read so far. steps: all its steps. unread: steps still to read; none if the cache had the table.
    """

    def __init__(self, run: Run, steps: range, key: PromptKey, gap: str, cache: Cache) -> None:
        self._key: PromptKey = key
        self._run, self._gap, self._cache = run, gap, cache
        self.steps = [step for step in run.steps if step in steps]
        last = map(str, self.steps[-1:])
        self._name = cache_key(
            ["paired by own texts", key, gap, run.digest, *self._of_readings(), f"{steps.start}:{steps.stop}", *last]
        )
        cached = cache.load(self._name)
        self.total = _EMPTY if cached is None else pl.DataFrame(cached)
        self.unread = set(self.steps) if cached is None else set[int]()

    def read(self, step: int) -> None:
        """Adds the rows of one step."""
        sequences = self._run.sequences_to_pair(step, gap=None if self._gap in GAPS else self._gap)
        self.total = _added([self.total, _of_step(sequences, self._key, self._gap)])
        self.unread.discard(step)

    def _of_readings(self) -> list[str]:
        return [self._run.reading_digest(self._gap)] if self._gap not in GAPS else []

    def save(self) -> None:
        """Writes the table to the cache, if all steps have been read."""
        if not self.unread:
            self._cache.store(self._name, self.total.to_arrow())


def merged_tables(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The prompt tables of several runs as one: sums over all tokens of a key."""
    return _added([_EMPTY, *tables])


def of_metric(table: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Columns key and value (mean of the metric over the key's tokens), as `comparison.paired` takes them."""
    return table.select("key", value=pl.col(metric) / pl.col("tokens"))


_EMPTY = pl.DataFrame(
    schema={"key": pl.String, "sequences": pl.Int64, "tokens": pl.Int64, **dict.fromkeys(METRICS, pl.Float64)}
)


def _of_step(sequences: pl.DataFrame, key: PromptKey, gap: str) -> pl.DataFrame:
    """The table of one step. Metrics are sums over tokens, so that steps can be added."""
    tokens = f"{gap}/tokens"
    if tokens not in sequences.columns or key not in sequences.columns:
        return _EMPTY
    rows = sequences.drop_nulls([key, tokens]).filter(pl.col(tokens) > 0)
    return changed(rows, _digest, key).select(
        key=pl.col(key),
        sequences=pl.lit(1, pl.Int64),
        tokens=pl.col(tokens).cast(pl.Int64),
        **{metric: _sum_of(f"{gap}/{metric}", tokens, rows.columns) for metric in METRICS},
    )


def _sum_of(column: str, tokens: str, columns: Sequence[str]) -> pl.Expr:
    """A mean over tokens as a sum; NaN for a metric that the gap does not have, as drift has no kl_k3."""
    return pl.col(column) * pl.col(tokens) if column in columns else pl.lit(math.nan)


def _added(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(tables).group_by("key").agg(pl.all().sum()).sort("key")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
