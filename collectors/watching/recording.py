"""Recording: what the adapters of a process write through. Its collector is made with the first thing there is to record.

Later than the process's start, because only then is its rank known; and never in a process that has nothing to record.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from ratioscope.kept_settings import kept

from ..process import notice
from ..process.counts import reason_of
from ..process.failures import Streaks, let_go
from ..process.ranks import process_rank

if TYPE_CHECKING:
    from ..batch.text_policy import Text
    from ..batch.token_texts import Decode
    from ..budget import Budget
    from ..collector import Collector

T = TypeVar("T")
RolloutVersion = Callable[[Any], int]
"""trainer -> the version of the weights its engine samples with, in updates of the trainer."""


_PANIC = "PanicException"
"""What a library in Rust raises, a tokenizer's say, which is no Exception."""


class AttachOptions(TypedDict, total=False):
    """Options of `attach`: those of `Collector` that the adapter does not decide, and two of its own.

    rollout_version: for engines whose weights are not those of the trainer's last sync; else the adapter tells from the
    trainer. scalars: puts `ratioscope/...` among what the trainer logs. config is kept beside what the adapter knows.
    """

    rollout_version: RolloutVersion | None
    scalars: bool
    config: Mapping[str, Any] | None
    name: str | None
    attempt: int | None
    text: Text
    strict: bool
    queue_batches: int
    queue_bytes: int
    budget: Budget | None


class Recording:
    """One adapter's way to a run folder, from one process. `adapter` names it in what is counted and said.

    advice: what to do where the adapter does not fit the trainer. failures: looks that failed before there was a collector.
    """

    def __init__(self, run_dir: str | os.PathLike[str], options: AttachOptions, adapter: str, advice: str = "") -> None:
        self.run_dir, self.options, self.adapter, self.advice = run_dir, options, adapter, advice
        self.is_active = True
        self.failures = 0
        self.first_failure: str | None = None
        self._facts: dict[str, Any] = {"trainer": adapter}
        self._config: dict[str, Any] = {}
        self._collector: Collector | None = None
        self._streaks = Streaks()
        self._logged, self._newest_step = 0, 0
        self._undo: Callable[[], None] | None = None
        self._said: set[str] = set()
        self._lock = threading.RLock()  # a signal handler of the trainer's may come in between

    @property
    def rollout_version(self) -> RolloutVersion | None:
        """The user's own word on the engine's weights, where one was given."""
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
        """What the adapter knows of the trainer and this process, to be told before the first `log`; later it is too late.

        trainer: its name and version. versions: where rollout versions come from, or why there are none. rank: of this process
        among those that record; else as ranks.py has it.
        """
        given = {"trainer": trainer, "rank": rank, "decode": decode, "versions": versions}
        self._facts |= {name: value for name, value in given.items() if value is not None}
        self._config |= kept(config).settings  # at once, so that none of the trainer's objects is

    @property
    def collector(self) -> Collector:
        """The process's collector; made now if there is none yet."""
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
        """What to add to the trainer's own scalars of this step; {} unless the user asked for it. known: names it has."""
        if not (self.options.get("scalars", False) and self.has_collector):
            return {}
        return self.collector.scalars(step, known)

    def say_once(self, kind: str, step: int, note: str, level: int = logging.INFO) -> None:
        """An event that holds for the whole run: what is not recorded and which setting records it, say."""
        if kind not in self._said:
            self._said.add(kind)
            self.event(kind, step, note)
            notice.say(level, "step %d: %s", step, note)

    def watch(self, look: Callable[[], T], name: str | None = None) -> T | None:
        """The result of a look into the trainer. Whatever goes wrong is counted, said once, and stays here.

        name: of the look, where one line of code takes many. A look that fails ENOUGH times in a row is not taken any more;
        where nothing was recorded meanwhile, the adapter takes itself off. Nothing that a failure has seen is kept.
        """
        name = name or look.__qualname__.partition(".<locals>")[0]
        if not self.is_active or self._streaks.is_over(name):
            return None
        outer = sys.exception()
        try:
            found = look()
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
                raise
            reason = self._count(error)
            if self.options.get("strict", False):
                raise
            let_go(error, outer)
            if self._streaks.add(name, reason, self._logged):
                self._give_up(name)
            return None
        self._streaks.end(name)
        return found

    def attached(self, undo: Callable[[], None]) -> None:
        """The adapter is on the trainer; `undo` takes it off."""
        self._undo = undo

    def take_off(self) -> None:
        """Leaves the trainer as it was. A second call does nothing."""
        self.is_active = False
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def _count(self, error: BaseException) -> str:
        """Counts a failure, in the collector once there is one, and says the first."""
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
        told = f"{self.adapter} adapter: {name} failed {streak.times} times in a row, first with {reason}"
        if streak.logged < self._logged:
            self._note(f"{told}; it is not called any more. What else the adapter sees is recorded.")
            return
        self._note(
            f"{told}; nothing was recorded meanwhile, so the adapter takes itself off. Training goes on{self.advice}"
        )
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
        return self._collector is None or self._collector.close(timeout)

    def _made(self) -> Collector:
        from ratioscope.metrics.dialects import NAMES as DIALECTS

        from ..collector import QUEUE_BATCHES, QUEUE_BYTES, Collector

        options = self.options
        return Collector(
            self.run_dir,
            trainer=self._facts["trainer"],
            config=self._config | kept(options.get("config")).settings,
            name=options.get("name"),
            rank=self._facts.get("rank", process_rank()),
            attempt=options.get("attempt"),
            text=options.get("text", "full"),
            strict=options.get("strict", False),
            decode=self._facts.get("decode"),
            queue_batches=options.get("queue_batches", QUEUE_BATCHES),
            queue_bytes=options.get("queue_bytes", QUEUE_BYTES),
            versions=self._facts.get("versions"),
            budget=options.get("budget"),
            scalars=options.get("scalars", False),
            dialect=self.adapter if self.adapter in DIALECTS else None,
        )
