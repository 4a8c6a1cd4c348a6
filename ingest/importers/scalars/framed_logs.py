"""Logs in blocks of 32 KiB that W&B and SwanLab write beside a run, `run-ID.wandb` and `run-ID.swanlab`."""

import struct
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ratioscope import inside
from ratioscope.errors import RatioscopeError, SourceError, UnsafeFile

from ..config_text import mapping_in
from ..samples import Rejected
from ..wandb_log import MAGIC, LogDamage, LogRecord, entries, message_fields, records
from .number_row import LogChoices, Logged, number, step_field, whole_step, without_place

_LOOKED_AT = 20
SWANLAB = b":SWL\xd6\xe1\x02"
_SCALAR = 13
"""Field of a record of SwanLab's that holds a number: its fields 1 name, 2 step, 3 kind, 5 the value."""
_NAME, _STEP, _KIND, _VALUE = 1, 2, 3, 5
_NUMBER = 1
"""The kind of a value that is a number."""

_SETTINGS = "files/config.yaml"
"""SwanLab's file of settings, beside its log: of each its value, its place among them and a text."""
_MOST_SETTINGS = 1 << 20


def wandb_rows(path: Path, choice: LogChoices) -> Iterator[Logged | Rejected]:
    """The rows of the history. The step is that of the trainer, if it logs one, else W&B's own number of the row."""
    health = LogDamage()
    history = _history(path, health, choice)
    first = list(islice(history, _LOOKED_AT))
    step = step_field([entry.values for entry in first], choice, "_step")
    for place, entry in enumerate(chain(first, history)):
        yield from wandb_row(path.name, place, entry, step, choice)
    yield from damage(path.name, health)


def _history(path: Path, health: LogDamage, choice: LogChoices) -> Iterator[LogRecord]:
    """The rows of the history. Settings among them go to `choice.config`, without W&B's own."""
    for entry in entries(path, health):
        if entry.kind == "history":
            yield entry
        elif entry.kind == "config":
            choice.config.update(own_settings(entry.values))


def own_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's settings without those of W&B's own. Any: JSON of any program."""
    return {name: value for name, value in settings.items() if not name.startswith("_wandb")}


def wandb_row(file: str, place: int, entry: LogRecord, step: str, choice: LogChoices) -> Iterator[Logged | Rejected]:
    """A row of the history; nothing where it holds no number."""
    values = wandb_numbers(entry, choice, step)
    if not values:
        return
    if (other := without_place(entry.values)) is not None:
        yield Rejected(file, place, *other)
    elif (own := whole_step(entry.values.get(step))) is None:
        yield Rejected(file, place, step, f"it has no whole number as {step}; another step: --map step=_step")
    else:
        yield Logged(file, place, own, values)


def wandb_numbers(entry: LogRecord, choice: LogChoices, step: str) -> dict[str, float]:
    """The numbers of a row, without W&B's own names. Parts of histograms, tables and pictures are no numbers of the trainer."""
    kinds = tuple(name.removesuffix("_type") for name in entry.values if name.endswith("._type"))
    runs = {}
    for name, value in entry.values.items():
        if name.startswith("_") or name == step or value is None:
            continue
        own = None if kinds and name.startswith(kinds) else number(value)
        if own is not None:
            runs[name] = own
        elif not kinds or not name.startswith(kinds) or name.endswith("._type"):
            choice.no_numbers[name.removesuffix("._type")] += 1
    return runs


def swanlab_rows(path: Path, choice: LogChoices) -> Iterator[Logged | Rejected]:
    """The numbers of a log of SwanLab. Each has its own step."""
    health = LogDamage()
    choice.config.update(_swanlab_settings(path, choice))
    with path.open("rb") as file:
        if file.read(len(SWANLAB)) != SWANLAB:
            raise UnsafeFile("it is no log of SwanLab of the form that 0.10 writes")
        for place, record in enumerate(records(file, health)):
            try:
                yield from _swanlab_numbers(path.name, place, record, choice)
            except (ValueError, struct.error):  # a digest fits, and yet it is no message
                health.damaged += 1
    yield from damage(path.name, health)


def _swanlab_settings(path: Path, choice: LogChoices) -> dict[str, Any]:
    """The settings that SwanLab keeps beside its log, without their order there. Any: YAML of any program.

    SwanLab writes a setting without a value as an empty object.
    """
    try:
        text = inside.content(path.parent, _SETTINGS, _MOST_SETTINGS).decode("utf-8", "replace")
        items = mapping_in(text, _SETTINGS).items()
    except FileNotFoundError:
        return {}
    except (RatioscopeError, OSError) as error:
        choice.notes.append(f"its settings are not read: {error}")
        return {}
    return {
        name: None if (value := item.get("value")) == {} else value for name, item in items if isinstance(item, dict)
    }


def _swanlab_numbers(file: str, place: int, record: bytes, choice: LogChoices) -> Iterator[Logged]:
    for field, content in message_fields(record):
        if field != _SCALAR or not isinstance(content, bytes):
            continue
        parts = dict(message_fields(content))
        name, step, held = parts.get(_NAME), parts.get(_STEP, 0), parts.get(_VALUE)
        if not isinstance(name, bytes) or not isinstance(step, int):
            raise ValueError("a number without a name or a step")
        text = name.decode("utf-8", "replace")
        if parts.get(_KIND) != _NUMBER or not isinstance(held, bytes):
            choice.no_numbers[text] += 1
            continue
        value = dict(message_fields(held)).get(1, struct.pack("<d", 0.0))
        if not isinstance(value, bytes) or whole_step(step) is None:
            raise ValueError("a number that is none")
        yield Logged(file, place, step, {text: struct.unpack("<d", value)[0]})


def damage(file: str, health: LogDamage) -> Iterator[Rejected]:
    """A line for what could not be read."""
    if health.damaged:
        yield Rejected(file, None, None, f"{health.damaged} damaged parts were skipped; their rows are missing")
    if health.torn:
        yield Rejected(file, None, None, "it ends within a record: it was cut, or it is still being written")


def is_log(path: Path, magic: bytes) -> bool:
    """True if the file begins so."""
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error


WANDB = MAGIC
