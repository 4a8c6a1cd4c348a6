"""Sink: what a place for rows has to offer. ParquetSink, the run folder, is one; a Sink of your own has the same three calls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from ..process.counts import Tally, reason_of


@dataclass(frozen=True)
class Unsaved:
    """The part of all that a sink was given that is not durable. False where everything is durable."""

    steps: frozenset[int] = frozenset()
    """Steps whose statistics wait in memory."""
    lost: frozenset[int] = frozenset()
    """Steps whose statistics are not even in memory any more, because too many waited."""
    lines: int = 0
    """Lines of the commit log that wait in memory."""
    reason: str = ""

    def __bool__(self) -> bool:
        return bool(self.steps or self.lost or self.lines or self.reason)


@dataclass(frozen=True)
class RowsOutcome:
    """The fate of the rows of a step that a sink was given."""

    rows: int
    """Rows on disk."""
    tokens: int
    """Tokens of the rows on disk."""
    left_out: int = 0
    """Rows that the budget chose not to write."""
    refused: str | None = None
    """Why no row could be written; None if nothing was in the way. Their statistics count all the same."""
    failures: tuple[str, ...] = ()
    """Further failures, none of which lost a row."""


@dataclass(frozen=True)
class StepRows:
    """Rows of a step that are to be written."""

    step: int
    rows: pa.Table
    earlier: pa.Table | None = None
    """The rows of the same step that were written just before, if the step comes in parts."""

    @property
    def every_part(self) -> pa.Table:
        """The earlier rows and these."""
        return self.rows if self.earlier is None else pa.concat_tables([self.earlier, self.rows])


class Sink(Protocol):
    """A place for rows. Only the writer's thread calls it. If a call raises, that is counted and the next call is made.

    A sink may also have a method `begin`, which makes the run folder before there is anything to write.
    """

    def open(self) -> int:
        """Makes the sink ready and returns the attempt that the rows belong to. The caller repeats it until it succeeds."""
        ...

    def write(self, step: int, rows: pa.Table, earlier: pa.Table | None, tally: Tally, late: str | None) -> RowsOutcome:
        """Makes the rows of a step and their statistics durable. Raises if it could do neither.

        earlier: the rows of the same step that were written just before, if the step comes in parts. tally: counts of sequences
        so far, for the commit log. late: why the writer has no time for token rows at present; None if it has time.
        """
        ...

    def say(self, entry: Mapping[str, Any]) -> None:
        """Makes a line of the commit log durable, in this call or a later one."""
        ...


@runtime_checkable
class TakesSteps(Sink, Protocol):
    """A sink that makes several steps durable for less than one after the other."""

    def write_steps(self, steps: Sequence[StepRows], tally: Tally, late: str | None) -> list[RowsOutcome]:
        """`write` for each of the steps, which are few, small, and in order. Returns the outcome of each."""
        ...


@runtime_checkable
class Saving(Sink, Protocol):
    """A sink that keeps in memory what could not be written.

    Any other sink is trusted: all that a call was given is durable, unless its outcome or its exception said otherwise.
    """

    def unsaved(self) -> Unsaved:
        """Numbers of sequences and tokens that are not durable."""
        ...

    def save(self) -> Unsaved:
        """Tries once more to make everything durable. Returns what still is not."""
        ...


@runtime_checkable
class KeepsReadings(Sink, Protocol):
    """A sink that also takes readings: further log-probs of the rows that it was given last."""

    def write_reading(self, step: int, name: str, rows: pa.Table) -> None:
        """Makes the rows of a reading durable. Raises if it cannot."""
        ...


def outcomes(sink: Sink, steps: Sequence[StepRows], tally: Tally, late: str | None) -> list[RowsOutcome]:
    """Has the sink write the steps: together if it can."""
    if len(steps) > 1 and isinstance(sink, TakesSteps):
        return sink.write_steps(steps, tally, late)
    return [sink.write(each.step, each.rows, each.earlier, tally, late) for each in steps]


def unsaved(sink: Sink | None) -> Unsaved:
    """The rows that the sink (None: none was made yet) was given and that are not durable, as far as it knows. Never raises."""
    return _answer(sink.unsaved) if isinstance(sink, Saving) else Unsaved()


def saved(sink: Sink | None) -> Unsaved:
    """The same, after the sink has tried once more."""
    return _answer(sink.save) if isinstance(sink, Saving) else Unsaved()


def _answer(ask: Callable[[], Unsaved]) -> Unsaved:
    try:
        return ask()
    except Exception as error:
        return Unsaved(reason=reason_of(error))
