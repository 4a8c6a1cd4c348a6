"""Budget: how much memory a stranger's file may ask for. The memory of a value is charged before the value is made."""

from dataclasses import dataclass

from ratioscope.errors import UnsafeFile

OBJECT_BYTES = 64
"""Charged for each object of Python; a float takes 24 and its place in a list 8, an empty dictionary 64."""


@dataclass(frozen=True)
class FileLimits:
    """The most that one file may ask for."""

    nbytes: int = 8 << 30
    """Memory, all values of a file together."""
    nested: int = 64
    """Levels of lists, tuples and dictionaries."""
    members: int = 1 << 20
    """Members of an archive."""


class Allowance:
    """The rest of the limits while one file is read."""

    def __init__(self, limits: FileLimits | None = None) -> None:
        self.limits = limits or FileLimits()
        self._left = self.limits.nbytes

    def spend(self, nbytes: int) -> None:
        """Charges bytes. Raises UnsafeFile where fewer are left."""
        if nbytes < 0 or nbytes > self._left:
            raise UnsafeFile(
                f"it decodes to more than {self.limits.nbytes} bytes, the most that one file may take; if the file is"
                " yours and really so large, allow more with --most-memory"
            )
        self._left -= nbytes
