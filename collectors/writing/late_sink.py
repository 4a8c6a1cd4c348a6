"""A sink that is made when it is first opened, so that one that cannot be made costs steps and not the writer's thread."""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from ..process.counts import Tally
from .sink import Outcome, Sink, Unsaved, saved, unsaved


class LateSink:
    """`make` is called again until it succeeds."""

    def __init__(self, make: Callable[[], Sink]) -> None:
        self._make = make
        self._made: Sink | None = None

    def begin(self) -> None:
        getattr(self._sink(), "begin", self._sink().open)()

    def open(self) -> int:
        return self._sink().open()

    def write(self, step: int, rows: pa.Table, earlier: pa.Table | None, tally: Tally, late: str | None) -> Outcome:
        return self._sink().write(step, rows, earlier, tally, late)

    def say(self, entry: Mapping[str, Any]) -> None:
        self._sink().say(entry)

    def unsaved(self) -> Unsaved:
        return Unsaved() if self._made is None else unsaved(self._made)

    def save(self) -> Unsaved:
        return Unsaved() if self._made is None else saved(self._made)

    def _sink(self) -> Sink:
        if self._made is None:
            self._made = self._make()
        return self._made
