"""Versions of weights in slime and miles, and the version that sampled each token.

Both trainers count pushes to the engines. The first push, before any training, is number 1. An engine reports the number of its
last push with every call. Training comes between two pushes, so the number of the last push is the version of the weights in
training. Asynchronous training may push only after several rollouts (--update-weights-interval k). Versions are then recorded in
rollouts trained, 1 + (pushes - 1) * k, so that updates without a push count too.
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ratioscope.arrays import Integers

Arguments = Any
"""The trainer's argparse.Namespace."""
Sample = Any
Spans = tuple[tuple[int, int], ...]
"""(end, version) of each span: `version` sampled the tokens from the end of the span before up to `end`."""


def interval(args: Arguments) -> int:
    """Rollouts between two pushes; 1 unless training is asynchronous."""
    return 1 if getattr(args, "colocate", False) else int(getattr(args, "update_weights_interval", None) or 1)


def version_of(pushes: Any, args: Arguments) -> int | None:
    """The recorded version of a push's weights; None if `pushes` is not a push, such as an engine's own initial weights."""
    text = str(pushes)
    return 1 + (int(text) - 1) * interval(args) if text.isdecimal() and int(text) > 0 else None


@dataclass
class Calls:
    """The tokens of each call of an engine, by sample, noted during sampling."""

    _known: dict[int, tuple[Any, list[tuple[int, Any]]]] = field(default_factory=dict)
    """Identity of a sample -> (weak reference to it, (end, push) of each call)."""

    def note(self, sample: Sample) -> None:
        """Notes a call, if it added its version to the sample's list of versions."""
        spans = self._spans(sample)
        versions = sample.weight_versions
        if len(versions) == len(spans) + 1:
            spans.append((int(sample.response_length), versions[-1]))
        elif len(versions) != len(spans):
            spans.clear()  # sampled again, or other code appends versions: an incomplete history is useless

    def spans(self, sample: Sample, args: Arguments) -> Spans | None:
        """The versions of the sample's tokens; None if a call reported none.

        None also for a sample of several versions whose calls were not all noted: nobody knows which of them sampled a token.
        """
        pushes_of_calls, length = list(sample.weight_versions or []), int(sample.response_length)
        versions = [version_of(pushes, args) for pushes in pushes_of_calls]
        known = [version for version in versions if version is not None]
        if not known or len(known) < len(versions):
            return None
        spans = self._spans(sample)
        if len(set(known)) == 1:
            return ((length, known[0]),)
        if [pushes for _, pushes in spans] != pushes_of_calls:
            return None
        ends = [end for end, _ in spans[:-1]] + [length]  # a tool's tokens after the last call are masked anyway
        return tuple(zip(ends, known, strict=True))

    def _spans(self, sample: Sample) -> list[tuple[int, Any]]:
        key = id(sample)
        reference, spans = self._known.get(key, (None, []))
        if reference is None or reference() is not sample:
            reference, spans = weakref.ref(sample, lambda _: self._known.pop(key, None)), []
            self._known[key] = (reference, spans)
        return spans


def per_token(spans: Sequence[tuple[int, int]], length: int) -> Integers:
    """The version of each token."""
    ends = np.minimum([end for end, _ in spans], length)
    return np.repeat(np.array([version for _, version in spans], np.int64), np.diff(ends, prepend=0))


def recorded_versions(spans: Sequence[Spans | None], lengths: Sequence[int]) -> list[Any] | None:
    """The argument rollout_versions of `log`: one per sequence if each has one version, else per token; None if none is known."""
    if all(one is None for one in spans):
        return None
    if all(one is None or len({version for _, version in one}) == 1 for one in spans):
        return [None if one is None else one[0][1] for one in spans]
    return [None if one is None else per_token(one, n) for one, n in zip(spans, lengths, strict=True)]
