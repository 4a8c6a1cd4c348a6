"""Segments: the statistics of one writer on their way to disk, in files of up to SEGMENT_STEPS steps.

The newest file is replaced as a whole whenever statistics are added. If a file may not become that large (a quota, `ulimit -f`, a
full disk), it keeps what of it is on disk, and what waits is written in smaller files.
Overall: the statistics over all tokens of full segments, written once more, many segments in one file.

A reader of a long run needs a tenth of each segment at first: the rows of slice `all`. One file of eight segments is decoded in
less time than one segment, which has the rows of all slices. The segments hold the same rows, so nothing is lost if such a file
could not be written, or its writer was killed before: readers read the segments then. The file has the shape of each tail beside
it, so that metrics by step need neither the tails, which are nine tenths of the decoded rows, nor a fit of each.
"""

import errno
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ratioscope import layout
from ratioscope.metrics.engines.statistics_table import with_shapes

from ..process.counts import reason_of

Entry = dict[str, Any]
_MOST_WAITING = 100_000  # rows of statistics, about 100 MB: thousands of steps
_TOO_LARGE = (errno.EFBIG, errno.ENOSPC, errno.EDQUOT)
_MOST_FAILURES = 16  # failures to write smaller files, before the rest waits for the next time
_FAILURES = (OSError, pa.ArrowException, MemoryError)


class Segments:
    """Takes rows of statistics with `add`. `save` writes those that are not on disk. They lie in one chunk.

    write: makes a segment durable, given its number, its rows and their steps, and returns its commit line. full: called with the
    newest commit line of a segment that is full, and its rows: it never changes again.
    """

    def __init__(
        self,
        write: Callable[[int, pa.Table, list[int]], Entry],
        full: Callable[[Entry, pa.Table], None] = lambda entry, rows: None,
    ) -> None:
        self._write, self._full = write, full
        self._entry: Entry = {}  # the newest commit line of the open segment
        self._number, self._most_steps = 0, layout.SEGMENT_STEPS
        self._rows, self._saved = pa.table({}), 0  # rows of the open segment; number of the first ones that are on disk
        self.is_saved = True
        self.lost: set[int] = set()
        """Steps whose statistics were given up because too many waited in memory."""

    @property
    def waiting(self) -> frozenset[int]:
        """Steps whose statistics are only in memory."""
        return frozenset() if self.is_saved else frozenset(_steps(self._rows.slice(self._saved)))

    def add(self, rows: pa.Table) -> None:
        """Adds statistics of a step. If far too many wait, the oldest are given up."""
        every = pa.concat_tables([self._rows, rows]).combine_chunks() if len(self._rows) else rows
        self.is_saved &= not len(rows)
        if (extra := len(every) - _MOST_WAITING) > 0:
            self.lost |= set(_steps(every.slice(self._saved, max(0, extra - self._saved))))
            every, self._saved = every.slice(extra), max(0, self._saved - extra)
        self._rows = every

    def forget(self, step: int) -> None:
        """Removes the statistics of a step."""
        if step in _steps(self._rows):
            self._rows = self._rows.filter(pa.array(np.asarray(self._rows["step"]) != step))
            self._saved, self.is_saved = 0, False

    def roll_over(self, step: int) -> None:
        """Begins another segment if this step is new and the open segment is full and on disk.

        All parts of a step go into one segment, so that a reader finds the statistics of all parts or of none.
        """
        steps = _steps(self._rows)
        if len(steps) >= self._most_steps and step not in steps:
            self.end()

    def end(self) -> None:
        """Begins another segment if the open one is on disk."""
        if self.is_saved and len(self._rows):
            self._full(self._entry, self._rows)
            self._begin(pa.table({}))

    @property
    def room(self) -> int:
        """Number of steps that the open segment takes before it is full, at least one."""
        return max(1, self._most_steps - len(_steps(self._rows)))

    def expect_room(self) -> None:
        """Lets segments become full size again."""
        self._most_steps = layout.SEGMENT_STEPS

    def save(self) -> tuple[list[Entry], str | None]:
        """(commit lines of what was written, None or why the rest could not be written)."""
        if self.is_saved:
            return [], None
        try:
            entries, failure = [self._written(self._rows)], None
        except _FAILURES as error:
            entries, failure = self._in_pieces(error) if _is_too_large(error) else ([], error)
        self.is_saved = failure is None
        return entries, None if failure is None else reason_of(failure)

    def _in_pieces(self, failure: BaseException) -> tuple[list[Entry], BaseException | None]:
        """Writes what waits in as many segments as it takes. Rows that still cannot be written wait in the open segment."""
        if self._saved:
            self._most_steps = len(_steps(self._rows.slice(0, self._saved)))
            self._begin(self._rows.slice(self._saved))
            pieces = [self._rows]
        else:
            pieces = _halves(self._rows)
        entries, waiting, failures = list[Entry](), list[pa.Table](), 0
        while pieces and failures < _MOST_FAILURES:
            piece = pieces.pop()
            if self._saved:
                self._begin(piece)
            try:
                entries.append(self._written(piece))
                self._most_steps = min(self._most_steps, len(_steps(piece)))
            except _FAILURES as error:
                failures, failure = failures + 1, error
                halves = _halves(piece) if _is_too_large(error) else [piece]
                pieces, waiting = ([*pieces, *halves], waiting) if len(halves) > 1 else (pieces, [*waiting, piece])
        if not (rest := [*waiting, *reversed(pieces)]):
            return entries, None
        self._number, self._rows, self._saved = self._number + bool(self._saved), pa.concat_tables(rest), 0
        return entries, failure

    def _written(self, rows: pa.Table) -> Entry:
        entry = self._write(self._number, rows, _steps(rows))
        self._rows, self._saved, self._entry = rows, len(rows), entry
        return entry

    def _begin(self, rows: pa.Table) -> None:
        self._number, self._rows, self._saved = self._number + 1, rows, 0


def _steps(rows: pa.Table) -> list[int]:
    return np.unique(np.asarray(rows["step"])).tolist() if len(rows) else []


def _halves(rows: pa.Table) -> list[pa.Table]:
    """The rows of the later half of the steps, and of the earlier half; the rows themselves if they belong to one step."""
    steps = _steps(rows)
    if len(steps) < 2:
        return [rows]
    is_late = np.asarray(rows["step"]) >= steps[len(steps) // 2]
    return [rows.filter(pa.array(is_late)), rows.filter(pa.array(~is_late))]


def _is_too_large(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _TOO_LARGE


class Overall:
    """Takes full segments with `add`. `written` writes a file of their rows.

    write: makes a file durable, given its number, its rows and the commit lines of its segments, and returns its commit line.
    """

    def __init__(self, write: Callable[[int, pa.Table, Sequence[Entry]], Entry]) -> None:
        self._write, self._number = write, 0
        self._segments, self._rows = list[Entry](), list[pa.Table]()

    def add(self, segment: Entry, rows: pa.Table) -> None:
        """Keeps the rows of slice `all` of a segment that never changes again, given its commit line."""
        self._segments.append(segment)
        self._rows.append(rows.filter(pc.equal(rows["slice"], pa.scalar("all"))))

    def __len__(self) -> int:
        return len(self._segments)

    def written(self) -> tuple[list[Entry], str | None]:
        """(the line of the file, None or why it could not be written). Nothing waits afterwards."""
        segments, parts = self._segments, self._rows
        self._segments, self._rows = [], []
        try:
            numbers = pa.array(np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts]))
            rows = pa.concat_tables(map(with_shapes, parts)).combine_chunks().append_column(layout.SEGMENT, numbers)
            entry = self._write(self._number, rows, segments)
        except Exception as error:  # the segments hold the same rows
            return [], reason_of(error)
        self._number += 1
        return [entry], None
