"""What each prompt measures in a run, so that two runs can be compared prompt by prompt. Read from token rows, then cached."""

import hashlib
from collections.abc import Sequence
from typing import Literal

import polars as pl
import pyarrow as pa

from ..files.cache import Cache, cache_key
from ..files.cache_folder import cache_folder
from ..files.progress import OnProgress
from ..rows.text_columns import changed
from ..run import Run

Key = Literal["prompt_text", "group_id", "sequence_id"]
KEYS: dict[Key, str] = {
    "prompt_text": "the same prompt, by the digest of its text",
    "group_id": "the same group_id: sound only where both runs give a prompt the same one",
    "sequence_id": "the same sequence_id: sound only where both runs measured the same samples",
}
"""What makes two rows partners, the surest first."""
METRICS = ("kl_k3", "abs_log_ratio")
"""What is measured per prompt: means over its unmasked tokens."""


def prompt_table(
    run: Run, steps: range, key: Key, gap: str, *, progress: OnProgress | None = None, cache: Cache | None = None
) -> pl.DataFrame:
    """One row per key of the token rows of these steps: key (a digest), sequences, tokens, and METRICS of the gap.

    Rows without a key are left out. Only rows that were kept can be paired; a budget's are a sample.
    """
    reading = PromptTable(run, steps, key, gap, Cache(cache_folder()) if cache is None else cache)
    for done, step in enumerate(sorted(reading.left), start=1):
        reading.read(step)
        if progress is not None:
            progress(done, len(reading.chosen))
    reading.keep()
    return reading.total


class PromptTable:
    """A prompt table as it is read. total: of what has been read; chosen: its steps; left: those to read, none if it was kept."""

    def __init__(self, run: Run, steps: range, key: Key, gap: str, cache: Cache) -> None:
        self._key: Key = key
        self._run, self._gap, self._cache = run, gap, cache
        self.chosen = [step for step in run.steps if step in steps]
        last = map(str, self.chosen[-1:])
        self._name = cache_key(["paired", key, gap, run.digest, f"{steps.start}:{steps.stop}", *last])
        kept = cache.load(self._name)
        self.total = _EMPTY if kept is None else _frame(kept)
        self.left = set(self.chosen) if kept is None else set[int]()

    def read(self, step: int) -> None:
        self.total = _added([self.total, _of_step(self._run.sequences(step), self._key, self._gap)])
        self.left.discard(step)

    def keep(self) -> None:
        """In the cache, once all of it has been read."""
        if not self.left:
            self._cache.store(self._name, self.total.to_arrow())


def merged_tables(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Tables of several runs as one: sums over a key's tokens, whichever run they are of."""
    return _added([_EMPTY, *tables])


def of_metric(table: pl.DataFrame, metric: str) -> pl.DataFrame:
    """key and value, for `paired`: the mean of the metric over the key's tokens."""
    return table.select("key", value=pl.col(metric) / pl.col("tokens"))


_EMPTY = pl.DataFrame(
    schema={"key": pl.String, "sequences": pl.Int64, "tokens": pl.Int64, **dict.fromkeys(METRICS, pl.Float64)}
)


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _of_step(sequences: pl.DataFrame, key: Key, gap: str) -> pl.DataFrame:
    """Sums over tokens, so that steps add."""
    tokens = f"{gap}/tokens"
    if tokens not in sequences.columns or key not in sequences.columns:
        return _EMPTY
    rows = sequences.drop_nulls([key, tokens]).filter(pl.col(tokens) > 0)
    return changed(rows, _digest, key).select(
        key=pl.col(key),
        sequences=pl.lit(1, pl.Int64),
        tokens=pl.col(tokens).cast(pl.Int64),
        **{metric: pl.col(f"{gap}/{metric}") * pl.col(tokens) for metric in METRICS},
    )


def _added(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(tables).group_by("key").agg(pl.all().sum()).sort("key")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
