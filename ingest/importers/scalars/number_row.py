"""A row of a scalar log, and the words of other programs for numbers and steps."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.flat_json import loaded

STEP_NAMES = (
    "ratioscope/step", "training/global_step", "train/global_step", "trainer/global_step", "global_step", "step", "rollout/step",
    "train/step", "iteration", "iter", "update", "_step",
)  # fmt: skip
"""Fields that hold the step, the most certain first: of a row with several, a trainer's own step comes before the logger's."""
EVENTS = {
    "producer/event": "it is a record of the Fireworks cookbook's producer: its step counts events, not steps of training",
}  # fmt: skip
"""Fields of rows that share a log with those of the trainer and have no place among its steps, and why."""
MOST_NAMES = 20_000
LONGEST_NAME = 500
MOST_STEP = 10**15
_WORDS = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "inf": float("inf"),
    "-infinity": -float("inf"),
    "-inf": -float("inf"),
}

_PYTHON = {"True": True, "False": False, "None": None}


@dataclass(slots=True)
class Logged:
    """The numbers that were logged together."""

    file: str
    row: int
    step: int
    values: dict[str, float]
    """name -> value; NaN and infinities as they were logged."""


@dataclass
class LogChoices:
    """The choices of the user, and the facts that were noticed while a log was read."""

    step: str | None = None
    """The field of the step; None: the first of STEP_NAMES that the log has."""
    run: str | None = None
    """The run of a store that holds several."""
    no_numbers: Counter[str] = field(default_factory=Counter)
    """Name -> values of it that are no numbers: texts, lists, pictures."""
    notes: list[str] = field(default_factory=list)
    """Sentences about how the log was read."""
    config: dict[str, Any] = field(default_factory=dict)
    """The trainer's settings, where the log has them, as far as it was read. Any: JSON of any program."""


def number(value: object) -> float | None:
    """The value as a number, words for NaN and infinities among them; None for anything else.

    >>> number("-Infinity"), number(True), number(10**400)
    (-inf, None, inf)
    """
    if isinstance(value, str):
        return _WORDS.get(value.strip().lower())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer of a stranger's
        return float("inf") if value > 0 else float("-inf")


def setting(text: str) -> Any:
    """The value of a setting that a logger keeps as text: a number, a truth value, a list; else the text. Any: as JSON has it.

    >>> setting("1e-06"), setting("True"), setting("None"), setting("bfloat16")
    (1e-06, True, None, 'bfloat16')
    """
    if text in _PYTHON:
        return _PYTHON[text]
    try:
        value = loaded(text)
    except ValueError:
        return text
    return text if isinstance(value, str) else value


def numbers(values: Mapping[str, Any], choice: LogChoices, step: str | None = None) -> dict[str, float]:
    """The numbers of a row, nested names joined by "/". Another value is counted by its name; null is nothing."""
    numbers_by_name: dict[str, float] = {}
    for name, value in flat(values):
        if name == step or value is None:
            continue
        if (own := number(value)) is None:
            if len(choice.no_numbers) < MOST_NAMES:
                choice.no_numbers[name[:LONGEST_NAME]] += 1
        else:
            numbers_by_name[name[:LONGEST_NAME]] = own
    return numbers_by_name


def flat(values: Mapping[str, Any], before: str = "", depth: int = 8) -> Iterable[tuple[str, Any]]:
    """(name, value) of a nested object, names joined by "/"."""
    for name, value in values.items():
        full = f"{before}{name}"
        if isinstance(value, Mapping) and depth:
            yield from flat(value, f"{full}/", depth - 1)
        else:
            yield full, value


def whole_step(value: object) -> int | None:
    """The step as a whole number; None for anything else.

    >>> whole_step(3.0), whole_step("7"), whole_step(3.5), whole_step(-1)
    (3, 7, None, None)
    """
    if isinstance(value, str):
        value = int(value) if value.strip().isdigit() and len(value) < 16 else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return int(value) if 0 <= value <= MOST_STEP and value == int(value) else None


def without_place(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """(field, reason) of a row that has no place among the steps of training; None for a row of the trainer."""
    return next(((name, reason) for name, reason in EVENTS.items() if name in row), None)


def step_field(rows: Iterable[Mapping[str, Any]], choice: LogChoices, other: str = "") -> str:
    """The field of the step: the chosen one, else the first of STEP_NAMES that any of the first rows has.

    other: what it is where none has one; empty: SourceError.
    """
    if choice.step is not None:
        return choice.step
    names = {name for row in rows for name, _ in flat(row)}
    for known in STEP_NAMES:
        if known in names:
            return known
    if other:
        return other
    few = ", ".join(sorted(names)[:6]) or "no field"
    raise SourceError(f"no field of its rows is a step that is known here ({few}); name it: --map step=FIELD")
