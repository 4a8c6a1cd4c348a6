"""Known faults: those of trainers and engines that settings on record betray. Conditions read what is there; none is guessed."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .tables import table

Condition = Mapping[str, Any]
"""`key` and one test, as faults.toml explains. `Any`: the wanted value."""
FaultSettings = Mapping[str, str]
"""Dotted key -> value as JSON or plain text."""

ELSEWHERE = re.compile(r"\b(eval|evaluation|val|val_kwargs|validation|judge|critic|ref|reward\w*)\.")
"""Parts of a key below which settings are not those of training."""


@dataclass(frozen=True)
class Fault:
    """A fault of one trainer, or of an engine."""

    code: str
    """Its name in JSON."""
    trainer: str
    """The trainer that has it; "*" for an engine's."""
    when: tuple[Condition, ...]
    """Conditions that hold all together."""
    statement: str
    """The fault and its consequence."""
    do: str
    """The change that mends it."""
    source: str
    """The place where it was read."""


@dataclass(frozen=True)
class FoundFault:
    """A fault that the settings of a run betray."""

    fault: Fault
    because: Mapping[str, str]
    """Key on record -> its value, for every condition that a value has met."""


@cache
def faults() -> tuple[Fault, ...]:
    """Every row of the table."""
    return tuple(Fault(**{**row, "when": tuple(row["when"])}) for row in table("faults")["fault"])


def faults_in(settings: FaultSettings, trainer: str | None) -> tuple[FoundFault, ...]:
    """The faults that these settings betray. trainer: of the run; None finds faults of engines alone."""
    own = [each for each in faults() if each.trainer in ("*", trainer)]
    met = [(each, [_met(condition, settings) for condition in each.when]) for each in own]
    return tuple(FoundFault(each, _joined(found)) for each, found in met if all(found is not None for found in found))


def _joined(matches: list[dict[str, str] | None]) -> dict[str, str]:
    return {key: value for part in matches if part is not None for key, value in part.items()}


def _met(condition: Condition, settings: FaultSettings) -> dict[str, str] | None:
    """The settings that meet a condition, {} if it is met by an absence; None if it is not met."""
    (test, wanted), key = next((k, v) for k, v in condition.items() if k != "key"), condition["key"]
    values = at_key(key, settings)
    if test in ("unless", "present") and not (test == "present" and wanted):
        refused = values if test == "present" else {n: v for n, v in values.items() if _value(v) == wanted}
        return None if refused else {}
    if test == "differs_from":
        theirs = at_key(wanted, settings)
        if not values or not theirs:
            return None
        own, other = next(iter(values.items())), next(iter(theirs.items()))
        return None if _value(own[1]) == _value(other[1]) else dict((own, other))
    matches = {name: value for name, value in values.items() if _holds(test, _value(value), wanted)}
    return matches or None


def at_key(key: str, settings: FaultSettings) -> dict[str, str]:
    """The settings whose key ends so, without those of evaluation and of other models."""
    ends = {name: value for name, value in settings.items() if name == key or name.endswith(f".{key}")}
    return {name: value for name, value in ends.items() if not ELSEWHERE.search(name)}


def numbers_at(key: str, settings: FaultSettings) -> dict[str, float]:
    """Setting whose key ends so -> its value, without settings of evaluation and of other models, and without other values."""
    values = {name: _value(text) for name, text in at_key(key, settings).items()}
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}


def _value(text: str) -> Any:
    """The value of a setting. Any: JSON holds values of many types."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _holds(test: str, value: Any, wanted: Any) -> bool:
    """Whether a value on record meets a test. Any: values of settings have many types."""
    if test in ("above", "below"):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and bool(value > wanted if test == "above" else value < wanted)
    if test == "older":
        own = _version(str(value))
        return bool(own) and own < _version(wanted)
    if test == "contains":
        return wanted in str(value).lower().replace("_", "-")
    if test == "in":
        return value in wanted
    same = value == wanted and isinstance(value, bool) == isinstance(wanted, bool)
    return {"is": same, "differs": not same, "present": True}[test]


def _version(text: str) -> tuple[int, ...]:
    """The first version number in a text, such as (1, 16, 0) of "trl 1.16.0"; () if there is none."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


@dataclass(frozen=True)
class Remedy:
    """The change in one trainer that mends one cause."""

    code: str
    """Code of the cause."""
    trainer: str
    do: str
    """The change in words, with the trainer's own keys or flags."""
    keys: tuple[str, ...]
    """These keys or flags; empty if no setting mends the cause."""
    source: str
    """The file or thread in which the key or the behaviour was read."""
    moot: tuple[tuple[Condition, ...], ...] = ()
    """Sets of conditions on the settings of a run. If all of one set hold, the change is made already, or cannot help."""

    @property
    def names(self) -> tuple[str, ...]:
        """Ends of the dotted keys that it names: those of flags and keys, without their values."""
        return tuple(_key_and_value(key)[0] for key in self.keys)

    def is_moot(self, settings: FaultSettings) -> bool:
        """True if the run has these settings already, by the conditions or by the values in the keys."""
        by_condition = any(all(_met(each, settings) is not None for each in together) for together in self.moot)
        return by_condition or bool(self.keys) and all(_is_set(key, settings) for key in self.keys)


def _is_set(key: str, settings: FaultSettings) -> bool:
    """True if a key with its value, such as `top_p=1.0` or `--top-p 1`, has this value on record."""
    name, wanted = _key_and_value(key)
    values = at_key(name, settings).values()
    if wanted in ("None", "null"):
        return not values
    return bool(wanted and values) and all(_value(value.lower()) == _value(wanted.lower()) for value in values)


def _key_and_value(key: str) -> tuple[str, str]:
    """(end of a dotted key, value or an empty text) of a key as a remedy has it, such as `top_p=1.0` or `--top-p 1`."""
    name, _, wanted = key.lstrip("-").replace(" ", "=").partition("=")
    return name.replace("-", "_") if key.startswith("-") else name, wanted


@cache
def remedies() -> tuple[Remedy, ...]:
    """Every cell of the table, cause by cause, those of one trainer in the order in which they are tried."""
    rows = {code: cells for code, cells in table("remedies").items() if not code.startswith("_")}
    return tuple(
        Remedy(code, trainer, own["do"], tuple(own["keys"]), own["source"], _moot(code, own))
        for code, cells in rows.items()
        for trainer, cell in cells.items()
        for own in (cell, *cell.get("else", ()))
    )


def _moot(code: str, cell: Mapping[str, Any]) -> tuple[tuple[Condition, ...], ...]:
    """The conditions of a cell, and those that all cells of the cause share. `Any`: the values of a cell differ."""
    return tuple(tuple(each) for each in (cell.get("moot"), table("remedies")["_moot"].get(code)) if each)


def remedy_for(code: str, trainer: str | None, settings: FaultSettings | None = None) -> Remedy | None:
    """The first remedy of a cause in a trainer that is not moot with these settings; None if there is none."""
    own = (each for each in remedies() if (each.code, each.trainer) == (code, trainer))
    return next((each for each in own if not each.is_moot(settings or {})), None)


def is_done(code: str, trainer: str | None, settings: FaultSettings) -> bool:
    """True if the cause is one of settings, and the run has those that the remedies of its trainer want."""
    known, left = remedy_for(code, trainer), remedy_for(code, trainer, settings)
    return code in table("remedies")["_settings"]["codes"] and known is not None and left is None


def can_be_corrected(code: str) -> bool:
    """Whether importance weights can bridge a cause until it is mended. False if the log-probs themselves are wrong."""
    return code not in table("remedies")["_no_correction"]["codes"]
