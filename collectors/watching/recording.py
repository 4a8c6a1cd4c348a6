"""Recording: the object that an adapter writes through. It makes the Collector when there is something to record.

That is later than the start of the process, because the rank is known only then. A process that records nothing makes none.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from ratioscope.kept_settings import kept

from ..process import notice
from ..process.counts import reason_of
from ..process.failures import Streaks, is_of_a_handler, let_go
from ..process.ranks import process_rank
from ..process.variables import RUN
from ..writing.last_line import Logged, last_line

if TYPE_CHECKING:
    from ..batch.text_policy import Text
    from ..batch.token_texts import Decode
    from ..budget import Budget
    from ..collector import Collector
    from ..self_noise import SelfNoise

T = TypeVar("T")
RolloutVersion = Callable[[Any], int]
"""Takes the trainer; returns the version of the weights that its engine samples with, counted in updates of the trainer."""


_PANIC = "PanicException"
"""The exception that a library in Rust raises, a tokenizer for example. It is a BaseException but no Exception."""


class AttachOptions(TypedDict, total=False):
    """Options of `attach`: options of `Collector` that the adapter does not decide, and rollout_version.

    rollout_version: for engines whose weights are not those of the trainer's last sync; without it the adapter asks the
    trainer. scalars: adds `ratioscope/...` to what the trainer logs. config: kept beside the settings that the adapter knows.
    self_noise: a few sequences are read a second time each n steps, see collectors/self_noise.py; True for SelfNoise().
    """

    rollout_version: RolloutVersion | None
    scalars: bool
    config: Mapping[str, Any] | None
    name: str | None
    attempt: int | None
    existing: Literal["resume", "new", "error"] | None
    text: Text
    strict: bool
    queue_batches: int
    queue_bytes: int
    budget: Budget | None
    self_noise: SelfNoise | bool | None


_OF_COLLECTOR = (
    "name", "attempt", "existing", "text", "strict", "queue_batches", "queue_bytes", "budget", "scalars", "self_noise",
)  # fmt: skip
"""Options that the collector takes as they were given."""


class Recording:
    """Connects one adapter with the run folder, in one process.

    adapter: its name, for counts and messages. advice: what a user can do if the adapter does not fit the trainer.
    """

    def __init__(self, run_dir: str | os.PathLike[str], options: AttachOptions, adapter: str, advice: str = "") -> None:
        self.run_dir, self.options, self.adapter, self.advice = run_dir, options, adapter, advice
        self.is_active = True
        self.title = adapter
        self.computed_apart = False  # our adapters record no policy that the trainer copied from rollout; others may
        """The trainer with its version, as messages name it."""
        self.refused: str | None = None
        """Why nothing is recorded, once the trainer turned out to lack what the adapter needs."""
        self.failures = 0
        """Looks that failed before there was a collector to count them."""
        self.first_failure: str | None = None
        self._facts: dict[str, Any] = {"trainer": adapter}
        self._config, self._given_config = dict[str, Any](), kept(options.get("config")).settings
        self._collector: Collector | None = None
        self._streaks = Streaks()
        self._logged, self._newest_step = 0, 0
        self._undo: Callable[[], None] | None = None
        self._said: set[str] = set()
        self._speaks_in: int | None = None
        self._lock = threading.RLock()  # a signal handler of the trainer's may come in between

    @property
    def rollout_version(self) -> RolloutVersion | None:
        """The option `rollout_version`; None if it was not given."""
        return self.options.get("rollout_version")

    def describe(
        self,
        *,
        trainer: str | None = None,
        config: Mapping[str, Any] | None = None,
        rank: int | None = None,
        decode: Decode | None = None,
        versions: str | None = None,
    ) -> None:
        """Takes what the adapter knows of the trainer and this process. Call it before the first `log`; later has no effect.

        trainer: its name and version. versions: where rollout versions come from, or why there are none. rank: of this process
        among those that record; without it ranks.py finds it.
        """
        given = {"trainer": trainer, "rank": rank, "decode": decode, "versions": versions}
        self._facts |= {name: value for name, value in given.items() if value is not None}
        self._config |= kept(config).settings  # at once, so that no object of the trainer is held

    @property
    def collector(self) -> Collector:
        """The collector of this process, made now if there is none."""
        with self._lock:
            if self._collector is None:
                made = self._made()
                self._collector = self._collector or made
                for _ in range(self.failures):
                    self._collector.count_failure(f"{self.adapter} adapter")
            return self._collector

    @property
    def has_collector(self) -> bool:
        return self._collector is not None

    def log(self, **values: Any) -> None:
        """`Collector.log`."""
        self.collector.log(**values)
        self._logged, self._newest_step = self._logged + 1, values["step"]

    def event(self, kind: str, step: int, note: str = "") -> None:
        """`Collector.event`."""
        self.collector.event(kind, step, note)

    def scalars(self, step: int, known: Collection[str] = ()) -> dict[str, float]:
        """Scalars to add to those that the trainer logs at this step; {} unless the user asked for them. known: names it has."""
        if not (self.options.get("scalars", False) and self.has_collector):
            return {}
        return self.collector.scalars(step, known)

    def say_once(self, kind: str, step: int, note: str, level: int = logging.INFO) -> None:
        """Notes and logs once a fact about the whole run, such as a missing column and the setting that records it."""
        if kind not in self._said:
            self._said.add(kind)
            self.event(kind, step, note)
            notice.say(level, "step %d: %s", step, note)

    def watch(self, look: Callable[[], T], name: str | None = None) -> T | None:
        """The result of a look into the trainer; None if it fails. A failure is counted and logged once, and not raised.

        An exception that a signal handler of the trainer raises meanwhile is no failure of the look, and is raised.

        name: of the look, if one line of code takes several. A look that fails ENOUGH times in a row is not taken any more. If
        nothing was recorded meanwhile, the adapter takes its hooks off. No object that a failed look has seen is kept.
        """
        name = name or look.__qualname__.partition(".<locals>")[0]
        if not self.is_active or self._streaks.is_over(name):
            return None
        outer = sys.exception()
        try:
            result = look()
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != _PANIC or is_of_a_handler(error):
                raise
            reason = self._count(error)
            if self.options.get("strict", False):
                raise
            let_go(error, outer)
            if self._streaks.add(name, reason, self._logged):
                self._give_up(name)
            return None
        self._streaks.end(name)
        return result

    def attached(self, undo: Callable[[], None]) -> None:
        """Keeps `undo`, which takes the hooks off the trainer, and calls it if the recording was refused meanwhile."""
        self._undo = undo
        if self.refused is not None:
            self._take_off_or_warn()

    def refuse(self, reason: str) -> None:
        """Takes the hooks off for good, since the trainer lacks what the adapter needs."""
        self.refused = reason
        notice.say(logging.ERROR, "%s", reason)
        self._take_off_or_warn()

    def take_off(self) -> None:
        """Takes the hooks off the trainer. A second call does nothing."""
        self.is_active = False
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def _count(self, error: BaseException) -> str:
        """Counts a failure, in the collector if there is one, and logs the first. Returns its words."""
        reason = reason_of(error)
        if self.has_collector:
            self.collector.count_failure(f"{self.adapter} adapter")
        else:
            self.failures += 1
        if self.first_failure is None:
            self.first_failure = reason
            notice.warn("%s adapter: %s. Training goes on. More of this is only counted.", self.adapter, reason)
        return reason

    def _give_up(self, name: str) -> None:
        from ..batch.text_policy import TEXTS

        streak, policy = self._streaks.of(name), TEXTS.get(self.options.get("text", "full"), TEXTS["none"])
        reason = policy.detail(streak.reason)
        failed = f"{self.adapter} adapter: {name} failed {streak.times} times in a row, first with {reason}"
        if streak.logged < self._logged:
            self._note(f"{failed}; it is not called any more. The adapter records everything else.")
            return
        self._note(
            f"{failed}; nothing was recorded meanwhile, so the adapter takes itself off. Training goes on{self.advice}"
        )
        self._take_off_or_warn()

    def _take_off_or_warn(self) -> None:
        try:
            self.take_off()
        except Exception as error:
            notice.warn("%s adapter: %s as it was taken off", self.adapter, reason_of(error))

    def _note(self, text: str) -> None:
        notice.warn("%s", text)
        if self.has_collector:
            self.collector.event("adapter_failed", self._newest_step, text)

    def close(self, timeout: float | None = 10.0) -> bool:
        """Ends recording. True if all that was recorded is on disk."""
        self.is_active = False
        if self._collector is not None:
            return self._collector.close(timeout)
        if self._speaks_in == os.getpid() and self.refused is None and not process_rank():
            because = f"no step of {self.title} reached the functions that the adapter watches"
            notice.warn("ratioscope: %s", last_line(self.run_dir, Logged(), 0, by="this process", because=because))
        self._speaks_in = None
        return True

    def speak_at_the_end(self) -> None:
        """Has this process, but no forked child, say when it ends or closes the recording that it has recorded nothing."""
        if os.environ.get(RUN) != os.path.abspath(self.run_dir):  # else `ratioscope run` says it of the whole job
            self._speaks_in = os.getpid()
            atexit.register(_close_if_empty, weakref.ref(self))

    def __repr__(self) -> str:
        told = "nothing yet" if self._collector is None else repr(self._collector)
        return f"{self.title} into {self.run_dir}: {f'refused: {self.refused}' if self.refused else told}"

    def _made(self) -> Collector:
        from ratioscope.metrics.dialects import NAMES as DIALECTS

        from ..collector import Collector

        given: dict[str, Any] = {name: value for name, value in self.options.items() if name in _OF_COLLECTOR}
        return Collector(
            self.run_dir,
            **{"rank": process_rank(), **self._facts, **given},
            config=self._config | self._given_config,
            dialect=self.adapter if self.adapter in DIALECTS else None,
            computed_apart=self.computed_apart,
        )


def _close_if_empty(recording: weakref.ref[Recording]) -> None:
    """At the end of the process; a collector closes itself."""
    found = recording()
    if found is not None and not found.has_collector:
        found.close()
