"""A process beside the command of `ratioscope run`: at the command's end it says that nothing was recorded.

The launching process becomes the command, so that signals, terminal, process id and exit code are the command's own. This process
is no child of it, has a session of its own, and holds nothing of the terminal but standard error. A collector of the first rank
says itself what it has recorded when it is closed. That is said here if there was none, because the command was killed or all
recorders are Ray's workers, or if other processes recorded further policies.
"""

import glob
import os
import select
import shutil
import signal
import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from socket import socket
from typing import Any

from ratioscope.layout import CLOSE, COMMIT, COMMITS, decode_line
from ratioscope.process import process_start

from .process.ranks import rank_told
from .process.variables import LAUNCH, RUN, VARIABLES, heard, listening
from .writing.last_line import Logged, last_line

_CLOSING_SECONDS = 5.0
"""Writers that have not closed their logs so long after the command's end are not waited for."""
_LOOK_SECONDS = 0.05
_LAST_BYTES = 1 << 14
_FIRST_BYTES = 1 << 16
NOBODY = (
    "no process of this command was heard of that trains with a trainer of `ratioscope attach --list` or makes a Collector. "
    "A Python without ratioscope, python -I, -E and -S, and another container cannot be recorded"
)
BEFORE_A_STEP = "process {pid} was ready to record, and {end} before a step was written"
NO_STEP = "a process began to record, and no step came"


def says_the_last_line(environment: Mapping[str, str]) -> bool:
    """True if this launching process can have a process beside it, and is the first of its job.

    The first process of a container has none: all others of the container end with it.
    """
    return hasattr(os, "fork") and os.getpid() != 1 and not rank_told(environment)


def beside(command: Sequence[str], environment: Mapping[str, str]) -> Callable[[], None]:
    """Starts the process beside this one, which is about to become the command. The returned call ends it in silence."""
    watched, (kept, told), receiver = os.getpid(), os.pipe(), listening(environment)  # an exec closes all of them
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, none of which holds what the child needs
        child = os.fork()
    if child == 0:
        try:
            os.close(told)
            if os.fork() == 0:  # so that the command has no child that it did not start
                _watch(watched, kept, receiver, command, environment)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(kept)
    return lambda: _tell(told, receiver)


def _tell(told: int, receiver: socket | None) -> None:
    os.write(told, b"x")
    os.close(told)
    if receiver is not None:
        receiver.close()


def _watch(
    watched: int, kept: int, receiver: socket | None, command: Sequence[str], environment: Mapping[str, str]
) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when the command has
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(nothing, standard)
    python = _python_of(command[0], environment.get("PATH"))
    os.chdir("/")
    named = Path(environment[RUN])
    before = {
        log for folder in (named, *named.parent.glob(f"{glob.escape(named.name)}-*")) for log in _logs(folder / COMMITS)
    }
    if os.read(kept, 1):  # the command could not be run
        return
    own = 2 if receiver is None else receiver.fileno()
    for first, last in ((3, own), (max(3, own + 1), 256)):
        os.closerange(first, last)  # what the command has inherited is not kept open
    end = _end_of(watched)
    from .writing.starts import (
        folder_of_launch,  # numpy and pyarrow, which no help should wait for
    )

    # not the one named, if that holds another experiment
    folder = folder_of_launch(Path(environment[RUN]), environment[LAUNCH])
    logs = _closed(folder / COMMITS, before)
    spoken = [log for log in logs if _has_spoken(log)]
    if not spoken or _policies(spoken) != _policies(logs):
        pids = heard(receiver)
        why = BEFORE_A_STEP.format(pid=pids[0], end=end) if pids else _nobody(python, environment)
        line = _line(folder, logs, NO_STEP if logs else why)
        os.write(2, f"ratioscope: {line}\n".encode(errors="backslashreplace"))


def _end_of(pid: int) -> str:
    """Waits until this process has ended. Returns how, in words, as far as the system still knows it."""
    _wait_for(pid)
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] == "Z":  # its parent has not asked for it yet
            code = os.waitstatus_to_exitcode(int(fields[49]))
            return f"the command ended with code {code}" if code >= 0 else f"signal {-code} ended the command"
    return "the command ended"


def _wait_for(pid: int) -> None:
    """Returns when this process has ended."""
    try:
        ended = os.pidfd_open(pid)
    except (AttributeError, OSError):  # no Linux, or an old one
        began = process_start(pid)
        while _lives(pid) and process_start(pid) == began:
            time.sleep(1.0)
        return
    select.select([ended], [], [])


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _logs(commits: Path) -> list[Path]:
    try:
        return sorted(commits.glob("*.jsonl"))
    except OSError:
        return []


def _closed(commits: Path, before: set[Path]) -> list[Path]:
    """The logs that were begun since, when their writers have closed them or time is up."""
    deadline = time.monotonic() + _CLOSING_SECONDS
    while True:
        logs = [path for path in _logs(commits) if path not in before]
        if all(map(_is_closed, logs)) or time.monotonic() > deadline:
            return logs
        time.sleep(_LOOK_SECONDS)


def _is_closed(log: Path) -> bool:
    with log.open("rb") as opened:
        opened.seek(max(0, os.fstat(opened.fileno()).st_size - _LAST_BYTES))
        last = opened.read().rstrip(b"\n").rpartition(b"\n")[2]
    return (decode_line(last) or {}).get("kind") == CLOSE


def _has_spoken(log: Path) -> bool:
    """True if the collector of this log has said itself what it recorded."""
    with log.open("rb") as opened:
        opening = decode_line(opened.readline(_LAST_BYTES)) or {}
    return _is_closed(log) and opening.get("rank") == 0 and not {"part_of", "ray_worker"}.intersection(opening)


def _policies(logs: Sequence[Path]) -> set[str]:
    """The policies in the first commits of these logs."""
    logged = Logged()
    for log in logs:
        with log.open("rb") as opened:
            for entry in map(decode_line, opened.readlines(_FIRST_BYTES)):
                if entry is not None and entry.get("kind") == COMMIT:
                    _add(entry, logged, Counter())
    return logged.policies


def _line(folder: Path, logs: Sequence[Path], because: str) -> str:
    """The last line, from the commits in the logs. because: why nothing was recorded, where no step was."""
    logged, tokens = Logged(), Counter[str]()
    for log in logs:
        for entry in map(decode_line, log.read_bytes().splitlines()):
            if entry is not None and entry.get("kind") == COMMIT:
                _add(entry, logged, tokens)
    return last_line(folder, logged, max(tokens.values(), default=0), because=because)


def _add(entry: Mapping[str, Any], logged: Logged, tokens: Counter[str]) -> None:
    if "step" in entry:  # a file of token rows
        policies = [str(policy) for policy in entry.get("policies") or ()]
        logged.add(int(entry["step"]), policies)
        tokens.update(dict.fromkeys(policies, int(entry.get("tokens", 0))))
    for step in entry.get("steps") or ():  # of a segment of statistics
        logged.add(int(step), ())


def _nobody(python: str | None, environment: Mapping[str, str]) -> str:
    """Why no process was heard of: its Python has no ratioscope, or what else there may be."""
    if python is None or not _lacks_ratioscope(python, environment):
        return NOBODY
    return f"{python} has no ratioscope, so that its processes are not recorded; {python} -m pip install ratioscope"


def _python_of(program: str, path: str | None) -> str | None:
    """The Python that runs the program, itself or by the first line of a script; None if that is not seen."""
    found = shutil.which(program, path=path)
    if found is None:
        return None
    found = os.path.abspath(found)
    if Path(found).name.startswith("python"):
        return found
    try:
        with open(found, "rb") as script:
            first = script.readline(512)
    except OSError:
        return None
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    words = words or [""]
    named = words[-1] if Path(words[0]).name == "env" else words[0]
    return shutil.which(named, path=path) if Path(named).name.startswith("python") else None


def _lacks_ratioscope(python: str, environment: Mapping[str, str]) -> bool:
    """True if this Python runs and finds no ratioscope. It imports nothing of its own."""
    asked = "import importlib.util as u, sys; sys.exit(3 if u.find_spec('ratioscope') is None else 0)"
    kept = {name: value for name, value in environment.items() if name not in VARIABLES}
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run([python, "-c", asked], env=kept, timeout=5, stderr=subprocess.DEVNULL).returncode == 3
    return False
