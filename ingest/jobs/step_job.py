"""Work on token rows in a background thread: step by step, with progress. It can be cancelled; finished steps are kept.

The token rows of a step together with the digest that says which rows they are.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import pyarrow as pa

from ..run import Run

JobState = Literal["waiting", "running", "done", "cancelled", "failed"]
SAVE_EVERY = 2.0
"""Seconds of work that are lost at most when the process is killed."""
PAUSE = 0.25
"""Pause after a piece, as a share of the time it took, so that pages stay responsive."""

READINGS = 4
"""Times that one step is read at most. A damaged file is set aside when it is read, and a step being written grows: rows count
only if the step has the same files after reading as before."""


class Work(Protocol):
    """The work of a job: pieces, such as steps, that are done one after the other."""

    @property
    def pieces(self) -> Sequence[Any]: ...

    def do(self, piece: Any) -> None:
        """Does one of the pieces."""

    def save(self) -> None:
        """Keeps the pieces that were done so far."""


W = TypeVar("W", bound=Work)


@dataclass(frozen=True)
class JobProgress:
    """The progress of a job."""

    state: JobState
    done: int
    """Pieces done."""
    total: int
    """Pieces in all."""
    reason: str = ""
    """Why the work failed; "" where it did not."""

    @property
    def at_work(self) -> bool:
        return self.state in ("waiting", "running")


class StepJob(Generic[W]):
    """A background thread that does the work. turn: a lock held while it works, so that a server runs one job at a time."""

    def __init__(self, work: W, turn: threading.Lock) -> None:
        self.work = work
        self._turn = turn
        self._stop = threading.Event()
        self.progress = JobProgress("waiting" if work.pieces else "done", 0, len(work.pieces))
        self._thread = threading.Thread(target=self._run, name="ratioscope job", daemon=True)

    def start(self) -> None:
        if self.work.pieces:
            self._thread.start()

    def cancel(self) -> None:
        """Stops before the next piece. Finished pieces are kept."""
        self._stop.set()

    def wait(self, timeout: float) -> JobProgress:
        """The progress when the job has ended, or after `timeout` seconds."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return self.progress

    def _run(self) -> None:
        while not self._turn.acquire(timeout=0.2):
            if self._stop.is_set():
                self._set_state("cancelled")
                return
        try:
            self._set_state("running")
            self._all_pieces()
        except Exception as error:  # nothing above this thread could catch it; the page shows the reason
            self._set_state("failed", f"{type(error).__name__}: {error}")
        finally:
            self._turn.release()

    def _all_pieces(self) -> None:
        saved = time.monotonic()
        try:
            for done, piece in enumerate(self.work.pieces):
                if self._stop.is_set():
                    self._set_state("cancelled")
                    return
                began = time.monotonic()
                self.work.do(piece)
                self.progress = JobProgress("running", done + 1, len(self.work.pieces))
                if time.monotonic() - saved > SAVE_EVERY:
                    self.work.save()
                    saved = time.monotonic()
                self._stop.wait(PAUSE * (time.monotonic() - began))
        finally:
            self.work.save()
        self._set_state("done")

    def _set_state(self, state: JobState, reason: str = "") -> None:
        self.progress = JobProgress(state, self.progress.done, self.progress.total, reason)


def settled_rows(
    run: Run, step: int, read: Callable[[Run, int], pa.Table], gap: str = ""
) -> tuple[str, pa.Table] | None:
    """(digest, rows) of the step; None where it has no token rows, or grows faster than it is read.

    gap: of readings; the rows then have its readings, and the digest covers them.
    """
    digest, records = None, None
    for _ in range(READINGS):
        digest, before = run.row_digests([step], gap).get(step), digest
        if digest is None or digest == before:
            return None if digest is None or records is None else (digest, records)
        rows = read(run, step)
        records = run.beside(rows, step, gap) if gap else rows
    return None
