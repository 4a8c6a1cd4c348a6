"""StepBuffer: rows that wait for the end of their step, and ended steps that wait to be written together."""

from collections.abc import Iterator

import pyarrow as pa

SMALL_BYTES = 1 << 20
"""Ended steps wait for others up to so many bytes together; a batch below it is copied in the time that a further chunk costs."""


class StepBuffer:
    """Rows by step, and readings of them."""

    def __init__(self) -> None:
        self._rows: dict[int, list[pa.RecordBatch]] = {}
        self._readings: dict[int, dict[str, list[pa.RecordBatch]]] = {}
        self._sizes: dict[int, int] = {}

    def __contains__(self, step: int) -> bool:
        return step in self._rows

    @property
    def steps(self) -> list[int]:
        """The steps, in order."""
        return sorted(self._rows)

    @property
    def largest(self) -> int:
        """The step of most bytes."""
        return max(self._rows, key=lambda step: self._sizes[step])

    def bytes(self, steps: list[int] | None = None) -> int:
        """The bytes of the rows and readings, of these steps if they are given."""
        return sum(self._sizes.values() if steps is None else (self._sizes[step] for step in steps))

    def add(self, step: int, rows: pa.RecordBatch) -> None:
        """Adds rows of a step."""
        self._rows.setdefault(step, []).append(rows)
        self._sizes[step] = self._sizes.get(step, 0) + rows.nbytes

    def add_reading(self, step: int, name: str, rows: pa.RecordBatch) -> None:
        """Adds rows of a reading of a step that has rows."""
        self._readings.setdefault(step, {}).setdefault(name, []).append(rows)
        self._sizes[step] += rows.nbytes

    def take_out(self, step: int) -> tuple[list[pa.RecordBatch], dict[str, list[pa.RecordBatch]]]:
        """The rows of a step and name -> those of a reading, which wait no more."""
        del self._sizes[step]
        return self._rows.pop(step), self._readings.pop(step, {})

    def groups(self, steps: list[int], most: int) -> Iterator[list[int]]:
        """The steps by groups of at most so many that are small together; a large step is alone."""
        group = list[int]()
        for step in steps:
            if group and (len(group) >= most or self.bytes([*group, step]) > SMALL_BYTES):
                yield group
                group = []
            group.append(step)
        if group:
            yield group
