"""What SkyRL knows of a sequence when it has been sampled, kept until its batch is made: weights, prompt, unfiltered mask.

A generator's output is a plain dict of lists, which is cut, filtered and concatenated on its way to the batch. Prompts and
versions find their rows again by uid, which names one prompt of a step; masks by the identity of the row's list of tokens, which
nothing but merging turns replaces.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_SYNCS = 256  # more than a sequence can be in flight for


@dataclass(frozen=True)
class Sampling:
    """How the sequences of one prompt were sampled.

    step: the trainer's, when they were scheduled. version, newest: of the engine's weights, when scheduled and when all were
    complete; between them, weights may have changed in the middle of a sequence. masks: of its sequences, before filtering.
    """

    step: int
    version: int
    newest: int
    prompt: Any = None
    masks: Sequence[Sequence[int]] | None = None


class Syncs:
    """When the engine was given which version of the weights."""

    def __init__(self) -> None:
        self._done: list[tuple[float, int]] = []

    def add(self, version: int) -> None:
        self._done = [*self._done[-_SYNCS:], (time.monotonic(), version)]

    @property
    def newest(self) -> int | None:
        return self._done[-1][1] if self._done else None

    def before(self, moment: float) -> int | None:
        """The version that the engine had then, by the monotonic clock; None if that was before the first sync seen here."""
        return next((version for done, version in reversed(self._done) if done <= moment), None)


class Beside:
    """Notes kept beside objects that cannot be hashed, for as long as those live."""

    def __init__(self) -> None:
        self._notes: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def put(self, thing: Any, note: Any) -> None:
        key = id(thing)
        self._notes[key] = (weakref.ref(thing, lambda _: self._notes.pop(key, None)), note)

    def note(self, thing: Any) -> Any:
        """None if there is none."""
        found = self._notes.get(id(thing))
        return found[1] if found is not None and found[0]() is thing else None


class Filters:
    """The masks that overlong filtering has zeroed, until somebody asks for those of the output they belong to."""

    def __init__(self) -> None:
        self._zeroed: dict[int, tuple[Any, Any]] = {}

    def add(self, before: Sequence[Any], after: Sequence[Any]) -> None:
        self._zeroed |= {id(mask): (mask, was) for was, mask in zip(before, after, strict=True)}

    def unfiltered(self, masks: Sequence[Any]) -> list[Any]:
        """The masks as they were, and forgets all others: an evaluation's, or those of groups that were dropped."""
        known, self._zeroed = self._zeroed, {}
        return [known[id(mask)][1] if id(mask) in known else mask for mask in masks]


class Masks:
    """Masks before any filtering, by the list of tokens that each belongs to; for batches that may be sampled ahead."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any, int]] = {}

    def knows(self, tokens: Any) -> bool:
        found = self._known.get(id(tokens))
        return found is not None and found[0] is tokens

    def add(self, step: int, rows: Sequence[Any], masks: Sequence[Any]) -> None:
        self._known |= {id(tokens): (tokens, mask, step) for tokens, mask in zip(rows, masks, strict=True)}

    def take(self, step: int, rows: Sequence[Any], filtered: Sequence[Any]) -> list[Any]:
        """Of each row the mask as it was, or the filtered one where that is not known; forgets what is of steps long ago."""
        pairs = zip(rows, filtered, strict=True)
        found = [self._known[id(tokens)][1] if self.knows(tokens) else mask for tokens, mask in pairs]
        self._known = {key: noted for key, noted in self._known.items() if noted[2] >= step - 1}
        return found
