"""Corrections carried out on a run in the background, see step_job.py.

Only steps that a ledger lacks are read, and each of them once for all corrections that lack it; memory stays that of a step.
"""

import threading
from collections.abc import Sequence

from ..analysis.step_rows import records_of
from ..run import Run
from .correction_results import CorrectionResults, Digests, step_result
from .step_job import StepJob

READINGS = 4
"""Of one step at most: a damaged file leaves the run when it is read, and a step at work may grow, so rows count once the
files after reading are those before.
"""


class CorrectionWork:
    """Fills ledgers. pieces: the steps that one of them lacks."""

    def __init__(self, run: Run, ledgers: Sequence[CorrectionResults], steps: Sequence[int]) -> None:
        self._run, self.ledgers = run, tuple(ledgers)
        self._digests = run.row_digests()
        self._missing = {ledger: frozenset(ledger.missing(self._digests, steps)) for ledger in self.ledgers}
        self.pieces: Sequence[int] = sorted(frozenset().union(*self._missing.values()))

    def do(self, piece: int) -> None:
        digest, records = None, None
        for _ in range(READINGS):
            digest, before = self._run.row_digests([piece]).get(piece), digest
            if digest is None or digest == before:
                break
            records = records_of(self._run, piece)
        else:
            return  # it grows faster than it is read: a later job finds it missing
        if digest is None or records is None:
            return
        for ledger in self.ledgers:
            if piece in self._missing[ledger]:
                ledger.add(step_result(records, ledger.correction, piece, digest))

    def save(self) -> None:
        digests: Digests = {**self._digests, **self._run.row_digests(self.pieces)}
        for ledger in self.ledgers:
            ledger.save(digests)


CorrectionJob = StepJob[CorrectionWork]


def correction_job(
    run: Run, ledgers: Sequence[CorrectionResults], steps: Sequence[int], turn: threading.Lock
) -> CorrectionJob:
    """A job that carries out what these ledgers lack of these steps."""
    return StepJob(CorrectionWork(run, ledgers, steps), turn)
