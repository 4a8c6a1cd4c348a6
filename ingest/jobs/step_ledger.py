"""Results by step, as far as they were computed from token rows. Memory and the cache hold them.

Each row has the digest of the token rows it was computed from, and counts only while the step has these rows. The cache holds
blocks of steps; a lost or damaged block is computed again.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from ratioscope.metrics.pieces import portions

from ..files.cache import Cache, cache_key

BLOCK = 512
"""Steps in one table of the cache. Large enough that a long run has few files, small enough to rewrite for one more step."""
Schema = Mapping[str, pl.DataType | type[pl.DataType]]
KEYS: Schema = {"step": pl.Int64, "digest": pl.String}
"""Columns of every ledger."""
Digests = Mapping[int, str]
"""step -> digest of its token rows, see Run.row_digests."""


class StepLedger:
    """One or more rows per step, for what `name` says. Threads may share it."""

    def __init__(self, name: Sequence[str], schema: Schema, cache: Cache) -> None:
        self._name, self._schema, self._cache = tuple(name), schema, cache
        self._lock = threading.RLock()
        self._kept = pl.DataFrame(schema=schema)
        self._new: list[pl.DataFrame] = []
        self._unsaved: set[int] = set()
        self._loaded: set[str] = set()

    def frame(self, digests: Digests) -> pl.DataFrame:
        """The rows, ascending by step. Only steps whose token rows still have the digest they were computed from."""
        with self._lock:
            self._load(digests)
            current = pl.DataFrame({"step": list(digests), "digest": list(digests.values())}, schema_overrides=KEYS)
            return self._folded().join(current, on=["step", "digest"], how="semi").sort("step", maintain_order=True)

    def missing(self, digests: Digests, steps: Iterable[int]) -> list[int]:
        """Those of the steps that have token rows and no result."""
        done = set(self.frame(digests)["step"].to_list())
        return [step for step in steps if step in digests and step not in done]

    def add(self, rows: pl.DataFrame) -> None:
        """Takes all rows of one step, in place of what is known of it; `save` writes them to the cache."""
        with self._lock:
            self._new.append(rows.select(pl.col(name).cast(kind) for name, kind in self._schema.items()))
            self._unsaved.update(rows["step"].to_list())

    def save(self, digests: Digests) -> None:
        """Writes the rows that were added since the last call to the cache. digests: of the whole run."""
        with self._lock:
            frame = self._folded().sort("step", maintain_order=True)  # the same bytes in whatever order steps ended
            for key, steps in self.blocks(digests).items():
                if not self._unsaved.isdisjoint(steps):
                    self._cache.store(key, frame.filter(pl.col("step").is_in(list(steps))).to_arrow())
                    self._loaded.add(key)
            self._unsaved = set()

    def _folded(self) -> pl.DataFrame:
        if self._new:
            rows = pl.concat({rows["step"][0]: rows for rows in self._new}.values())
            self._kept = pl.concat([self._kept.join(rows, on="step", how="anti"), rows])
            self._new = []
        return self._kept

    def _load(self, digests: Digests) -> None:
        for key in self.blocks(digests):
            if key not in self._loaded:
                self._loaded.add(key)
                table = self._cache.load(key)
                if table is not None and dict((frame := pl.DataFrame(table)).schema) == dict(self._schema):
                    own = self._folded()
                    self._kept = pl.concat([frame.join(own, on="step", how="anti"), own])

    def blocks(self, digests: Digests) -> dict[str, Sequence[int]]:
        """Cache key -> steps of the block. The key is made of the first step's digest, so a growing run adds to the last one."""
        steps = sorted(digests)
        return {cache_key((*self._name, digests[block[0]])): block for block in portions(steps, BLOCK)}
