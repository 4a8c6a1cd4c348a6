"""The items that a collector puts into the queue of its thread, beside batches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..batch.batch import Batch

Done = Callable[[bool], None]


def void(*_: object) -> None:
    """Does nothing, where nobody waits for a call."""


@dataclass(frozen=True)
class EventItem:
    """An event; the queue keeps its place between the batches."""

    kind: str
    step: int
    note: str


@dataclass(frozen=True)
class WeightsItem:
    """Digests of the weights of a version, of the trainer (no replica) or of an engine."""

    step: int
    version: int
    replica: str | None
    digests: Mapping[str, str]
    """Tensor -> digest."""

    @property
    def bytes(self) -> int:
        """Memory that it holds while it waits, about."""
        return 250 * len(self.digests)


@dataclass(frozen=True)
class DroppedItem:
    """The ledger holds dropped sequences that the commit log does not report yet."""


@dataclass(frozen=True)
class BeginItem:
    """Asks for the run folder to be made before there is anything to write."""


@dataclass(frozen=True)
class FlushItem:
    """Asks for everything before it to be written."""

    done: Done
    """Takes whether nothing waits in memory afterwards."""


@dataclass(frozen=True)
class StopItem:
    """Asks for everything before it to be written, and ends the thread."""


Item = Batch | EventItem | WeightsItem | DroppedItem | BeginItem | FlushItem | StopItem
"""Anything that waits in the queue."""
