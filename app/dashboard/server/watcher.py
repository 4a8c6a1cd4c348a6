"""A program that ends a dashboard which will not answer again, and reports it: python -I watcher.py PID THREADS PLACE SILENT

If the dashboard answers but its pages wait in vain (for a file system that hangs), the program only reports it.

Standard input: a byte for every sign of life (watchdog.py), and its end when the server ends. THREADS: a descriptor of the file
into which the server writes the stacks of its threads on SIGUSR2. PLACE: the file that keeps these stacks. The program imports
nothing of ratioscope: it runs as long as the server, and must be small.
"""

import os
import select
import signal
import sys
import time
from typing import NamedTuple

STUCK, WAITS = 0.3, 0.05
"""Shares of a core above which a server, or a page, counts as slow and not as stuck. In a stuck server, threads that wait for
Python's lock poll it 2,000 times a second, which takes a hundredth of a core each."""
ENDED = (
    "the dashboard has not answered for {:.0f} s and cannot recover, so it was ended; start it again with the same command. "
    "No data of a run is lost."
)
WAITED = (
    "a page has not come for {:.0f} s, though almost nothing is computed for it; check that the disk of the run answers. If no "
    "page answers, press Ctrl+C and start the dashboard again. No data of a run is lost."
)


def watch(server: "Server", silent: float) -> None:
    """Watches the server, and returns when it has ended, by itself or not."""
    alive = going_on = server.now()
    said = False
    while True:
        signs = os.read(0, 4096) if select.select([0], [], [], silent)[0] else None
        now = server.now()
        if signs == b"":
            return
        if signs is None and now.is_idle_since(alive, STUCK):
            say(ENDED.format(silent) + server.kept())
            os.kill(server.pid, signal.SIGKILL)
            return
        if b"." in (signs or b""):
            going_on, said = now, False
        elif not said and now.at - going_on.at > silent and now.is_idle_since(going_on, WAITS):
            say(WAITED.format(silent) + server.kept())
            said = True
        alive = now


def say(line: str) -> None:
    print(f"\n{line}", file=sys.stderr, flush=True)


class Moment(NamedTuple):
    """The state of the watched process at one time."""

    at: float
    """Time in seconds."""
    used: float
    """Processor seconds until then."""
    stopped: bool
    """True if the user or a debugger has stopped it, or if its state is unknown."""

    def is_idle_since(self, before: "Moment", share: float) -> bool:
        return not self.stopped and self.used - before.used < share * (self.at - before.at)


class Server(NamedTuple):
    """The process that is watched, see the arguments."""

    pid: int
    threads: int
    place: str

    def now(self) -> Moment:
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                stat = file.read().rpartition(")")[2].split()
        except OSError:
            return Moment(time.monotonic(), 0.0, True)
        used = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        return Moment(time.monotonic(), used, stat[0] in "TtZX")

    def kept(self) -> str:
        """Makes the server write down the stacks of its threads, and keeps them. Returns a sentence on the file."""
        os.ftruncate(self.threads, 0)
        os.kill(self.pid, signal.SIGUSR2)
        time.sleep(1)  # time to write all stacks
        try:
            os.makedirs(os.path.dirname(self.place), mode=0o700, exist_ok=True)
            flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW
            with os.fdopen(os.open(self.place, flags, 0o600), "wb") as file:
                file.write(os.pread(self.threads, 1 << 20, 0).lstrip(b"\0"))
        except OSError:
            return ""
        return f" The stacks of its threads are in {self.place}: please report them."


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the server
    watch(Server(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]), float(sys.argv[4]))
