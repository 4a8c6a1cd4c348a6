"""Tells the starts of a job apart: a log whose steps go back was continued by a job that was started again."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ratioscope.errors import SourceError

from .number_row import MOST_NAMES, Logged

MOST_ATTEMPTS = 256


@dataclass
class Attempts:
    """Numbers the starts while a log is read. A name that is logged again at an earlier step begins the next one.

    A name that is logged twice at one step is no restart: the later value counts, and both are counted here.
    """

    number: int = 0
    """The start that is being read, from 0."""
    begins: list[int] = field(default_factory=list)
    """The first step of each start after the first."""
    twice: int = 0
    """Values that a later value of the same name and step replaced."""
    _newest: dict[str, int] = field(default_factory=dict)
    """Name -> the newest step of it in this start."""

    def of(self, rows: Iterable[Logged]) -> Iterator[tuple[int, Logged]]:
        """(number of the start, row) for each row."""
        for row in rows:
            if any(row.step < self._newest.get(name, -1) for name in row.values):
                self._begin(row)
            for name in row.values:
                self.twice += self._newest.get(name) == row.step
                self._newest[name] = row.step
            if len(self._newest) > MOST_NAMES:
                raise SourceError(f"{row.file} has more than {MOST_NAMES} names; a log of scalars has some thousand")
            yield self.number, row

    def _begin(self, row: Logged) -> None:
        self.number += 1
        self.begins.append(row.step)
        self._newest.clear()
        if self.number > MOST_ATTEMPTS:
            raise SourceError(
                f"{row.file}: its steps go back {self.number} times, so its field of the step counts something else; name"
                " the field of the step: --map step=FIELD"
            )
