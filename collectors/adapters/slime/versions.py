"""Versions of weights in slime and miles, and which version sampled which token.

Both count pushes to the engines: 1 is the first push, before any training, and an engine reports the number of the push it
has with every call. Training comes between two pushes, so the number that the trainer pushed last is the version of the
weights that it trains on. In asynchronous training it may push only after several rollouts (--update-weights-interval k); then
versions are recorded in rollouts trained, 1 + (pushes - 1) * k, so that an update that was not pushed counts as well.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arguments = Any
"""The trainer's argparse.Namespace."""
Sample = Any
Spans = tuple[tuple[int, int], ...]
"""(end, version): the tokens up to `end` that no earlier span has were sampled by `version`."""


def interval(args: Arguments) -> int:
    """Rollouts between two pushes; 1 unless training is asynchronous."""
    return 1 if getattr(args, "colocate", False) else int(getattr(args, "update_weights_interval", None) or 1)


def version_of(pushes: Any, args: Arguments) -> int | None:
    """The recorded version of the weights of a push; None of what is no push, as an engine's own initial weights."""
    text = str(pushes)
    return 1 + (int(text) - 1) * interval(args) if text.isdecimal() and int(text) > 0 else None


@dataclass
class Calls:
    """Which tokens each call of an engine gave, by sample; told while sampling. What is not known is left out."""

    _known: dict[int, tuple[Any, list[tuple[int, Any]]]] = field(default_factory=dict)

    def note(self, sample: Sample) -> None:
        """After a call: the sample's list of versions may have grown by the call's own."""
        spans = self._spans(sample)
        versions = sample.weight_versions
        if len(versions) == len(spans) + 1:
            spans.append((int(sample.response_length), versions[-1]))
        elif len(versions) != len(spans):  # sampled anew, or somebody else appends to it: only whole histories count
            spans.clear()

    def spans(self, sample: Sample, args: Arguments) -> Spans | None:
        """The versions of the sample's tokens; None if not every call reported one.

        A sample of several versions whose calls were not seen goes by its oldest.
        """
        told, length = list(sample.weight_versions or []), int(sample.response_length)
        versions = [version_of(pushes, args) for pushes in told]
        known = [version for version in versions if version is not None]
        if not known or len(known) < len(versions):
            return None
        spans = self._spans(sample)
        if len(set(known)) == 1 or [pushes for _, pushes in spans] != told:
            return ((length, min(known)),)
        ends = [end for end, _ in spans[:-1]] + [length]  # what a tool said after the last call is masked
        return tuple(zip(ends, known, strict=True))

    def _spans(self, sample: Sample) -> list[tuple[int, Any]]:
        key = id(sample)
        reference, spans = self._known.get(key, (None, []))
        if reference is None or reference() is not sample:
            reference, spans = weakref.ref(sample, lambda _: self._known.pop(key, None)), []
            self._known[key] = (reference, spans)
        return spans


def per_token(spans: Sequence[tuple[int, int]], length: int) -> NDArray[np.int64]:
    """The version of each token."""
    ends = np.minimum([end for end, _ in spans], length)
    return np.repeat(np.array([version for _, version in spans], np.int64), np.diff(ends, prepend=0))


def recorded_versions(spans: Sequence[Spans | None], lengths: Sequence[int]) -> list[Any] | None:
    """What `log` takes as rollout_versions: per sequence where each has one, else per token; None if none is known."""
    if all(one is None for one in spans):
        return None
    if all(one is None or len({version for _, version in one}) == 1 for one in spans):
        return [None if one is None else one[0][1] for one in spans]
    return [None if one is None else per_token(one, n) for one, n in zip(spans, lengths, strict=True)]
