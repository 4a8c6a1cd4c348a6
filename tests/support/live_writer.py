"""A trainer for the tests of live pages: a process of its own that records a step whenever it is told to."""

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from support.serving import DEADLINE, killed_after

RECORD = """
import sys
import numpy as np
from ratioscope.collectors.collector import Collector

with Collector(sys.argv[1], name="live") as collector:
    print("ready", flush=True)
    step = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            draws = np.random.default_rng(step)
            rollout = [(-draws.exponential(1.0, 30)).tolist() for _ in range(6)]
            old = [[min(0.0, value + float(draws.normal(0, float(sys.argv[2])))) for value in row] for row in rollout]
            ids = [f"{step}-{row}" for row in range(6)]
            collector.log(step=step, rollout_logprobs=rollout, old_logprobs=old, sequence_ids=ids)
            collector.flush(timeout=60)
            step += 1
        print(step, flush=True)
"""


class Writer:
    """The process, running while the context is open; it closes its log unless it was killed.

    noise: standard deviation of every token's log-ratio; from 0.5 on every step is one to act on.
    """

    def __init__(self, run: Path, noise: float = 0.05) -> None:
        self._command = [sys.executable, "-c", RECORD, str(run), str(noise)]

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._said() == "ready\n"
        return self

    def write(self, steps: int = 1) -> int:
        """Records so many steps and waits until they are committed; how many there are then."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        said = self._said()
        assert said, f"the writer has ended, or committed no {steps} steps within {DEADLINE} s"
        return int(said)

    def _said(self) -> str:
        """The next line that the process prints; empty once it has ended."""
        assert self.process.stdout is not None
        with killed_after(DEADLINE, self.process):
            return self.process.stdout.readline()

    def close(self) -> None:
        """Ends the recording in order."""
        if self.process.poll() is None:
            self.process.communicate(timeout=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
