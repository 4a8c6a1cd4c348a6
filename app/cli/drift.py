"""`ratioscope attach --check`: which trainers would be recorded, and what an adapter would miss, before a run is started."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ratioscope.errors import ConfigError

from .adapter_argument import adapter_of
from .terminal import print_json, print_table, say

if TYPE_CHECKING:
    from ratioscope.collectors.adapter import AdapterModule
    from ratioscope.collectors.drift import Drift, HookedFunction

    from .own_trainer import Script


def check(trainer: str | None, folder: Path | None, as_json: bool) -> None:
    """Prints what each adapter finds. Ends with 1 if something would not be recorded.

    trainer: a name, or the file of an adapter or of a training script; None for all.
    """
    from ratioscope.collectors.drift import drift
    from ratioscope.collectors.watching.source import SourceTree

    if folder is not None and not folder.is_dir():
        raise ConfigError(f"{folder} is no folder; wanted a checkout of a trainer, or a folder of checkouts")
    if trainer is not None and trainer.endswith(".py") and (script := _script(Path(trainer))) is not None:
        _tell_script(trainer, script, as_json)
        return
    source = SourceTree(folder)
    drifts = {title: drift(adapter, source) for title, adapter in _adapters(trainer)}
    if as_json:
        print_json({title: _facts(one) for title, one in drifts.items()})
    else:
        _tell(drifts, folder)
    if any(one.fatal or one.changed or (trainer and not one.would_record) for one in drifts.values()):
        raise typer.Exit(1)


def _script(file: Path) -> Script | None:
    from .own_trainer import script_of

    return script_of(file) if file.is_file() else None


def _tell_script(file: str, script: Script, as_json: bool) -> None:
    """Ends with 1 if nothing useful would be recorded."""
    from .own_trainer import USES

    if as_json:
        print_json(
            {
                "file": file,
                "would_record": not script.problems,
                "problems": script.problems,
                "advice": script.advice,
                "given": sorted(script.given),
                "missing": script.missing,
            }
        )
    else:
        say(f"{file} would {'not be recorded' if script.problems else 'be recorded'}", "bold")
        for line in (*script.problems, *script.advice):
            say(f"  {line}")
        if not script.problems and script.missing:
            say()
            print_table(("log does not get", "what it is for"), [(name, USES[name]) for name in script.missing])
        elif not script.problems:
            say(
                "  log gets everything that a page uses"
                if not script.is_open
                else "  log gets **values: their names are not seen"
            )
    if script.problems:
        raise typer.Exit(1)


def _adapters(trainer: str | None) -> Iterator[tuple[str, AdapterModule]]:
    from ratioscope.collectors.trainers import ADAPTERS

    if trainer is not None and trainer.endswith(".py"):
        yield trainer, _own(Path(trainer))
    else:
        for adapter in ADAPTERS if trainer is None else (adapter_of(trainer),):
            yield adapter.title, adapter.load()


def _own(file: Path) -> AdapterModule:
    """An adapter of the user's own. Its file is run, as `attach` does with it."""
    if not file.is_file():
        raise ConfigError(f"{file} does not exist; wanted the name of a trainer or the file of an adapter")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} is no Python file")
    module: Any = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
    lacking = [name for name in ("HOOKS", "recorder") if not hasattr(module, name)]
    if lacking:
        raise ConfigError(f"{file} has no {' and no '.join(lacking)}; docs/your_trainer.md shows a complete adapter")
    adapter: AdapterModule = module
    return adapter


def _tell(drifts: dict[str, Drift], folder: Path | None) -> None:
    there = {title: one for title, one in drifts.items() if one.found}
    for title, one in there.items():
        say(_sentence(title, one), "bold")
        for reason in _reasons(one):
            say(f"  {reason}")
    if len(there) == 1:
        ((title, only),) = there.items()
        if only.would_record and (records := _records(title)) is not None:
            say(f"  it records {records}")
        say()
        print_table(("function", "found at", "kind"), [(_name(hit), _place(hit), _kind(hit)) for hit in only.found])
    absent = [f"the trainer of {title}" if title.endswith(".py") else title for title in drifts if title not in there]
    if absent:
        say(f"not {'in ' + str(folder) if folder else 'installed here'}: {', '.join(absent)}", "dim")


def _records(title: str) -> str | None:
    """The words of the table of trainers on what is recorded, and what is not; None for an adapter of the user's own."""
    from ratioscope.collectors.trainers import ADAPTERS

    return next((adapter.records for adapter in ADAPTERS if adapter.title == title), None)


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


def _place(hit: HookedFunction) -> str:
    return f"{hit.function.file.name}:{hit.function.line}" if hit.function else "not there"


def _facts(one: Drift) -> dict[str, Any]:
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
