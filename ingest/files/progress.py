"""How a long read reports its progress."""

from collections.abc import Callable

OnProgress = Callable[[int, int], None]
"""Called with the number of steps (in `verify`: of files) that have been read, and with their number in all."""
