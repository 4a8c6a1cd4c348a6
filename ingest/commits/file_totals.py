"""Totals over the token files of one writer, kept current file by file: a look at a long run adds nothing up again."""

from collections.abc import Iterable
from dataclasses import dataclass

from .entries import TokenFile

_NewestCounts = tuple[int, int, int]
"""(sequences offered, step, sequences dropped) of a commit."""


@dataclass(frozen=True)
class FileTotals:
    """Numbers of sequences of some token files."""

    rows: int = 0
    """Sequences whose token rows the files hold."""
    left_out: int = 0
    """Sequences that a budget left out of them."""
    newest: _NewestCounts | None = None
    """The counts of the commit with most sequences offered; None without a file."""
    last_step: int | None = None

    def plus(self, file: TokenFile) -> "FileTotals":
        """The totals with one more file."""
        counts = file.offered or 0, file.step, file.dropped or 0
        return FileTotals(
            self.rows + file.rows,
            self.left_out + file.left_out,
            counts if self.newest is None else max(self.newest, counts),
            file.step if self.last_step is None else max(self.last_step, file.step),
        )


def file_totals(files: Iterable[TokenFile]) -> FileTotals:
    """The totals of these files."""
    totals = FileTotals()
    for file in files:
        totals = totals.plus(file)
    return totals
