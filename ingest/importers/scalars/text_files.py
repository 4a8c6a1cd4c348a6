"""Logs that are text: verl's file logger, trainer_state.json of the Hugging Face trainers, and tables in JSON or CSV."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ratioscope.errors import UnsafeFile

from ..confinement import FileLimits
from ..containers import container_of, content
from ..row import SetAside, Unreadable
from ..samples import Rejected
from .number_row import LogChoices, Logged, flat, number, numbers, step_field, whole_step, without_place

LoggedRow = Mapping[str, Any]
LOOKED_AT = 20
_FACTOR = 64 << 20
"""Memory that a JSON file that is read whole may take."""


def table_rows(path: Path, choice: LogChoices) -> Iterator[Logged | Rejected]:
    """A row of numbers in each line, the step among them."""
    with content(path, container_of(path.name) or "json lines", {}, FileLimits(_FACTOR * 16)) as opened:
        rows = opened.rows if opened.rows is not None else _of_list(path, opened.whole)
        if container_of(path.name) == "csv":
            rows = map(_with_numbers, rows)
        yield from logged_rows(path.name, rows, choice)


def verl_rows(path: Path, choice: LogChoices) -> Iterator[Logged | Rejected]:
    """Lines {"step": N, "data": {name: number}}."""
    with content(path, "json lines", {}, FileLimits()) as opened:
        yield from logged_rows(path.name, map(_unpacked, opened.rows or ()), choice)


def trainer_state_rows(path: Path, choice: LogChoices) -> Iterator[Logged | Rejected]:
    """The list `log_history` of a trainer_state.json."""
    with content(path, "json", {}, FileLimits(_FACTOR * 16)) as opened:
        whole = opened.whole
        rows = whole.get("log_history") if isinstance(whole, dict) else None
        if not isinstance(rows, list):
            raise UnsafeFile("it is no trainer_state.json: it has no list log_history")
        yield from logged_rows(path.name, rows, choice)


FIREWORKS_STEPS = frozenset(("train/step", "rollout/step", "producer/event"))
"""Fields of which each record of the Fireworks cookbook has one."""


def fireworks_rows(path: Path, choice: LogChoices) -> Iterator[Logged | Rejected]:
    """Records of the trainer; `step` is theirs. The cookbook writes null for what is not finite."""
    with content(path, "json lines", {}, FileLimits()) as opened:
        yield from logged_rows(path.name, map(_with_nan, opened.rows or ()), choice)


def prime_rl_rows(path: Path, choice: LogChoices) -> Iterator[Logged | Rejected]:
    """Rows of prime-rl's file monitor: several of a step, each with its producer. It may be written while it is read."""
    with content(path, "json lines", {}, FileLimits()) as opened:
        yield from logged_rows(path.name, (_of_producer(row) for row in opened.rows or ()), choice)


def _of_producer(row: Any) -> Any:
    """The row, in which times of another producer than the trainer have its name: both log `time/step`."""
    if isinstance(row, Unreadable) and row.is_cut:
        return SetAside("lines that do not end yet")
    if not isinstance(row, Mapping):
        return row
    if row.get("step") is None:
        return SetAside("rows of engines and machines, which name no step")
    own = row.get("producer")
    before = "" if own == "trainer" else f"{own}/"
    return {
        f"{before}{name}" if name.startswith("time/") else name: value
        for name, value in row.items()
        if name not in ("time", "producer")
    }


def _with_nan(row: Any) -> Any:
    return (
        {name: float("nan") if value is None else value for name, value in row.items()}
        if isinstance(row, Mapping)
        else row
    )


def logged_rows(file: str, rows: Iterable[Any], choice: LogChoices) -> Iterator[Logged | Rejected]:
    """Each row as numbers with a step. A row that is no object, or has no whole step, is rejected."""
    every = iter(rows)
    first = list(islice(every, LOOKED_AT))
    step = step_field([row for row in first if isinstance(row, Mapping)], choice)
    aside: Counter[str] = Counter()
    for place, row in enumerate(chain(first, every)):
        if isinstance(row, SetAside):
            aside[row.what] += row.count
            continue
        if not isinstance(row, Mapping):
            reason = row.reason if isinstance(row, Unreadable) else "it is no object of names and numbers"
            yield Rejected(file, place, None, reason)
            continue
        named = dict(flat(row))
        if (other := without_place(named)) is not None:
            yield Rejected(file, place, *other)
            continue
        if (own := whole_step(named.get(step))) is None:
            yield Rejected(file, place, step, no_step(named, step))
            continue
        values = numbers(named, choice, step)
        if values:
            yield Logged(file, place, own, values)
    choice.notes.extend(f"set aside: {what} ({count:,})" for what, count in aside.items())


def no_step(row: LoggedRow, step: str) -> str:
    """Why a row has no step."""
    if row.get(step) is None:
        return f"it has no {step}, by which its numbers have a place in the run"
    return f"its {step} is {str(row[step])[:40]!r}; wanted a whole number from 0 on"


def _of_list(path: Path, whole: Any) -> Iterator[Any]:
    if not isinstance(whole, list):
        raise UnsafeFile(f"{path.name} holds no list of rows; write it as JSON lines, or name its format with --from")
    return iter(whole)


def _unpacked(row: Any) -> Any:
    """The row with the names of `data` beside its step."""
    data = row.get("data") if isinstance(row, Mapping) else None
    return {**data, "step": row.get("step")} if isinstance(data, Mapping) else row


def _with_numbers(row: Any) -> Any:
    """A row of CSV, whose cells are texts, with numbers where they are some."""
    return {name: _cell(value) for name, value in row.items()} if isinstance(row, Mapping) else row


def _cell(value: Any) -> Any:
    if not isinstance(value, str) or number(value) is not None:
        return value
    try:
        return float(value)
    except ValueError:
        return value
