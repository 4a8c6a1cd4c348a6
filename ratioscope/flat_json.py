"""JSON that may be a stranger's: nested no more deeply than anything of ours, so that nothing that walks it runs out of stack."""

import json
from typing import Any

MOST_NESTED = 64


def loaded(text: str | bytes, *, each_name_once: bool = False) -> Any:
    """The value; ValueError where it is no JSON, or nested more deeply than MOST_NESTED.

    each_name_once: ValueError, too, where an object has two values of one name, of which one would be lost.

    >>> loaded('{"a": [1]}')
    {'a': [1]}
    """
    try:
        value = json.loads(text, object_pairs_hook=_once if each_name_once else None)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    opened = text.count(b"[") + text.count(b"{") if isinstance(text, bytes) else text.count("[") + text.count("{")
    if opened > MOST_NESTED:
        _demand_flat(value)
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has two values of {next(name for name in members if names.count(name) > 1)[:40]!r}")
    return members


def _demand_flat(value: Any) -> None:
    level = [value]
    for _ in range(MOST_NESTED):
        level = [part for whole in level for part in _parts(whole) if isinstance(part, (dict, list))]
        if not level:
            return
    raise ValueError(f"it is nested more than {MOST_NESTED} deep")


def _parts(whole: Any) -> list[Any]:
    return list(whole.values()) if isinstance(whole, dict) else whole if isinstance(whole, list) else []
