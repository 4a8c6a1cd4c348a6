"""`ratioscope attach FILE.py --check`: a training script or an adapter of one's own. It is read as text; nothing of it runs.

`ratioscope attach --check mytrainer.py`: what a training script passes to `Collector.log`, and what it leaves out.

The script is read as text; nothing of it runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ratioscope.errors import ConfigError

from .blocks_printed import print_table
from .drift import drift_of_trainer, end_with_findings, facts, source_tree, tell_drifts
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

POLICIES = ("rollout_logprobs", "old_logprobs", "current_logprobs")
WAITS = ("tolist", "item", "cpu", "numpy")
"""Methods of tensors that wait for the device."""
USES = {
    "mask": "which tokens were sampled; without it padding and tool tokens count",
    "sequence_ids": "joins rows of several calls and processes; without it each call makes rows of its own",
    "rollout_versions": "which weights sampled: staleness and lag",
    "trainer_version": "how many updates the trainer's weights have: lag",
    "token_ids": "what was sampled: token classes and text",
    "group_ids": "which sequences share a prompt: group metrics",
    "rewards": "whether the gap depends on reward",
    "advantages": "how the gap weighs in the gradient",
    "loss_mask": "which tokens the loss sees; without it, all of `mask`",
    "prompt_ids": "lets `ratioscope rescore` read the sequences again",
    "replica": "which engine sampled: one that is off is found",
}
"""Argument of `log` -> what it is for."""


@dataclass(frozen=True)
class Script:
    """The use that a script makes of a Collector."""

    calls: int
    """Calls of `log`."""
    given: frozenset[str]
    """Arguments of all of them together."""
    is_open: bool
    """True if a call passes `**values`, whose names the text does not tell."""
    waits: tuple[str, ...]
    """Arguments whose value waits for the device, with the method."""
    is_closed: bool
    """True if it calls `close`."""

    @property
    def problems(self) -> list[str]:
        """Why nothing, or nothing useful, would be recorded."""
        if not self.calls:
            return ["no collector.log(...) is called, so nothing would be recorded"]
        problems = []
        if not self.is_open:
            if "step" not in self.given:
                problems.append("log gets no step; wanted step=, the step that the trainer logs")
            if len(self.given.intersection(POLICIES)) < 2:
                told = ", ".join(sorted(self.given.intersection(POLICIES))) or "no log-probs"
                problems.append(
                    f"log gets {told}; wanted at least two of {', '.join(POLICIES)}, because a gap has two sides"
                )
        problems += [
            f"log has no argument {name}; `help(ratioscope.Collector.log)` lists them" for name in self.unknown
        ]
        return problems

    @property
    def unknown(self) -> list[str]:
        """Arguments that `log` does not have."""
        import inspect

        from ratioscope.collectors.collector import Collector

        return sorted(self.given.difference(set(inspect.signature(Collector.log).parameters) - {"self"}))

    @property
    def advice(self) -> list[str]:
        """Sentences on calls that slow the trainer, or on values that may be lost."""
        problems = [f"{what}: it waits for the device; pass the tensor as it is" for what in self.waits]
        return (
            problems
            if self.is_closed or not self.calls
            else [*problems, "close() is never called; the last rows may come late"]
        )

    @property
    def missing(self) -> list[str]:
        """Useful arguments that are not passed."""
        return [] if self.is_open else [name for name in USES if name not in self.given]


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


def script_of(tree: ast.Module) -> Script | None:
    """The use that the script makes of a Collector; None if it makes none and logs to none."""
    logs = [call for call in calls_of(tree) if _called(call) == "log" and _is_ours(call, _collectors(tree))]
    if not logs and not calls_to(tree, "Collector"):
        return None
    named = [word for call in logs for word in call.keywords]
    made = set(map(id, calls_to(tree, "Collector")))
    is_left = any(id(one.context_expr) in made for one in _withs(tree))  # `with` closes it
    return Script(
        calls=len(logs),
        given=frozenset(word.arg for word in named if word.arg is not None),
        is_open=any(word.arg is None for word in named),
        waits=tuple(
            f"{word.arg} takes .{method}()"
            for word in named
            for method in dict.fromkeys(_called(inner) for inner in calls_of(word.value))
            if method in WAITS and word.arg in (*POLICIES, "mask", "loss_mask", "advantages", "rewards")
        ),
        is_closed=any(_called(call) == "close" for call in calls_of(tree)) or is_left,
    )


def imports_of(tree: ast.Module) -> dict[str, str]:
    """Name in the script -> what it imports under this name, dotted. Imports inside functions count."""
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {one.asname or one.name: one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return imported


def calls_to(tree: ast.Module, name: str) -> list[ast.Call]:
    """The calls of ratioscope's `name`, under whatever name the script imports it."""
    imported, calls = imports_of(tree), []
    for call in calls_of(tree):
        head, _, rest = ast.unparse(call.func).partition(".")
        whole = f"{imported.get(head, '?')}.{rest}".rstrip(".")
        if whole.startswith("ratioscope.") and whole.endswith(f".{name}"):
            calls.append(call)
    return calls


def _collectors(tree: ast.Module) -> set[str]:
    """The names, dotted, that a Collector is given in the script."""
    made = set(map(id, calls_to(tree, "Collector")))
    targets = [
        *((node.value, target) for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets),
        *((one.context_expr, one.optional_vars) for one in _withs(tree)),
    ]
    return {ast.unparse(target) for value, target in targets if id(value) in made and target is not None}


def _withs(tree: ast.Module) -> Iterator[ast.withitem]:
    return (item for node in ast.walk(tree) if isinstance(node, ast.With | ast.AsyncWith) for item in node.items)


def calls_of(node: ast.AST) -> Iterator[ast.Call]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Call))


def _called(call: ast.Call) -> str:
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _is_ours(call: ast.Call, collectors: set[str]) -> bool:
    """True if it looks like Collector.log: other loggers have a method of this name too."""
    names = {word.arg for word in call.keywords}
    owner = ast.unparse(call.func).removesuffix(".log")
    return owner in collectors or "collector" in owner.lower() or bool(names.intersection(POLICIES))
