"""Applies corrections to the rows of a run in the background, see step_job.py.

Only steps without a result are read, each of them once for all corrections that lack it. Memory stays that of one step.
"""

import threading
from collections.abc import Sequence

from ..analysis.step_rows import records_of
from ..run import Run
from .correction_results import CorrectionResults, gap_of, step_result
from .step_job import StepJob, settled_rows
from .step_ledger import Digests


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
