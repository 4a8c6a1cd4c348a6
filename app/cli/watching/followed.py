"""Follows runs: looks at each again and again, and tells others of what is new. A dashboard does so on a thread of its own."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...presentation.run_state import state_of
from .looks import KnownAlerts, Look, News, Watched
from .telling import Tell

SHARE = 10.0
"""Pause between two rounds, as a multiple of the time of the last one: pages come first."""


@dataclass
class Followed:
    """A run, and what was told of it. Nobody is told of what the first look finds."""

    watched: Watched
    name: str = ""
    """The run's name for others; empty until the first look if it is its own."""
    known: KnownAlerts = field(default_factory=KnownAlerts)
    """The news of which others were told, or that the first look found."""
    tells: bool = False
    """True if alerts at the next look are news."""
    is_left: bool = False
    """True if the run is read only once something writes to it."""
    seen: Look | None = None
    """The last look; None before the first."""
    failure: str = ""
    """Why the last look failed."""

    def look(self, tell: Tell) -> list[str]:
        """Looks at the run and tells of what is new. It returns the words of `tell`, or why the run cannot be read, once."""
        try:
            news, self.failure = self._news(), ""
        except Exception as error:  # the next look may succeed, and other runs are followed on
            before, self.failure = self.failure, f"{self.name}: cannot be read now: {error}"
            return [self.failure] if self.failure != before else []
        return [words for each in news for words in tell(self.name, each)]

    def _news(self) -> list[News]:
        if not self.is_left or (state := state_of(self.watched.path)).may_grow:
            return self.read()
        if self.seen is not None:
            self.seen = replace(self.seen, state=state, has_ended=state.ended and bool(state.ago))
        return [*self.known.changed(state)]

    def read(self) -> list[News]:
        """Reads what is new of the run; the news, which are known afterwards. A run that cannot be read raises."""
        self.seen = seen = self.watched.look()
        self.name = self.name or seen.name
        self.is_left = not seen.state.may_grow
        if self.is_left:
            self.watched.free()
        alerts = self.known.new(seen.alerts)
        told, self.tells = alerts if self.tells else [], True
        return [*told, *self.known.changed(seen.state)]


def follow_runs(
    find: Callable[[], Mapping[str, str]], tell: Tell, say: Callable[[str], None], every: float = 5.0
) -> threading.Event:
    """Starts the thread, which ends once the returned event is set. find: name -> path of the runs now; say: prints what failed.

    Nobody is told of what the first round finds; each later alert is told once, and once more if it becomes worse; a run that
    dies or falls silent is told once, and once more when it is back. A run that nothing writes to any more is not read.
    """
    ended = threading.Event()
    threading.Thread(
        target=_follow, args=(find, tell, say, every, ended), daemon=True, name="ratioscope-alerts"
    ).start()
    return ended


def _follow(
    find: Callable[[], Mapping[str, str]], tell: Tell, say: Callable[[str], None], every: float, ended: threading.Event
) -> None:
    followed: dict[str, Followed] = {}
    is_first, pause = True, 0.0
    while not ended.wait(pause):
        began = time.monotonic()
        for name, path in find().items():
            if path not in followed:
                known = KnownAlerts(life=None if is_first else "live")
                followed[path] = Followed(Watched(Path(path)), name, known, tells=not is_first, is_left=True)
            for words in followed[path].look(tell):
                say(words)
        is_first = False
        pause = max(every, SHARE * (time.monotonic() - began))
