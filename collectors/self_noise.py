"""self_noise: how far the trainer is from itself, by a second forward of a few sequences in batches of another shape.

The log-probs of the second forward become the reading `trainer_again`. Its distance from the trainer's own log-probs is the
floor below which no engine can be expected to agree with this trainer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ratioscope.errors import ConfigError

from .process.counts import reason_of
from .process.failures import let_go
from .process.isolated_forward import fault_of, isolated_forward
from .process.signal_handlers import is_of_a_handler

AGAIN = "trainer_again"
"""The name of the reading."""
ENOUGH = 3
"""After so many failures in a row no second forward is made any more."""
Scorer = Callable[[list[int]], Sequence[Any]]
"""Takes places of sequences in a batch; returns the trainer's log-probs of each, (T_i,)."""


@dataclass(frozen=True)
class SelfNoise:
    """The rate at which the trainer reads sequences a second time."""

    every: int = 10
    """Steps from one reading to the next at least; the first step is read."""
    sequences: int = 4
    """Sequences that are read then, on each rank."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"self_noise: {item.name} is {value!r}; wanted a whole number of at least 1")

    def places(self, rows: int) -> list[int]:
        """Places of the sequences to read among so many, at even distances; no random number is drawn.

        >>> SelfNoise(sequences=3).places(32)
        [0, 10, 21]
        """
        number = min(self.sequences, rows)
        return [index * rows // number for index in range(number)]


def self_noise_of(option: object) -> SelfNoise | None:
    """The option `self_noise` of `attach` and of Collector: True for SelfNoise(), False or None for none."""
    if option is None or option is False:
        return None
    if option is True:
        return SelfNoise()
    if isinstance(option, SelfNoise):
        return option
    raise ConfigError(f"self_noise is {option!r}; wanted True or ratioscope.SelfNoise(every=10, sequences=4)")


class SecondForward:
    """Reads a few sequences again when it is time to. A failure costs the reading and nothing else.

    say: called once with a step and a sentence if no reading can be made. failed: called with each failure.
    """

    def __init__(
        self, noise: SelfNoise, say: Callable[[int, str], None], failed: Callable[[str, Exception], None]
    ) -> None:
        self.noise = noise
        self._say, self._failed = say, failed
        self._failures = 0
        self._is_over = False
        self._last: int | None = None

    def read(self, step: int, rows: int, score: Scorer, model: Any) -> dict[str, list[Any]]:
        """{"trainer_again": log-probs per sequence, None where it was not read}; {} if it is not time, or if it failed.

        model: a torch module or several, whose state is put back afterwards.
        """
        models = model if isinstance(model, (list, tuple)) else (model,)
        if self._is_over or rows < 1 or not self._is_due(step):
            return {}
        self._last = step
        outer = sys.exception()
        try:
            if fault := next(filter(None, map(fault_of, models)), ""):
                self._end(step, f"self_noise: no {AGAIN} is recorded: {fault}")
                return {}
            places = self.noise.places(rows)
            with isolated_forward(*models):
                read = [logprobs.detach() for logprobs in score(places)]
            own = dict(zip(places, read, strict=True))
        except Exception as error:
            if is_of_a_handler(error):
                raise
            self._count(step, error)
            let_go(error, outer)
            return {}
        self._failures = 0
        return {AGAIN: [own.get(place) for place in range(rows)]}

    def _is_due(self, step: int) -> bool:
        """A step that is before the last reading belongs to another start of training."""
        return self._last is None or not self._last <= step < self._last + self.noise.every

    def _count(self, step: int, error: Exception) -> None:
        self._failures += 1
        if self._failures >= ENOUGH:
            times = f"failed {ENOUGH} times in a row, at last with {reason_of(error)}"
            self._end(step, f"self_noise: the second forward {times}; it is not tried any more. Training goes on")
        self._failed("self_noise", error)

    def _end(self, step: int, sentence: str) -> None:
        self._is_over = True
        self._say(step, sentence)
