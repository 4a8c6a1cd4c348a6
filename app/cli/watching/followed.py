"""Follows the runs that a dashboard serves, on a thread of its own, and tells others of new alerts."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...presentation.run_state import state_of
from .looks import KnownAlerts, Watched
from .telling import Tell

SHARE = 10.0
"""Pause between two rounds, as a multiple of the time of the last one: pages come first."""


def follow_runs(
    find: Callable[[], Mapping[str, str]], tell: Tell, say: Callable[[str], None], every: float = 5.0
) -> threading.Event:
    """Starts the thread, which ends once the returned event is set. find: name -> path of the runs now; say: prints what failed.

    Nobody is told of an alert that is open when the first round sees its run; each later one is told once, and once more if it
    becomes worse. A run that nothing writes to any more is not read.
    """
    ended = threading.Event()
    threading.Thread(
        target=_follow, args=(find, tell, say, every, ended), daemon=True, name="ratioscope-alerts"
    ).start()
    return ended


@dataclass
class _Followed:
    """A run, and what was told of it."""

    name: str
    """The run's name in the dashboard."""
    path: Path
    """The run's folder."""
    known: KnownAlerts = field(default_factory=KnownAlerts)
    """The alerts of which others were told, or that were there before."""
    tells: bool = False
    """True once its next alerts are news."""
    watched: Watched | None = None
    """The open run; None while nothing writes to it."""
    failure: str = ""
    """Why the last look failed."""

    def look(self, tell: Tell, say: Callable[[str], None]) -> None:
        """Looks at the run if it may have grown."""
        if self.watched is None and not state_of(self.path).may_grow:
            return
        self.watched = self.watched or Watched(self.path)
        seen = self.watched.look()
        for alert in self.known.new(seen.alerts):
            for failed in tell(self.name, alert) if self.tells else ():
                say(failed)
        self.tells = True
        if not seen.state.may_grow:
            self.watched = None  # what it holds of the run is freed


def _follow(
    find: Callable[[], Mapping[str, str]], tell: Tell, say: Callable[[str], None], every: float, ended: threading.Event
) -> None:
    followed: dict[str, _Followed] = {}
    is_first, pause = True, 0.0
    while not ended.wait(pause):
        began = time.monotonic()
        for name, path in find().items():
            run = followed.setdefault(path, _Followed(name, Path(path), tells=not is_first))
            try:
                run.look(tell, say)
                run.failure = ""
            except Exception as error:  # the next look may succeed, and the other runs are followed on
                if run.failure != str(error):
                    say(f"alerts of {run.name}: cannot be read now: {error}")
                run.failure = str(error)
        is_first = False
        pause = max(every, SHARE * (time.monotonic() - began))
