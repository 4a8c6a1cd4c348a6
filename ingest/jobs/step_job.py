"""Work on token rows in the background: step by step, with progress, to be cancelled at will; what was done is kept."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

State = Literal["waiting", "running", "done", "cancelled", "failed"]
SAVE_EVERY = 2.0
"""Seconds of work that a killed process loses at most."""
PAUSE = 0.25
"""Share of the time that is left to those who only look at pages."""


class Work(Protocol):
    """What a job does: its pieces, such as steps, one after the other."""

    @property
    def pieces(self) -> Sequence[Any]: ...

    def do(self, piece: Any) -> None:
        """Does one of the pieces."""

    def save(self) -> None:
        """Keeps what was done so far."""


W = TypeVar("W", bound=Work)


@dataclass(frozen=True)
class JobProgress:
    """state, steps done of steps in all, and why the work failed."""

    state: State
    done: int
    total: int
    reason: str = ""

    @property
    def at_work(self) -> bool:
        return self.state in ("waiting", "running")


class StepJob(Generic[W]):
    """One background thread that does the work. turn: held while it works, so that no two jobs of a server work at once."""

    def __init__(self, work: W, turn: threading.Lock) -> None:
        self.work = work
        self._turn = turn
        self._stop = threading.Event()
        self._progress = JobProgress("waiting" if work.pieces else "done", 0, len(work.pieces))
        self._thread = threading.Thread(target=self._run, name="ratioscope job", daemon=True)

    @property
    def progress(self) -> JobProgress:
        return self._progress

    def start(self) -> None:
        if self.work.pieces:
            self._thread.start()

    def cancel(self) -> None:
        """Stops before the next piece; what was done stays."""
        self._stop.set()

    def wait(self, timeout: float) -> JobProgress:
        """The progress once the job has ended, or after so many seconds."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return self._progress

    def _run(self) -> None:
        while not self._turn.acquire(timeout=0.2):
            if self._stop.is_set():
                self._say("cancelled")
                return
        try:
            self._say("running")
            self._all_pieces()
        except Exception as error:  # nobody is there to catch it: the page says it
            self._say("failed", f"{type(error).__name__}: {error}")
        finally:
            self._turn.release()

    def _all_pieces(self) -> None:
        saved = time.monotonic()
        try:
            for done, piece in enumerate(self.work.pieces):
                if self._stop.is_set():
                    self._say("cancelled")
                    return
                began = time.monotonic()
                self.work.do(piece)
                self._progress = JobProgress("running", done + 1, len(self.work.pieces))
                if time.monotonic() - saved > SAVE_EVERY:
                    self.work.save()
                    saved = time.monotonic()
                self._stop.wait(PAUSE * (time.monotonic() - began))
        finally:
            self.work.save()
        self._say("done")

    def _say(self, state: State, reason: str = "") -> None:
        self._progress = JobProgress(state, self._progress.done, self._progress.total, reason)
