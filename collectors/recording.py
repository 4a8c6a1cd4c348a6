"""Recording: what the adapters of a process write through. Its collector is made with the first thing there is to record.

Later than the process's start, because only then is its rank known; and never in a process that has nothing to record.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from .ranks import process_rank

if TYPE_CHECKING:
    from .budget import Budget
    from .collector import Collector, Text
    from .token_texts import Decode

T = TypeVar("T")
RolloutVersion = Callable[[Any], int]
"""trainer -> the version of the weights its engine samples with, in updates of the trainer."""

logger = logging.getLogger("ratioscope")


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
    """One adapter's way to a run folder, from one process. `adapter` names it in what is counted and said."""

    def __init__(self, run_dir: str | os.PathLike[str], options: AttachOptions, adapter: str) -> None:
        self.run_dir, self.options, self.adapter = run_dir, options, adapter
        self.is_active = True
        self._facts: dict[str, Any] = {"trainer": adapter}
        self._config: dict[str, Any] = {}
        self._collector: Collector | None = None
        self._early: list[Exception] = []
        self._said: set[str] = set()
        self._lock = threading.Lock()

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
        self._config |= config or {}

    @property
    def collector(self) -> Collector:
        """The process's collector; made now if there is none yet."""
        with self._lock:
            if self._collector is None:
                self._collector = self._made()
                for _ in self._early:
                    self._collector.count_failure(f"{self.adapter} adapter")
            return self._collector

    @property
    def has_collector(self) -> bool:
        return self._collector is not None

    def log(self, **values: Any) -> None:
        """`Collector.log`."""
        self.collector.log(**values)

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
            logger.log(level, "step %d: %s", step, note)

    def watch(self, look: Callable[[], T]) -> T | None:
        """The result of a look into the trainer; whatever goes wrong is counted, said once, and stays here."""
        if not self.is_active:
            return None
        try:
            return look()
        except Exception as error:
            self.failed(error)
            return None

    def failed(self, error: Exception) -> None:
        """Counts a failure of the adapter, in the collector once there is one, and says the first."""
        if self.has_collector:
            self.collector.failed(f"{self.adapter} adapter", error)
            return
        if not self._early:
            logger.warning("%s adapter: %s: %s. Training goes on.", self.adapter, type(error).__name__, error)
        self._early.append(error)
        if self.options.get("strict", False):
            raise error

    def close(self, timeout: float | None = 10.0) -> bool:
        """Ends recording. True if all that was recorded is on disk."""
        self.is_active = False
        return self._collector is None or self._collector.close(timeout)

    def _made(self) -> Collector:
        from ratioscope.metrics.dialects import NAMES as DIALECTS

        from .collector import QUEUE_BATCHES, QUEUE_BYTES, Collector

        options = self.options
        return Collector(
            self.run_dir,
            trainer=self._facts["trainer"],
            config={**self._config, **(options.get("config") or {})},
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
