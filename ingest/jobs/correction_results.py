"""The effect of one correction on each step of a run, as far as it was computed: see step_ledger.py.

The missing results are computed in the background, see step_job.py. Only steps without a result are read, each of them once for
all corrections that lack it. Memory stays that of one step.
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from ratioscope.errors import RatioscopeError
from ratioscope.metrics.corrections.correction import Correction
from ratioscope.metrics.corrections.effect import SUMS, carried_out, corrected_weights
from ratioscope.metrics.dialects.effect import dialect_carried_out
from ratioscope.record import GAPS

from ..analysis.correction_effects import TrainerCorrection
from ..analysis.step_rows import records_of
from ..files.cache import Cache
from ..run import Run
from .step_job import StepJob, settled_rows
from .step_ledger import KEYS, Digests, Schema, StepLedger

AnyCorrection = Correction | TrainerCorrection

SCHEMA: Schema = {
    **KEYS,
    "gap": pl.String,
    "reason": pl.String,
    "sampled": pl.Boolean,
    **dict.fromkeys(SUMS, pl.Float64),
    "buckets": pl.List(pl.Int64),
    "counts": pl.List(pl.Float64),
}
"""gap: the gap that the correction read; null where it could not be applied, and then `reason` says why. sampled: a budget kept
rows by chance, so sums and counts are estimates. buckets, counts: see metrics/corrections/effect.py."""


@dataclass(frozen=True)
class StepResult:
    """The effect of a correction on one step: one row of SCHEMA, where the fields are explained."""

    step: int
    digest: str
    """The digest of the step's rows that the effect was computed from."""
    gap: str | None
    reason: str | None
    sampled: bool
    """True if a budget kept rows by chance, so that the numbers are estimates."""
    sums: tuple[float, ...]
    """One per name of SUMS."""
    buckets: tuple[int, ...] = ()
    """Occupied buckets of the log of the weights that are left."""
    counts: tuple[float, ...] = ()
    """Tokens in each of them."""


def step_result(records: pa.Table, correction: AnyCorrection, step: int, digest: str) -> StepResult:
    """The correction applied to the rows of one step. `reason` is set where the rows lack something that it reads."""
    try:
        if isinstance(correction, Correction):
            applied = list(carried_out(records, correction))
        else:
            applied = list(
                dialect_carried_out(
                    records, correction.dialect, correction.config, version=correction.version, title=correction.title
                )
            )
    except RatioscopeError as error:
        return StepResult(step, digest, None, str(error), False, (0.0,) * len(SUMS))
    if not applied:
        gap = correction.gap if isinstance(correction, Correction) else "mismatch"
        return StepResult(step, digest, None, f"no row has both policies of {gap}", False, (0.0,) * len(SUMS))
    sums = pa.concat_tables([each.sums() for each in applied])
    left = [corrected_weights(each) for each in applied]
    return StepResult(
        step,
        digest,
        applied[0].correction.gap,
        None,
        any(each.times is not None for each in applied),
        tuple(float(sums[name].to_numpy().sum()) for name in SUMS),
        tuple(int(bucket) for buckets, _ in left for bucket in buckets),
        tuple(float(count) for _, counts in left for count in counts),
    )


def effects(records: pa.Table, corrections: Sequence[AnyCorrection], step: int, digest: str) -> pa.Table:
    """`step_result` of each correction, as a row of SCHEMA."""
    rows = [_row(step_result(records, each, step, digest)) for each in corrections]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").to_arrow()


def _row(result: StepResult) -> tuple[object, ...]:
    """The values of SCHEMA."""
    keys = result.step, result.digest, result.gap, result.reason, result.sampled
    return (*keys, *result.sums, result.buckets, result.counts)


def gap_of(correction: AnyCorrection) -> str:
    """The gap of readings that a correction reads; "" for one that reads recorded policies."""
    return correction.gap if isinstance(correction, Correction) and correction.gap not in GAPS else ""


def correction_text(correction: AnyCorrection) -> str:
    """A text that is equal for corrections that do the same, whatever their titles."""
    if isinstance(correction, Correction):
        return repr((correction.steps, correction.gap))
    config = json.dumps(correction.config, sort_keys=True, default=str)
    return f"{correction.dialect} {correction.version} {config}"


class CorrectionResults:
    """The results of one correction on one run: a ledger of rows of SCHEMA. Threads may share it."""

    def __init__(self, correction: AnyCorrection, cache: Cache) -> None:
        self.correction = correction
        self.ledger = StepLedger(("correction", correction_text(correction)), SCHEMA, cache)

    def add(self, row: StepResult) -> None:
        """Takes the result of one step; `save` of the ledger writes it to the cache."""
        self.ledger.add(pl.DataFrame([_row(row)], schema=SCHEMA, orient="row"))


class CorrectionWork:
    """Computes the results that are missing. pieces: the steps for which one of the corrections has no result."""

    def __init__(self, run: Run, results: Sequence[CorrectionResults], steps: Sequence[int]) -> None:
        self._run, self.results = run, tuple(results)
        self._gaps = tuple(dict.fromkeys(gap_of(each.correction) for each in self.results))
        self._digests = {gap: run.row_digests(gap=gap) for gap in self._gaps}
        self._missing = {
            each: frozenset(each.ledger.missing(self._digests[gap_of(each.correction)], steps)) for each in self.results
        }
        self.pieces: Sequence[int] = sorted(frozenset().union(*self._missing.values()))

    def do(self, piece: int) -> None:
        for gap in self._gaps:
            wanted = [each for each in self.results if gap_of(each.correction) == gap and piece in self._missing[each]]
            if not wanted or (settled := settled_rows(self._run, piece, records_of, gap)) is None:
                continue
            digest, records = settled
            for each in wanted:
                each.add(step_result(records, each.correction, piece, digest))

    def save(self) -> None:
        for gap, digests in self._digests.items():
            newest: Digests = {**digests, **self._run.row_digests(self.pieces, gap)}
            for each in self.results:
                if gap_of(each.correction) == gap:
                    each.ledger.save(newest)


CorrectionJob = StepJob[CorrectionWork]


def correction_job(
    run: Run, ledgers: Sequence[CorrectionResults], steps: Sequence[int], turn: threading.Lock
) -> CorrectionJob:
    """A job that carries out what these ledgers lack of these steps."""
    return StepJob(CorrectionWork(run, ledgers, steps), turn)
