"""Contenders in processes of their own, and turns that they take; one that cannot run has a reason in its place."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".venv" / "peers"
"""`make bench` installs the contenders here, so that ratioscope's own packages stay as they are."""
OURS = sys.executable
THEIRS = str(PEERS / "bin" / "python")


@dataclass(frozen=True)
class Answer:
    """The time of one piece of work in seconds, and the number that it returned, if any."""

    wall: float
    cpu: float
    value: float | None


class Worker:
    """The process of a contender. `missing` says why it cannot run; it is empty where it can."""

    def __init__(self, function: str, given: Mapping[str, Any], python: str = THEIRS, path: str = "") -> None:
        self.missing = "" if Path(python).exists() else "`make bench` could not make its environment"
        self.works: list[str] = []
        if not self.missing:
            self._start(function, given, python, path)

    def _start(self, function: str, given: Mapping[str, Any], python: str, path: str) -> None:
        self._process = subprocess.Popen(
            [python, "-m", f"{__package__}.contenders.worker", function, json.dumps(given)],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": path,
                "HF_HUB_OFFLINE": "1",
                "DAFT_PROGRESS_BAR": "0",
                "DO_NOT_TRACK": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        told = self._told()
        self.missing, self.works = told.get("missing", ""), told.get("works", [])

    def __call__(self, work: str, number: int = 0) -> Answer:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{work} {number}\n")
        self._process.stdin.flush()
        return Answer(**self._told())

    def _told(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args!r} ended with {self._process.wait()}")
        told: dict[str, Any] = json.loads(line)
        return told

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if hasattr(self, "_process"):
            self._process.communicate()


def told_missing(workers: Mapping[str, Worker]) -> tuple[str, ...]:
    """A sentence for each that cannot run."""
    return tuple(
        f"{name}: not measured, because {worker.missing}." for name, worker in workers.items() if worker.missing
    )


def calls(workers: Mapping[str, Worker], work: str, number: int = 0) -> dict[str, Callable[[], Answer]]:
    """The work of each that has it."""

    def called(worker: Worker) -> Callable[[], Answer]:
        return lambda: worker(work, number)

    return {name: called(worker) for name, worker in workers.items() if work in worker.works}
