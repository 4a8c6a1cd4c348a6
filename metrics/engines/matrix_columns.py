"""The rows of a matrix as columns of a program."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ratioscope.arrays import Floats, Matrix


@dataclass(frozen=True, eq=False)
class MatrixColumns(Mapping[str, Floats]):
    """Name -> row. Machine code finds all rows by the address of the matrix, which is a call for all and not one for each."""

    names: tuple[str, ...]
    """The name of each row."""
    matrix: Matrix
    """Shape (names, numbers)."""

    def __getitem__(self, name: str) -> Floats:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _rows(self) -> dict[str, Floats]:
        return dict(zip(self.names, self.matrix, strict=True))
