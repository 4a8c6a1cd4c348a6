"""The facts of a datum of the Fireworks cookbook before its loss: group, reward, finish reason, version that sampled it.

The data of a loss closure lack these facts. Its datums are the same objects as those of the prompt groups, so each datum's
identity leads to its facts.
"""

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Datum = Any
"""A tinker.Datum."""
PromptGroup = Any


@dataclass
class Facts:
    """The facts of one datum; None if not known."""

    group: int
    """Serial number of the prompt group."""
    index: int
    """The datum's place in its group."""
    reward: float | None = None
    finish_reason: str | None = None
    run_id: str | None = None
    """The id of the rollout."""
    version: int | None = None
    """Version of the weights that sampled the datum."""
    rollout: Sequence[float | None] | None = None
    """The sampler's log-probs, one per target token, as the group has them."""
    prompt_len: int = 0
    """Tokens of the prompt."""


class FactsByDatum:
    """Facts by identity of the datum, kept while the datum lives: a recipe may drop a datum and never train on it."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], Facts]] = {}
        self._groups = 0
        self._order: tuple[int, dict[int, int]] = (-1, {})

    def of(self, datum: Datum) -> Facts | None:
        """The facts of a datum; None if it has none."""
        entry = self._entries.get(id(datum))
        return entry[1] if entry is not None and entry[0]() is datum else None

    def add_runs(self, group: PromptGroup, runs: Sequence[Any], version: int | None) -> None:
        """Adds a group that was packed from runs. Its datums are the runs' segments in order; a run has one reward."""
        segments = [
            (run, reward, part) for run, reward in zip(runs, group.rewards, strict=True) for part in run.segments
        ]
        serial = self._next_group()
        for index, (datum, (run, reward, part)) in enumerate(zip(group.data, segments, strict=True)):
            self._keep(
                datum,
                Facts(serial, index, float(reward), part.finish_reason, run.run_id, version, *_lists(group, index)),
            )

    def add_groups(self, groups: Iterable[PromptGroup], version: int | None) -> None:
        """Adds groups that a recipe packed itself. Groups that are already known do not change."""
        for group in groups:
            if group.data and self.of(group.data[0]) is None:
                size, serial = len(group.data), self._next_group()
                rewards = group.rewards if len(group.rewards) == size else [None] * size  # else one per run, perhaps
                cut = group.truncated if len(group.truncated) == size else [False] * size
                for index, datum in enumerate(group.data):
                    self._keep(
                        datum,
                        Facts(serial, index, rewards[index], _reason(cut[index]), None, version, *_lists(group, index)),
                    )

    def add_versions(self, groups: Sequence[PromptGroup], versions: Sequence[int]) -> None:
        """Adds the versions of the asynchronous recipe: one per group, the version of its oldest sample."""
        for group, version in zip(groups, versions, strict=True):
            for facts in filter(None, map(self.of, group.data)):
                facts.version = int(version)

    def follow(self, datums: Sequence[Datum], sources: Sequence[Datum]) -> None:
        """Gives datums that a recipe made of others, one of each, the facts of those."""
        for datum, facts in zip(datums, map(self.of, sources), strict=True):
            if facts is not None:
                self._keep(datum, facts)

    def group_ids(self, step: int, facts: Sequence[Facts | None]) -> list[str | None]:
        """Group ids: numbers within the step, in the order of the rows."""
        if self._order[0] != step:
            self._order = (step, {})
        order = self._order[1]
        return [None if f is None else f"{step}-{order.setdefault(f.group, len(order))}" for f in facts]

    def _next_group(self) -> int:
        self._groups += 1
        return self._groups

    def _keep(self, datum: Datum, facts: Facts) -> None:
        key = id(datum)
        self._entries[key] = (weakref.ref(datum, lambda _: self._entries.pop(key, None)), facts)


def _reason(is_cut: bool) -> str | None:
    return "length" if is_cut else None


def _lists(group: PromptGroup, index: int) -> tuple[Sequence[float | None] | None, int]:
    """The rollout log-probs and the prompt's length of one datum; (None, 0) if the group has not one of each per datum."""
    size, rollout = len(group.data), group.inf_logprobs
    lens = getattr(group, "prompt_lens", None) or [group.prompt_len] * size  # older cookbooks have no prompt_lens
    return (rollout[index], lens[index]) if len(rollout) == len(lens) == size else (None, 0)
