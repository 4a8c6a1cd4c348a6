"""The facts of a sequence at its sampling (weights, prompt, unfiltered mask), kept until SkyRL makes the batch.

A generator's output is a plain dict of lists, which SkyRL cuts, filters and concatenates into the batch. The key of prompts and
versions is the uid, which names one prompt of a step. The key of masks is the identity of the row's list of tokens, which only
the merging of turns replaces.
"""

import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_SYNCS = 256
"""Weight syncs to keep: more than there can be during the sampling of one sequence."""


@dataclass(frozen=True)
class Sampling:
    """The sampling of one prompt's sequences."""

    step: int
    """The trainer's step when they were scheduled."""
    version: int | None = None
    """The version of the engine's weights when they were scheduled; None if not known."""
    newest: int | None = None
    """The version of the engine's weights when all were complete. Weights may have changed within a sequence."""
    prompt: Any = None
    masks: Sequence[Sequence[int]] | None = None
    """The masks of the sequences before filters; None if not known."""


class Syncs:
    """The times at which the engine got each version of the weights."""

    def __init__(self) -> None:
        self._done: list[tuple[float, int]] = []

    def add(self, version: int) -> None:
        self._done = [*self._done[-_SYNCS:], (time.monotonic(), version)]

    @property
    def newest(self) -> int | None:
        return self._done[-1][1] if self._done else None

    def before(self, moment: float) -> int | None:
        """The engine's version at a time of the monotonic clock; None before the first sync on record."""
        return next((version for done, version in reversed(self._done) if done <= moment), None)


class Beside:
    """Notes on objects that cannot be hashed, by their identity. A note lives as long as its object."""

    def __init__(self) -> None:
        self._notes: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def put(self, thing: Any, note: Any) -> None:
        key = id(thing)
        self._notes[key] = (weakref.ref(thing, lambda _: self._notes.pop(key, None)), note)

    def note(self, thing: Any) -> Any:
        """The note of the object; None if it has none."""
        entry = self._notes.get(id(thing))
        return entry[1] if entry is not None and entry[0]() is thing else None


class Filters:
    """The original masks that SkyRL's overlong filter replaced by zeros, until `unfiltered` is called."""

    def __init__(self) -> None:
        self._zeroed: dict[int, tuple[Any, Any]] = {}

    def add(self, before: Sequence[Any], after: Sequence[Any]) -> None:
        self._zeroed |= {id(mask): (mask, was) for was, mask in zip(before, after, strict=True)}

    def unfiltered(self, masks: Sequence[Any]) -> list[Any]:
        """The masks before the filter. All others are dropped: they belong to an evaluation or to groups that SkyRL dropped."""
        known, self._zeroed = self._zeroed, {}
        return [known[id(mask)][1] if id(mask) in known else mask for mask in masks]


class Masks:
    """Masks before any filter, by identity of the sequence's list of tokens. Batches may be sampled ahead of training."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any, int]] = {}

    def knows(self, tokens: Any) -> bool:
        entry = self._known.get(id(tokens))
        return entry is not None and entry[0] is tokens

    def add(self, step: int, rows: Sequence[Any], masks: Sequence[Any]) -> None:
        self._known |= {id(tokens): (tokens, mask, step) for tokens, mask in zip(rows, masks, strict=True)}

    def take(self, step: int, rows: Sequence[Any], filtered: Sequence[Any]) -> list[Any]:
        """The mask of each row before filters, or the filtered mask if that is not known. Masks of old steps are dropped."""
        pairs = zip(rows, filtered, strict=True)
        masks = [self._known[id(tokens)][1] if self.knows(tokens) else mask for tokens, mask in pairs]
        self._known = {key: noted for key, noted in self._known.items() if noted[2] >= step - 1}
        return masks
