"""A program that ends a dashboard which will not answer again, and says so: python -I watcher.py PID THREADS PLACE SILENT

Standard input: a byte for every sign of life, its end once the server has ended. THREADS: a descriptor of the file into which
the server writes where its threads stand when it gets SIGUSR2. PLACE: where that is kept. It imports nothing of ratioscope: it is
there as long as the server is, and must be small.
"""

import os
import select
import signal
import sys
import time

AT_WORK = 0.3
"""Share of a core: a server that uses more is slow, not stuck. Threads that wait for Python's lock look after it 2,000 times a
second, which takes a hundredth of a core each."""


def watch(pid: int, threads: int, place: str, silent: float) -> None:
    """Returns when the server has ended, by itself or not."""
    used = _cpu_seconds(pid)
    while True:
        if select.select([0], [], [], silent)[0]:
            if not os.read(0, 4096):
                return
        elif not _is_stopped(pid) and _cpu_seconds(pid) - used < AT_WORK * silent:
            _end(pid, threads, place, silent)
            return
        used = _cpu_seconds(pid)


def _end(pid: int, threads: int, place: str, silent: float) -> None:
    os.kill(pid, signal.SIGUSR2)
    time.sleep(1)  # until each thread has been written down
    kept = _kept(os.pread(threads, 1 << 20, 0), place)
    print(
        f"\nthe dashboard has not answered for {silent:.0f} s and would not by itself, so it was ended; start it again with the "
        f"same command. Nothing of a run is lost.{kept}",
        file=sys.stderr,
        flush=True,
    )
    os.kill(pid, signal.SIGKILL)


def _kept(found: bytes, place: str) -> str:
    """Keeps where the threads stood; what to say of it."""
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(place, flags, 0o600), "wb") as file:
            file.write(found)
    except OSError:
        return ""
    return f" Where it stood is in {place}: please report it."


def _cpu_seconds(pid: int) -> float:
    """What the process has used so far; nothing where the system does not tell."""
    stat = _stat(pid)
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK") if stat else 0.0


def _is_stopped(pid: int) -> bool:
    """Whether the reader or a debugger has stopped it, or nobody can tell."""
    stat = _stat(pid)
    return not stat or stat[0] in "TtZX"


def _stat(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the server
    watch(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
