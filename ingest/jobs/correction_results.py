"""What one correction does to each step of a run, as far as it has been computed: in memory and in the cache.

A row per step, with the digest of the token rows it was made of, so that a row counts only as long as these are the rows
on record. Cached in blocks of steps outside the run; a lost or damaged block is computed again.
"""

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from ratioscope.errors import RatioscopeError
from ratioscope.metrics.corrections.correction import Correction
from ratioscope.metrics.corrections.effect import SUMS, carried_out
from ratioscope.metrics.corrections.weights_left import weights_left
from ratioscope.metrics.dialects.effect import dialect_carried_out

from ..analysis.correction_effects import TrainerCorrection
from ..files.cache import Cache, cache_key

BLOCK = 512
"""Steps of a table in the cache: few files to read for a long run, little to write again for a step more."""
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "step": pl.Int64,
    "digest": pl.String,
    "gap": pl.String,
    "reason": pl.String,
    "sampled": pl.Boolean,
    **dict.fromkeys(SUMS, pl.Float64),
    "buckets": pl.List(pl.Int64),
    "counts": pl.List(pl.Float64),
}
"""gap: which one the correction read, null with the `reason` where it could not be carried out. sampled: rows were kept by
chance, so that sums and counts are estimates. buckets, counts: see weights_left."""
Digests = Mapping[int, str]
"""step -> digest of its token rows, see Run.row_digests."""


@dataclass(frozen=True)
class StepResult:
    """One row of SCHEMA."""

    step: int
    digest: str
    gap: str | None
    reason: str | None
    sampled: bool
    sums: tuple[float, ...]
    buckets: tuple[int, ...] = ()
    counts: tuple[float, ...] = ()


def step_result(records: pa.Table, correction: Correction | TrainerCorrection, step: int, digest: str) -> StepResult:
    """The correction carried out on the rows of one step; `reason` where it reads what they do not have."""
    try:
        if isinstance(correction, Correction):
            found = list(carried_out(records, correction))
        else:
            theirs = dialect_carried_out(
                records, correction.dialect, correction.config, version=correction.version, title=correction.title
            )
            found = [each for each, _ in theirs]
    except RatioscopeError as error:
        return StepResult(step, digest, None, str(error), False, (0.0,) * len(SUMS))
    if not found:
        gap = correction.gap if isinstance(correction, Correction) else "mismatch"
        return StepResult(step, digest, None, f"no row has both policies of {gap}", False, (0.0,) * len(SUMS))
    sums = pa.concat_tables([each.sums() for each in found])
    left = [weights_left(each) for each in found]
    return StepResult(
        step,
        digest,
        found[0].correction.gap,
        None,
        any(each.times is not None for each in found),
        tuple(float(sums[name].to_numpy().sum()) for name in SUMS),
        tuple(int(bucket) for buckets, _ in left for bucket in buckets),
        tuple(float(count) for _, counts in left for count in counts),
    )


def correction_text(correction: Correction | TrainerCorrection) -> str:
    """What a correction does, as text that is equal for equal corrections, whatever they are called."""
    if isinstance(correction, Correction):
        return repr((correction.steps, correction.gap))
    config = json.dumps(correction.config, sort_keys=True, default=str)
    return f"{correction.dialect} {correction.version} {config}"


class CorrectionResults:
    """The rows of one correction on one run. Threads may share it."""

    def __init__(self, correction: Correction | TrainerCorrection, cache: Cache) -> None:
        self.correction = correction
        self._cache = cache
        self._lock = threading.RLock()
        self._kept = pl.DataFrame(schema=SCHEMA)
        self._new: list[StepResult] = []
        self._unsaved: set[int] = set()
        self._loaded: set[str] = set()

    def frame(self, digests: Digests) -> pl.DataFrame:
        """Rows of SCHEMA of the steps that were computed from the very rows that are on record, ascending."""
        with self._lock:
            self._load(digests)
            wanted = pl.DataFrame({"step": list(digests), "digest": list(digests.values())}, schema_overrides=_KEYS)
            return self._folded().join(wanted, on=["step", "digest"], how="semi").sort("step")

    def missing(self, digests: Digests, steps: Iterable[int]) -> list[int]:
        """Those of the steps that have token rows and no row here."""
        done = set(self.frame(digests)["step"].to_list())
        return [step for step in steps if step in digests and step not in done]

    def add(self, row: StepResult) -> None:
        with self._lock:
            self._new.append(row)
            self._unsaved.add(row.step)

    def save(self, digests: Digests) -> None:
        """Keeps in the cache what was added since the last call. digests: those of the whole run."""
        with self._lock:
            kept = self._folded()
            for key, steps in self._blocks(digests).items():
                if not self._unsaved.isdisjoint(steps):
                    self._cache.store(key, kept.filter(pl.col("step").is_in(list(steps))).to_arrow())
                    self._loaded.add(key)
            self._unsaved = set()

    def _folded(self) -> pl.DataFrame:
        if self._new:
            rows = [(r.step, r.digest, r.gap, r.reason, r.sampled, *r.sums, r.buckets, r.counts) for r in self._new]
            new = pl.DataFrame(rows, schema=SCHEMA, orient="row")
            self._kept = pl.concat([self._kept, new]).unique("step", keep="last", maintain_order=True)
            self._new = []
        return self._kept

    def _load(self, digests: Digests) -> None:
        tables = []
        for key in self._blocks(digests):
            if key not in self._loaded:
                self._loaded.add(key)
                table = self._cache.load(key)
                if table is not None and dict((frame := _frame(table)).schema) == SCHEMA:
                    tables.append(frame)
        if tables:
            self._kept = pl.concat([*tables, self._folded()]).unique("step", keep="last", maintain_order=True)

    def _blocks(self, digests: Digests) -> dict[str, Sequence[int]]:
        """Name in the cache -> steps. A block is named by its first step, so that a growing run adds to the last one."""
        steps = sorted(digests)
        blocks = (steps[start : start + BLOCK] for start in range(0, len(steps), BLOCK))
        own = correction_text(self.correction)
        return {cache_key(("correction", own, digests[block[0]])): block for block in blocks}


_KEYS: dict[str, pl.DataType | type[pl.DataType]] = {"step": pl.Int64, "digest": pl.String}


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
