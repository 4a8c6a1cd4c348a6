"""The state of a run: live, ended, silent or dead, from the last log lines of its writers. Every face takes it from here.

The age of an event, in a word or two.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ratioscope.ingest.commits.liveness import (
    SILENT_SECONDS,
    WriterStatus,
    current_writers,
    patience,
    sizes,
    writer_statuses,
)
from ratioscope.process import Here, here

from .theme import MARKS

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

Life = Literal["ended", "live", "silent", "dead"]
LIVES: tuple[Life, ...] = ("ended", "live", "silent", "dead")
"""Every life of a run. A sink that takes numbers gets the place of one."""
ALARMS: Mapping[Life, str] = {"silent": "watch", "dead": "act"}
"""The lives that nobody may take for healthy, and the severity of each."""

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


@dataclass(frozen=True)
class RunState:
    """The state of a run."""

    life: Life
    word: str
    """The state in words, such as dead with the time and cause."""
    why: str
    """The reason why the state is uncertain or bad; may be empty."""
    ago: str = ""
    """Age of the last line of a log."""
    brief: str = ""
    """The state in a word or two."""
    step: int | None = None
    """The newest committed step."""

    @property
    def ended(self) -> bool:
        """True if every writer has closed its log."""
        return self.life == "ended"

    @property
    def may_grow(self) -> bool:
        """True if a writer may be at work."""
        return self.life in ("live", "silent")


def lasting_words(run: "Run", state: RunState) -> str:
    """The state for a file that is read later: with times and no age."""
    last = run.writers["last_commit"].max()
    commit = f", last commit {last:%Y-%m-%d %H:%M:%S} UTC" if isinstance(last, datetime) else ""
    now = "" if state.ended else f" at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"{state.life}{now}{commit}"


def state_of(path: Path) -> RunState:
    """The present state of the run in this folder, read from the ends of its commit logs."""
    statuses = writer_statuses(path, sizes(path), {})
    return run_state(current_writers(word for _, word in statuses.values()), here(), time.time())


def run_state(writers: Sequence[WriterStatus], here: Here, now: float) -> RunState:
    """The state of a run with these writers."""
    known = _state_of(writers, here, now)
    return replace(
        known, brief=known.brief or known.word, step=max((w.step for w in writers if w.step is not None), default=None)
    )


def _state_of(writers: Sequence[WriterStatus], here: Here, now: float) -> RunState:
    states = [word.state(here) for word in writers]
    quiet = now - max((word.last_heard for word in writers), default=now)
    dead = states.count("gone")
    if not writers or set(states) == {"closed"}:
        return RunState("ended", "ended", "", f"{age(quiet)} ago" if writers else "")
    part = f" · {MARKS['watch']} {dead} of {len(writers)} writers dead" if dead else ""
    if "alive" in states:
        return RunState("live", f"{MARKS['healthy']} live{part}", "", f"{age(quiet)} ago")
    if "unknown" not in states:
        gone = "its process is gone" if dead == 1 else f"their {dead} processes are gone"
        return RunState(
            "dead",
            f"{MARKS['act']} dead: no commit for {age(quiet)}, {gone}",
            "The writer did not close its log.",
            f"{age(quiet)} ago",
            brief=f"{MARKS['act']} dead",
        )
    hosts = sorted({str(word.host) for word, state in zip(writers, states, strict=True) if state == "unknown"})
    why = f"The writer runs on {', '.join(hosts[:3])} or in another container. This machine cannot check its process."
    if quiet > patience(SILENT_SECONDS, *(word.pause for word in writers)):
        return RunState(
            "silent",
            f"{MARKS['watch']} silent for {age(quiet)}{part}",
            why,
            f"{age(quiet)} ago",
            brief=f"{MARKS['watch']} silent{part}",
        )
    return RunState("live", f"{MARKS['healthy']} live{part}", "", f"{age(quiet)} ago")


def age(seconds: float) -> str:
    """The largest unit of which it is at least two, and how many; what lies in the future is now.

    >>> age(0.3), age(7), age(100), age(121), age(5400), age(200_000), age(-5)
    ('1 second', '7 seconds', '100 seconds', '2 minutes', '90 minutes', '2 days', '1 second')
    """
    known = max(1.0, seconds)
    size, noun = next(((size, noun) for size, noun in _UNITS if known >= 2 * size), (1, "second"))
    number = int(known // size)
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
