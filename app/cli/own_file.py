"""`ratioscope attach FILE.py --check`: a training script or an adapter of one's own. It is read as text; nothing of it runs."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ratioscope.errors import ConfigError

from .blocks_printed import print_table
from .drift import drift_of_trainer, end_with_findings, facts, source_tree, tell_drifts
from .own_trainer import USES, Script, calls_to, imports_of, script_of
from .terminal import print_json, say

if TYPE_CHECKING:
    from ratioscope.collectors.watching.source import SourceTree

NOTHING = (
    "no Collector, no ratioscope.attach and no import of a trainer of `ratioscope attach --list` is seen in its text, so that "
    "nothing would be recorded; docs/your_trainer.md shows the call of a trainer of your own, and a complete adapter"
)
UNSEEN = (
    "its text calls ratioscope.attach, and imports no trainer of `ratioscope attach --list`: which one would be recorded, "
    "if any, cannot be told; name it: ratioscope attach TRAINER --check"
)
ATTACHES = "its text calls ratioscope.attach; the trainers that it imports:"
BARE = "its text has no line of ratioscope; `ratioscope run --out RUN_DIR -- python {file}` records the trainers that it imports:"


def check_file(file: Path, folder: Path | None, as_json: bool) -> None:
    """Prints what can be seen in the file. Ends with 1 if something would not be recorded, or that cannot be told."""
    from ratioscope.collectors.watching.source import parsed
    from ratioscope.collectors.watching.source_hooks import names_given

    source = source_tree(folder)
    try:
        tree = parsed(file)
        if "HOOKS" in names_given(tree):
            _check_adapter(file, tree, source, folder, as_json)
        elif (script := script_of(tree)) is not None:
            _tell_script(str(file), script, as_json)
        else:
            _check_trainers_of(file, tree, source, folder, as_json)
    except RecursionError as error:
        raise ConfigError(f"{file} is nested too deeply to be read") from error


def _check_adapter(file: Path, tree: ast.Module, source: SourceTree, folder: Path | None, as_json: bool) -> None:
    from ratioscope.collectors.drift import drift_of
    from ratioscope.collectors.watching.source_hooks import names_given, source_hooks

    given = names_given(tree)
    if "recorder" not in given:
        raise ConfigError(f"{file} has HOOKS and no recorder; docs/your_trainer.md shows a complete adapter")
    told = source_hooks(given)
    if not told.hooks:
        raise ConfigError(
            f"{file}: HOOKS has no Hook(...) with constants in its text; wanted at least one that can be read"
        )
    drifts = {str(file): drift_of(told.hooks, file, source)}
    tell_drifts(drifts, folder, as_json)
    if told.unseen and not as_json:
        lines = ", ".join(str(line) for line in told.unseen)
        say(f"not checked: hooks of {file} that are made at run time or imported, on line {lines}")
    end_with_findings(drifts, demanded=True)


def _check_trainers_of(file: Path, tree: ast.Module, source: SourceTree, folder: Path | None, as_json: bool) -> None:
    """Checks the trainers that a script without a Collector imports, or names to `attach`."""
    drifts = dict(drift_of_trainer(name, source) for name in _trainers_of(tree))
    attaches = bool(calls_to(tree, "attach"))
    problems = [] if drifts else [UNSEEN if attaches else NOTHING]
    if as_json:
        recorded = {title: facts(one) for title, one in drifts.items()}
        would = None if problems and attaches else any(one.would_record for one in drifts.values())
        told = {
            "file": str(file),
            "would_record": would,
            "problems": problems,
            "advice": [],
            "given": [],
            "missing": [],
        }
        print_json({**told, "attaches": attaches, "trainers": recorded})
    elif drifts:
        say(f"{file}: {ATTACHES if attaches else BARE.format(file=file)}")
        tell_drifts(drifts, folder, as_json)
    else:
        say(f"{file}: {problems[0]}")
    if problems:
        raise typer.Exit(1)
    end_with_findings(drifts, demanded=True)


def _trainers_of(tree: ast.Module) -> list[str]:
    """Names of the adapters whose trainer the script imports, or passes to `attach` by name."""
    from ratioscope.collectors.trainers import ADAPTERS, adapter_named

    firsts = [call.args[0] for call in calls_to(tree, "attach") if call.args]
    given = [one.value for one in firsts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    named = [adapter.name for name in given if (adapter := adapter_named(name)) is not None]
    modules = [f"{module}." for module in imports_of(tree).values()]
    return named or [one.name for one in ADAPTERS if any(module.startswith(f"{one.package}.") for module in modules)]


def _tell_script(file: str, script: Script, as_json: bool) -> None:
    """Ends with 1 if nothing useful would be recorded."""
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
