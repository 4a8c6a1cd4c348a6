"""How long rows wait in memory for more rows of their step. Readers learn of a step as soon as its rows are written."""

import math

LEAST_SECONDS = 1.0
"""A trainer that logs a step in one call needs no wait; a second more costs a reader nothing that it would notice."""
TIMES = 4.0
"""Longest interval so far between two batches of one step, times this: a step whose batches come late is rarely cut in two."""


class StepPatience:
    """Learns from the intervals between the batches of each step. Rows that come after the wait are written as a further part."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._came = math.nan
        self._longest = 0.0
        self._knows_a_step = False

    def came(self, step: int, now: float) -> None:
        """A batch of this step came. now: seconds on any clock that never goes back."""
        if step == self._step:
            self._longest = max(self._longest, now - self._came)
        elif self._step is not None:
            self._knows_a_step = True
        self._step, self._came = step, now

    def seconds(self, most: float) -> float:
        """Seconds to wait for the next batch, at most `most`: that, until one step has been seen whole."""
        return min(most, max(LEAST_SECONDS, TIMES * self._longest)) if self._knows_a_step else most
