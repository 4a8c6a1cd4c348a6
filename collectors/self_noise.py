"""self_noise: how far the trainer is from itself, by a second forward of a few sequences in batches of another shape.

The log-probs of the second forward become the reading `trainer_again`. Its distance from the trainer's own log-probs is the
floor below which no engine can be expected to agree with this trainer.

All ranks join each forward where they hold shards of the weights. A rank that stays away, or that fails alone, leaves the
others waiting until the timeout of their process group, as in the trainer's own forwards. So a step's number alone decides, each
rank reads one sequence at a time, which takes less memory than the trainer's own call just before it, and the first failure is
the last.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from typing import Any

from ratioscope.errors import ConfigError

from .process.counts import reason_of
from .process.failures import is_of_a_handler, let_go
from .process.isolated_forward import fault_of, isolated_forward

AGAIN = "trainer_again"
"""The name of the reading."""
ENOUGH = 3
"""After so many failures in a row no second forward is made any more; after one, if ranks join it."""
ALONE = (
    "self_noise: no trainer_again is recorded: the trainer's micro-batches hold one sequence, so a second forward would have "
    "their shape, and equal values would measure nothing; a larger micro-batch for log-probs records it"
)
UNSCORED = (
    "self_noise: no trainer_again is recorded: with these settings the trainer computes no old log-probs before it trains, so "
    "there is no forward to repeat"
)
MORE_THAN_TOKENS = (
    "self_noise: no trainer_again is recorded: the batches hold more than tokens (images, routes of experts, or the sampler's "
    "support), which are not cut to another shape"
)
REPLAYED = (
    "self_noise: no trainer_again is recorded: the trainer replays the routes of its experts, and another forward would add to "
    "those that it keeps"
)
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

    def places(self, rows: int, ranks: int = 1) -> list[int]:
        """Places of the sequences to read among so many, at even distances, as many for each rank; no random number is drawn.

        >>> SelfNoise(sequences=3).places(32)
        [0, 10, 21]
        """
        number = min(self.sequences, rows // ranks) * ranks
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


def self_noise_in_words(text: str) -> SelfNoise | None:
    """The rate in a text, steps x sequences: 10x4, or the steps alone; 0 for none. ConfigError for anything else.

    >>> self_noise_in_words("10x4")
    SelfNoise(every=10, sequences=4)
    """
    every, _, sequences = text.strip().partition("x")
    if text.strip() in ("", "0"):
        return None
    if not every.isdecimal() or not (sequences or "1").isdecimal():
        raise ConfigError(f"self_noise is {text!r}; wanted steps x sequences, such as 10x4")
    return SelfNoise(int(every), int(sequences)) if sequences else SelfNoise(int(every))


def readings_of(rows: Sequence[Any]) -> dict[str, Any]:
    """The argument `readings` of `log` for these rows, None where one was not read; {} if none was."""
    return {"readings": {AGAIN: list(rows)}} if any(row is not None for row in rows) else {}


def guarded(model: Any) -> ExitStack:
    """A worker's part of a second forward: until it is closed, as `isolated_forward`. model: a module, several, or none."""
    models = model if isinstance(model, (list, tuple)) else (model,)
    stack = ExitStack()
    stack.enter_context(isolated_forward(*(each for each in models if hasattr(each, "modules")), are_sharded=True))
    return stack


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
        self.is_over = False
        """True if no second forward is made any more."""
        self._last: int | None = None

    def read(self, step: int, rows: int, score: Scorer, model: Any, ranks: int | None = None) -> dict[str, list[Any]]:
        """{"trainer_again": log-probs per sequence, None where it was not read}; {} if it is not time, or if it failed.

        model: a torch module or several, whose state is put back afterwards. ranks: number of them that share the sequences and
        join each forward; `score` then gets so many places at a time, one for each.
        """
        models = model if isinstance(model, (list, tuple)) else (model,)
        if self.is_over or rows < (ranks or 1) or not self.is_due(step):
            return {}
        self._last = step
        outer = sys.exception()
        try:
            if fault := "" if ranks else next(filter(None, map(fault_of, models)), ""):
                self.end(step, f"self_noise: no {AGAIN} is recorded: {fault}")
                return {}
            places = self.noise.places(rows, ranks or 1)
            parts = [places[start : start + ranks] for start in range(0, len(places), ranks)] if ranks else [places]
            with isolated_forward(*models, are_sharded=bool(ranks)):
                read = [logprobs.detach() for part in parts for logprobs in score(part)]
            own = dict(zip(places, read, strict=True))
        except Exception as error:
            if is_of_a_handler(error):
                raise
            self._count(step, error, 1 if ranks else ENOUGH)
            let_go(error, outer)
            return {}
        self._failures = 0
        return {AGAIN: [own.get(place) for place in range(rows)]}

    def is_due(self, step: int) -> bool:
        """A step that is before the last reading belongs to another start of training."""
        return self._last is None or not self._last <= step < self._last + self.noise.every

    def _count(self, step: int, error: Exception, enough: int) -> None:
        self._failures += 1
        if self._failures >= enough:
            times = f"{enough} times in a row, at last" if enough > 1 else "once"
            what = f"the second forward failed {times} with {reason_of(error)}"
            self.end(step, f"self_noise: {what}; it is not tried any more. Training goes on")
        self._failed("self_noise", error)

    def end(self, step: int, sentence: str) -> None:
        """Makes no second forward any more, for the reason in the sentence, which is said once."""
        if self.is_over:
            return
        self.is_over = True
        self._say(step, sentence)
