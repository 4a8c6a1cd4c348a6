"""Overall: the statistics over all tokens of full segments, written once more, many segments in one file.

A reader of a long run needs a tenth of each segment at first: the rows of slice `all`. One file of eight segments is decoded in
less time than one segment, which has the rows of all slices. The segments hold the same rows, so nothing is lost if such a file
could not be written, or its writer was killed before: readers read the segments then. The file has the shape of each tail beside
it, so that metrics by step need neither the tails, which are nine tenths of the decoded rows, nor a fit of each.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ratioscope import layout
from ratioscope.metrics.engines.statistics_table import with_shapes

from ..process.counts import reason_of

Entry = dict[str, Any]


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
