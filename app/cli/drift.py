"""`ratioscope attach --check`: which trainers would be recorded, and what an adapter would miss, before a run is started.

All is read as text: the trainers, and a file of the user's own. Nothing of either is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ratioscope.errors import ConfigError

from .blocks_printed import print_table
from .terminal import print_json, say

if TYPE_CHECKING:
    from ratioscope.collectors.adapter import Adapter
    from ratioscope.collectors.drift import Drift, HookedFunction
    from ratioscope.collectors.watching.source import SourceTree


def adapter_of(trainer: str) -> Adapter:
    """The adapter of this trainer. ConfigError if there is none, with the reason if it is known."""
    from ratioscope.collectors.trainers import ADAPTERS, adapter_named
    from ratioscope.collectors.unsupported_trainers import unsupported_trainer

    from ..presentation.trainers import ANY_OTHER

    match = adapter_named(trainer)
    if match is None and (nothing := unsupported_trainer(trainer)) is not None:
        raise ConfigError(f"{nothing.why}. So there is no adapter; {ANY_OTHER}")
    if match is None:
        names = ", ".join(adapter.name for adapter in ADAPTERS)
        raise ConfigError(f"no trainer is named {trainer!r}; wanted one of {names}; {ANY_OTHER}")
    return match


def check(trainer: str | None, folder: Path | None, as_json: bool) -> None:
    """Prints what each adapter finds. Ends with 1 if something would not be recorded. trainer: a name; None for all."""
    from ratioscope.collectors.trainers import ADAPTERS

    source = source_tree(folder)
    names = [adapter.name for adapter in ADAPTERS] if trainer is None else [trainer]
    drifts = dict(drift_of_trainer(name, source) for name in names)
    tell_drifts(drifts, folder, as_json)
    end_with_findings(drifts, demanded=trainer is not None)


def source_tree(folder: Path | None) -> SourceTree:
    """The source that is read: of this checkout, or of what is installed."""
    from ratioscope.collectors.watching.source import SourceTree

    if folder is not None and not folder.is_dir():
        raise ConfigError(f"{folder} is no folder; wanted a checkout of a trainer, or a folder of checkouts")
    return SourceTree(folder)


def drift_of_trainer(name: str, source: SourceTree) -> tuple[str, Drift]:
    """The title of the trainer, and what its adapter finds."""
    from ratioscope.collectors.drift import drift

    adapter = adapter_of(name)
    return adapter.title, drift(adapter.load(), source)


def end_with_findings(drifts: dict[str, Drift], *, demanded: bool) -> None:
    """Ends with 1 if an adapter misses something. demanded: or if one of the trainers would not be recorded."""
    if any(one.fatal or one.changed or (demanded and not one.would_record) for one in drifts.values()):
        raise typer.Exit(1)


def tell_drifts(drifts: dict[str, Drift], folder: Path | None, as_json: bool) -> None:
    """Prints them. folder: the checkout that was read; None for what is installed."""
    if as_json:
        print_json({title: facts(one) for title, one in drifts.items()})
    else:
        _tell(drifts, folder)


def _tell(drifts: dict[str, Drift], folder: Path | None) -> None:
    from ratioscope.collectors.trainers import ADAPTERS

    there = {title: one for title, one in drifts.items() if one.found}
    for title, one in there.items():
        say(_sentence(title, one), "bold")
        for reason in _reasons(one):
            say(f"  {reason}")
    if len(there) == 1:
        ((title, only),) = there.items()
        if only.would_record and (adapter := next((one for one in ADAPTERS if one.title == title), None)) is not None:
            say(f"  it records {adapter.records}")
        say()
        rows = [
            (_name(hit), f"{at.file.name}:{at.line}" if (at := hit.function) else "not there", _kind(hit))
            for hit in only.found
        ]
        print_table(("function", "found at", "kind"), rows)
    absent = [f"the trainer of {title}" if title.endswith(".py") else title for title in drifts if title not in there]
    if absent:
        say(f"not {'in ' + str(folder) if folder else 'installed here'}: {', '.join(absent)}", "dim")


def _sentence(title: str, one: Drift) -> str:
    count, all_of = sum(hit.function is not None for hit in one.found), len(one.found)
    functions = (
        f"{f'all {count}' if count == all_of else f'{count} of {all_of}'} functions that the adapter watches are there"
    )
    if one.fatal:
        return f"{title} would be refused, and nothing recorded: {functions}"
    if one.changed and one.would_record:
        return f"{title} would be recorded in part: parameters have other names"
    return f"{title} would {'' if one.would_record else 'not '}be recorded: {functions}"


def _reasons(one: Drift) -> Iterator[str]:
    for hit in one.found:
        if hit.function is None:
            yield f"{_kind(hit)}: {hit.reason}"
        elif hit.lacking:
            yield f"{_kind(hit)}: {_name(hit)} has no parameter {', '.join(hit.lacking)}"


def _name(hit: HookedFunction) -> str:
    return f"{hit.hook.module}.{hit.hook.name}"


def _kind(hit: HookedFunction) -> str:
    return "needed" if hit.hook.needed else "optional"


def facts(one: Drift) -> dict[str, Any]:
    return {
        "would_record": one.would_record if one.found else None,
        "functions": [
            {
                "name": _name(hit),
                "needed": hit.hook.needed,
                "file": None if hit.function is None else str(hit.function.file),
                "line": None if hit.function is None else hit.function.line,
                "missing_parameters": list(hit.lacking),
                "reason": hit.reason or None,
            }
            for hit in one.found
        ],
    }
