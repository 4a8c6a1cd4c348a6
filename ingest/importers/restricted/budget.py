"""FileLimits: the most that one file may ask for. The system holds it, for the process that decodes the file."""

from dataclasses import dataclass

from ratioscope.errors import UnsafeFile


@dataclass(frozen=True)
class FileLimits:
    """The most that one file may ask for."""

    nbytes: int = 8 << 30
    """Memory, all values of a file together."""


def too_large(limits: FileLimits) -> UnsafeFile:
    """The refusal of a file that takes more memory than it may."""
    return UnsafeFile(
        f"it decodes to more than {limits.nbytes} bytes, the most that one file may take; if the file is"
        " yours and really so large, allow more with --most-memory"
    )
