"""The two sizes of exhaustive tests: the usual one, and the full one of `make test-release`, which sets RATIOSCOPE_FULL."""

import os

from hypothesis import settings

FULL = "RATIOSCOPE_FULL" in os.environ
FEW, MANY = 10, 100
"""Most examples of a law at the usual size, and the examples at full size of a law that names no number of its own."""


def examples(full: int) -> settings:
    """So many examples of a law at full size, at the usual one at most FEW."""
    return settings(max_examples=full if FULL else min(full, FEW))
