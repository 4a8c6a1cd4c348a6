"""Background jobs on token rows, one at a time, and the results that they keep. A server shares them among its sessions."""

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from ratioscope.ingest.analysis.correction_effects import TrainerCorrection
from ratioscope.ingest.analysis.run_comparison import PromptKey
from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.jobs.correction_results import (
    CorrectionJob,
    CorrectionResults,
    CorrectionWork,
    correction_job,
    correction_text,
)
from ratioscope.ingest.jobs.pair_job import PairJob, PairWork, RunSteps
from ratioscope.ingest.jobs.part_job import PartResults, PartWork
from ratioscope.ingest.jobs.step_job import StepJob
from ratioscope.ingest.rows.part import Part
from ratioscope.ingest.run import Run
from ratioscope.metrics.corrections.correction import Correction

Name = TypeVar("Name", bound=Hashable)
AnyLedger = TypeVar("AnyLedger")
LEDGERS = 32
"""Number of ledgers in memory, the latest used. Others are read from the cache again."""
ENDED = 16
"""Number of ended jobs that are remembered with their results."""


class Jobs:
    """The ledgers and the jobs of one process. Threads may share it."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._ledgers: dict[tuple[str, str], CorrectionResults] = {}
        self._parts: dict[tuple[str, Part, str], PartResults] = {}
        self._jobs: dict[str, StepJob[Any]] = {}

    def ledger(self, path: str, correction: Correction | TrainerCorrection) -> CorrectionResults:
        """The known effects of the correction on the run at this path."""
        key = path, correction_text(correction)
        with self._lock:
            return _newest_of(self._ledgers, key, lambda: CorrectionResults(correction, self._cache))

    def part(self, path: str, part: Part, gap: str) -> PartResults:
        """The known statistics of a part of the tokens of the run at this path."""
        with self._lock:
            return _newest_of(self._parts, (path, part, gap), lambda: PartResults(part, gap, self._cache))

    def of(self, name: str) -> StepJob[Any] | None:
        """The latest job of this name, at work or ended."""
        return self._jobs.get(name)

    def corrections(self, path: str) -> CorrectionJob | None:
        """The latest job that computes corrections of the run at this path."""
        job = self.of(path)
        return job if job is not None and isinstance(job.work, CorrectionWork) else None

    def pairs(self, name: str) -> PairJob | None:
        """The latest job of this name that reads pairs."""
        job = self.of(name)
        return job if job is not None and isinstance(job.work, PairWork) else None

    def carry_out(self, path: str, run: Run, ledgers: Sequence[CorrectionResults], steps: Sequence[int]) -> None:
        """Starts to compute corrections. A running job on the run is cancelled; its results are kept."""
        self._start(path, correction_job(run, ledgers, steps, self._turn))

    def read_pairs(self, name: str, parts: Sequence[RunSteps], key: PromptKey, gap: str) -> None:
        """Starts to read the metrics of each prompt in these parts."""
        self._start(name, StepJob(PairWork(parts, key, gap, self._cache), self._turn))

    def read_part(self, name: str, run: Run, results: PartResults, steps: Sequence[int]) -> None:
        """Starts to read the token rows of these steps that the results lack."""
        self._start(name, StepJob(PartWork(run, results, steps), self._turn))

    def _start(self, name: str, job: StepJob[Any]) -> None:
        with self._lock:
            before = self._jobs.pop(name, None)
            self._jobs[name] = job
            ended = [other for other, known in self._jobs.items() if not known.progress.at_work]
            for oldest in ended[:-ENDED]:
                del self._jobs[oldest]
        if before is not None:
            before.cancel()
        job.start()


def _newest_of(ledgers: dict[Name, AnyLedger], key: Name, make: Callable[[], AnyLedger]) -> AnyLedger:
    """The ledger of this key, made where there is none; the oldest beyond LEDGERS are forgotten."""
    ledger = ledgers.pop(key, None) or make()
    ledgers[key] = ledger
    for oldest in list(ledgers)[:-LEDGERS]:
        del ledgers[oldest]
    return ledger
