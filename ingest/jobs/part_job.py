"""Computes the statistics of a part of the tokens step by step: see step_job.py, step_ledger.py, analysis/part_rows.py."""

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.statistics_table import schema
from ratioscope.record import GAPS

from ..analysis.part_rows import part_columns, part_statistics
from ..analysis.step_rows import columns_of
from ..files.cache import Cache
from ..rows.part import Part, part_text
from ..run import Run
from ..statistics.row_statistics import frame_of
from .step_job import settled_rows
from .step_ledger import KEYS, Digests, StepLedger

READ = ("mask", "minibatch", "entropy", "advantages", "inclusion_probability")
READ_MARK = "read"
"""The slice of a row that says that a step was read: a step without a token of the part has no other row."""


class PartResults:
    """The statistics of one part at one gap of one run, by step, as far as they were computed."""

    def __init__(self, part: Part, gap: str, cache: Cache) -> None:
        self.part, self.gap = part, gap
        own = frame_of(schema().empty_table()).drop("step").schema
        self.ledger = StepLedger(("part", part_text(part), gap), {**KEYS, "sampled": pl.Boolean, **own}, cache)

    def statistics(self, digests: Digests) -> pl.DataFrame:
        """The statistics as rows of the engine's schema, of the steps that were read and have a token of the part."""
        return self.ledger.frame(digests).filter(pl.col("slice") != READ_MARK).drop("digest", "sampled")

    def sampled(self, digests: Digests) -> bool:
        """True if a budget kept rows of these steps by chance, so that statistics are estimates."""
        return bool(self.ledger.frame(digests)["sampled"].any())

    def add(self, step: int, digest: str, statistics: pa.Table, *, sampled: bool) -> None:
        """Takes the statistics of one step."""
        mark = pl.DataFrame({"step": [step], "slice": [READ_MARK], "gap": [self.gap], "sampled": [sampled]})
        rows = pl.concat([frame_of(statistics), mark], how="diagonal_relaxed")
        self.ledger.add(rows.with_columns(pl.lit(digest).alias("digest"), pl.lit(step).alias("step")))


class PartWork:
    """Reads the steps that the results lack. pieces: these steps."""

    def __init__(self, run: Run, results: PartResults, steps: Sequence[int]) -> None:
        self._run, self.results = run, results
        self.digests = part_digests(run, results.gap)
        self.pieces: Sequence[int] = results.ledger.missing(self.digests, steps)

    def do(self, piece: int) -> None:
        part, gap = self.results.part, self.results.gap
        columns = (*READ, *part_columns(part))
        settled = settled_rows(self._run, piece, lambda run, step: columns_of(run, step, columns, gap))
        if settled is not None:
            digest, records = settled
            sampled = bool(pc.any(pc.less(records["inclusion_probability"], 1.0)).as_py())
            self.results.add(
                piece, digest + run_suffix(self._run, gap), part_statistics(records, gap, part), sampled=sampled
            )

    def save(self) -> None:
        self.results.ledger.save(self.digests)


def part_digests(run: Run, gap: str) -> dict[int, str]:
    """step -> the digest of all that the statistics of the gap at the step depend on. Steps without token rows are left out."""
    suffix, rows = run_suffix(run, gap), run.rows_on_disk
    return {step: digest + suffix for step, digest in run.row_digests().items() if rows.get(step)}


def run_suffix(run: Run, gap: str) -> str:
    """The part that a gap of readings adds to the digests of the rows."""
    return "" if gap in GAPS else f" {run.reading_digest(gap)}"
