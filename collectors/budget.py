"""Budget: the disk space that token rows, and top-k beside them, may take. The Collector takes one, control.json changes it.

Statistics of all tokens are always written. A budget only decides how many whole sequences are kept beside them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ratioscope.errors import ConfigError
from ratioscope.flat_json import loaded
from ratioscope.inside import content

CONTROL_FILE = "control.json"
_SHARE_OF_REST = 1 / 50
_FIRST_BYTES_PER_TOKEN = 12.0  # three policies in float32, compressed; then what the files really take
FIRST_BYTES_PER_ALTERNATIVE = 10.0
"""Bytes that an alternative of top-k takes before any was written: an id, and two log-probs in float32, compressed."""
_MOST_CONTROL_BYTES = 1 << 16


@dataclass(frozen=True)
class Budget:
    """Limits on the token rows of one writer."""

    step_bytes: int | None = None
    """Bytes for the token rows of one step; None: no limit."""
    run_bytes: int | None = None
    """Bytes for the token rows of all steps; None: no limit.

    Each step may take a fiftieth of what is left. So some is always left, and the last steps, where runs collapse, are kept too.
    """
    disk_reserve: int = 64 << 20
    """Bytes of the disk that must stay free. If fewer are free, only statistics are written."""
    worst: int = 8
    """Number of sequences per step that are kept in any case: those with the largest log-ratios."""
    seed: int = 0
    """Decides which other sequences are kept."""
    topk_step_bytes: int | None = 256 << 20
    """Bytes for the top-k of one step, apart from the token rows; None: no limit, 0: top-k is not written."""
    topk_run_bytes: int | None = 16 << 30
    """Bytes for the top-k of all steps, of which each step may take a fiftieth of what is left; None: no limit."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            optional = item.name.endswith(("step_bytes", "run_bytes"))
            if not (value is None and optional) and (
                isinstance(value, bool) or not isinstance(value, int) or value < 0
            ):
                raise ConfigError(f"budget: {item.name} is {value!r}; wanted a whole number of at least 0")


@dataclass
class Spending:
    """The part of its budget that a writer has spent."""

    total: int = 0
    """Bytes of token rows so far."""
    _step: int | None = None
    _of_step: int = 0
    """Bytes of the step that was written last."""
    _bytes_per_token: float = _FIRST_BYTES_PER_TOKEN
    """Running mean, by which a step's size is estimated before it is written."""

    def share(self, budget: Budget, step: int, tokens: int) -> float:
        """The share of these tokens of the step that there is room for, in [0, 1]."""
        return self.share_within(budget.step_bytes, budget.run_bytes, step, tokens)

    def share_within(self, step_bytes: int | None, run_bytes: int | None, step: int, tokens: int) -> float:
        """The same for limits of their own."""
        spent = self._of_step if step == self._step else 0
        limits = [step_bytes - spent] if step_bytes is not None else []
        if run_bytes is not None:
            limits.append(int((run_bytes - self.total) * _SHARE_OF_REST) - spent)
        if not limits or not tokens:
            return 1.0
        return min(1.0, max(0.0, min(limits) / (tokens * self._bytes_per_token)))

    def spend(self, step: int, nbytes: int, tokens: int) -> None:
        """Counts a token file that was written."""
        self._of_step = nbytes + (self._of_step if step == self._step else 0)
        self._step, self.total = step, self.total + nbytes
        if tokens:
            self._bytes_per_token += 0.3 * (nbytes / tokens - self._bytes_per_token)


@dataclass
class Control:
    """The budget in force: the one that was given, with the changes that the run's control file makes."""

    path: Path
    given: Budget
    now: Budget
    """The budget in force."""
    _seen: tuple[int, int] | None = None
    """Time of change and size of the control file when it was read; None before."""

    def refresh(self) -> str | None:
        """Reads the control file if it has changed. A sentence if the budget changed or the file cannot be read."""
        seen = self._stamp()
        if seen == self._seen:
            return None
        self._seen = seen
        before = self.now
        try:
            self.now = self.given if seen is None else replace(self.given, **_changes(self.path))
        except (OSError, ValueError, TypeError) as error:
            return f"{CONTROL_FILE} is not followed: {error}; it stays at {_changed_words(self.now, self.given)}"
        return f"token rows from here on: {_changed_words(self.now, self.given)}" if self.now != before else None

    def _stamp(self) -> tuple[int, int] | None:
        try:
            status = self.path.lstat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size


def _changes(path: Path) -> Mapping[str, Any]:
    control = loaded(content(path.parent, path.name, _MOST_CONTROL_BYTES))
    known = [item.name for item in fields(Budget)]
    if not isinstance(control, dict) or not set(control) <= set(known):
        raise ConfigError(f"wanted an object with any of {', '.join(known)}; found {str(control)[:80]}")
    return control


def _changed_words(budget: Budget, given: Budget) -> str:
    changed = {item.name: getattr(budget, item.name) for item in fields(Budget)}
    changes = ", ".join(f"{name} {value}" for name, value in changed.items() if value != getattr(given, name))
    return changes or "as the run began"
