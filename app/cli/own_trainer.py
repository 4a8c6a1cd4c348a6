"""`ratioscope attach --check mytrainer.py`: what a training script passes to `Collector.log`, and what it leaves out.

The script is read as text; nothing of it runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

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
