"""`ratioscope dashboard` as its user starts it: a process of its own, and the URL it prints."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

DEADLINE = 180
"""Seconds that a test waits for a server or a page: far more than either takes on a busy machine."""


@dataclass
class Serving:
    """The running command. said: its first lines; url: what it told to open."""

    process: subprocess.Popen[str]
    said: str
    url: str

    @property
    def root(self) -> str:
        return self.url.split("?")[0].rstrip("/")


@contextmanager
def killed_after(seconds: float, process: subprocess.Popen[str]) -> Iterator[None]:
    """Kills the process if the context has not ended by then: who reads from it reads its end, and does not wait for ever."""
    deadline = Timer(seconds, process.kill)
    deadline.start()
    try:
        yield
    finally:
        deadline.cancel()


@contextmanager
def serving(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    program: Sequence[str] = ("-m", "ratioscope"),
) -> Iterator[Serving]:
    """The dashboard started with these arguments, in this folder, until the context ends."""
    command = [sys.executable, *program, "dashboard", *arguments, "--no-browser"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        cwd=folder,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        with killed_after(DEADLINE, process):
            line = next((line for line in process.stdout if "://" in line), "")
        found = re.search(r"http://\S+", line)
        if found is None:
            raise RuntimeError(f"the dashboard printed no address within {DEADLINE} s: {line}{process.stderr.read()}")
        yield Serving(process, line, found.group())
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def refused(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit code and error of a dashboard that must not start."""
    command = [sys.executable, "-m", "ratioscope", "dashboard", *arguments, "--no-browser"]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, env={**os.environ, **(environment or {})}
    )
    return ended.returncode, ended.stderr
