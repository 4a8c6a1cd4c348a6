"""What is known of a datum of the Fireworks cookbook before its loss: group, reward, finish reason, version that sampled it.

The closure of a loss is given data without any of it, but the very datums that a prompt group was packed with.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Datum = Any
"""A tinker.Datum."""
PromptGroup = Any


@dataclass
class Facts:
    """group: serial number of the prompt group; index: of the datum in it. version: of the weights that sampled it."""

    group: int
    index: int
    reward: float | None = None
    finish_reason: str | None = None
    run_id: str | None = None
    version: int | None = None


class FactsByDatum:
    """Kept by identity and for as long as the datum lives: a recipe may filter it out and never train on it."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[weakref.ref[Any], Facts]] = {}
        self._groups = 0
        self._order: tuple[int, dict[int, int]] = (-1, {})

    def of(self, datum: Datum) -> Facts | None:
        found = self._found.get(id(datum))
        return found[1] if found is not None and found[0]() is datum else None

    def add_runs(self, group: PromptGroup, runs: Sequence[Any], version: int | None) -> None:
        """A group packed from runs: its datums are the runs' segments, one after the other; a run has one reward."""
        segments = [
            (run, reward, part) for run, reward in zip(runs, group.rewards, strict=True) for part in run.segments
        ]
        serial = self._next_group()
        for index, (datum, (run, reward, part)) in enumerate(zip(group.data, segments, strict=True)):
            self._keep(datum, Facts(serial, index, float(reward), part.finish_reason, run.run_id, version))

    def add_groups(self, groups: Iterable[PromptGroup], version: int | None) -> None:
        """Groups that a recipe packed itself; those that are known are left alone."""
        for group in groups:
            if group.data and self.of(group.data[0]) is None:
                size, serial = len(group.data), self._next_group()
                rewards = group.rewards if len(group.rewards) == size else [None] * size  # one per run, maybe
                cut = group.truncated if len(group.truncated) == size else [False] * size
                for index, datum in enumerate(group.data):
                    self._keep(datum, Facts(serial, index, rewards[index], _reason(cut[index]), None, version))

    def add_versions(self, groups: Sequence[PromptGroup], versions: Sequence[int]) -> None:
        """What the asynchronous recipe knows: one version per group, of its oldest draw."""
        for group, version in zip(groups, versions, strict=True):
            for facts in filter(None, map(self.of, group.data)):
                facts.version = int(version)

    def group_ids(self, step: int, facts: Sequence[Facts | None]) -> list[str | None]:
        """Groups numbered within their step, in the order in which they come by."""
        if self._order[0] != step:
            self._order = (step, {})
        order = self._order[1]
        return [None if f is None else f"{step}-{order.setdefault(f.group, len(order))}" for f in facts]

    def _next_group(self) -> int:
        self._groups += 1
        return self._groups

    def _keep(self, datum: Datum, facts: Facts) -> None:
        key = id(datum)
        self._found[key] = (weakref.ref(datum, lambda _: self._found.pop(key, None)), facts)


def _reason(is_cut: bool) -> str | None:
    return "length" if is_cut else None
