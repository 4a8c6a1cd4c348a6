"""Numbers and options that a caller gives, and numbers of sequences that come without ids. The number and a label form the id.

A run can hold steps, ranks and attempts only if they fit its columns.
"""

import itertools
import operator
import sys
import threading
from collections.abc import Mapping
from typing import Any, SupportsIndex

import numpy as np

from ratioscope.errors import ConfigError, SchemaError
from ratioscope.record import POLICIES

from ..process.failures import let_go
from .text_policy import TEXTS

_MOST_STEPS = 1 << 63
_EXACT = 1 << 53  # beyond it, neighbouring floats are more than 1 apart
_MOST = 1 << 31  # ranks and attempts are columns of 32 bits


def step_number(step: SupportsIndex) -> int:
    """The step as a number that a run can hold; SchemaError if it is none. A float such as 3.0, as some loggers give, is 3."""
    try:
        number = operator.index(step)
    except TypeError:
        as_float = float(step) if isinstance(step, (float, np.floating)) else float("nan")
        if not as_float.is_integer() or abs(as_float) > _EXACT:
            raise SchemaError(f"the step is a {type(step).__name__}; wanted the trainer's own whole number") from None
        number = int(as_float)
    if not -_MOST_STEPS <= number < _MOST_STEPS:
        raise SchemaError("the step has more than 64 bits; wanted the trainer's own number of the step")
    return number


def step_if_any(step: Any) -> int | None:
    """The same; None if the step is no such number."""
    outer = sys.exception()
    try:
        return step_number(step)
    except Exception as error:
        let_go(error, outer)
        return None


def option_number(name: str, value: SupportsIndex, meaning: str) -> int:
    """The rank or attempt given as option `name`, as a number that a run can hold; ConfigError if it is none."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < _MOST:
        wanted = f"wanted a whole number of 0 to {_MOST - 1}; give {meaning}, or None to have it found out"
        raise ConfigError(f"{name} is {value!r}; {wanted}")
    return number


EXISTING = ("resume", "new", "error")


def check_choices(
    text: str, queue_batches: int, when_full: str, writer: str | None, existing: str | None = None
) -> None:
    """ConfigError for an option that is none of its choices."""
    if text not in TEXTS:
        raise ConfigError(f"text is {text!r}; wanted one of {', '.join(TEXTS)}")
    if queue_batches < 1:
        raise ConfigError(f"queue_batches is {queue_batches}; wanted at least 1")
    if when_full not in ("drop", "wait") or writer not in (None, "process", "thread"):
        raise ConfigError(
            f"when_full is {when_full!r} and writer {writer!r}; wanted 'drop' or 'wait', and 'process' or 'thread'"
        )

    if existing not in (None, *EXISTING):
        raise ConfigError(f"existing is {existing!r}; wanted one of {', '.join(EXISTING)}, or None")


def resolution_of(given: Mapping[str, float]) -> dict[str, float]:
    """The resolution of each policy; ConfigError for another name, or for no size."""
    sizes = {policy: float(size) for policy, size in given.items() if policy in POLICIES and 0 < size < 1e3}
    if len(sizes) < len(given):
        wanted = f"one of {', '.join(POLICIES)} with the largest error of its log-probs"
        raise ConfigError(
            f"resolution is {dict(given)}; wanted {wanted}, such as {{'rollout': 5e-5}} for four decimals"
        )
    return sizes


_NUMBERED = 256
"""Number of steps and minibatches whose numbering is remembered."""


class SequenceNumbers:
    """The next number of each step and minibatch. Threads may share it.

    Numbers are counted per minibatch, so that ids of one sequence agree in all of them. label: begins the ids of this process.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._lock, self._interruptions = threading.RLock(), itertools.count()
        self._is_busy = False
        self._next: dict[tuple[int, int | None], int] = {}

    def take(self, step: int, minibatch: int | None, sequences: int) -> tuple[str, int]:
        """The label and the first number for so many sequences.

        A signal handler that logs while the same thread is in here numbers its sequences under a label of their own.
        """
        with self._lock:
            if self._is_busy:
                return f"{self._label}.{next(self._interruptions)}", 0
            self._is_busy = True
            try:
                first = self._next.pop((step, minibatch), 0)
                self._next[step, minibatch] = first + sequences
                if len(self._next) > _NUMBERED:
                    self._next.pop(next(iter(self._next)))
            finally:
                self._is_busy = False
            return self._label, first
