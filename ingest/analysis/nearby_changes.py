"""The record beside a change of the gap: attempts, settings, events and facts that changed near it. None is called a cause."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from ratioscope.arrays import Floats, Integers

from ..run import Run
from .recorded_events import recorded_events
from .run_settings import differences, settings

ChangeKind = Literal["attempt", "setting", "event", "fact"]
USUAL = 1 / 3
"""An event that this share of all steps have as near as this tells nothing about one step. A convention."""
NEAR = 20
"""Recorded steps on each side over which facts are compared."""
CLEAR = 4.0
"""Standard errors from which on a fact has changed."""
LEAST = 0.05
"""The smallest relative change of a fact that is told."""
MOST_WORDS = 90
"""Characters of a note that are told."""
ORDER: Mapping[ChangeKind, int] = {"attempt": 0, "setting": 1, "event": 2, "fact": 3}


@dataclass(frozen=True)
class Window:
    """The recorded steps near a change."""

    onset: int
    """The step of the change."""
    first: int
    """The recorded step before the earliest possible onset; that step itself if it is the first."""
    last: int
    """The recorded step after the latest possible onset, likewise."""


@dataclass(frozen=True)
class NearbyChange:
    """One thing on record that changed near a step."""

    kind: ChangeKind
    step: int
    words: str
    """A clause without its step: "attempt 2 begins"."""
    usual: float = 0.0
    """Share of all steps that have such an event near them."""

    def distance(self, window: Window) -> tuple[bool, int, int]:
        """To sort by: events that are usual last, else by nearness to the onset."""
        return self.usual > USUAL, abs(self.step - window.onset), ORDER[self.kind]


def window_of(onset: int, earliest: int, latest: int, steps: Sequence[int]) -> Window:
    """The window of a change. steps: all recorded steps, ascending."""
    before = int(np.searchsorted(steps, earliest)) - 1
    after = int(np.searchsorted(steps, latest, side="right"))
    return Window(onset, int(steps[max(before, 0)]), int(steps[min(after, len(steps) - 1)]))


def nearby_changes(run: Run, window: Window, facts: Mapping[str, Floats], steps: Integers) -> Iterator[NearbyChange]:
    """Attempts, settings, events and facts of steps that changed in the window.

    facts: in words -> values, shape (steps,).
    """
    yield from _settings(run, window)
    yield from _events(run, window)
    # Facts whose means over NEAR steps differ clearly between the sides of the onset; of a change that begins with
    # the record, between its first and its last steps.
    at, end = (int(np.searchsorted(steps, step)) for step in (window.onset, window.last))
    sides = (
        (slice(max(at - NEAR, 0), at), slice(at, at + NEAR))
        if at > 1
        else (slice(NEAR), slice(max(end - NEAR, NEAR), end))
    )
    for name, values in facts.items():
        before, after = (values[side][np.isfinite(values[side])] for side in sides)
        if words := shift(before, after, few=2, clear=CLEAR):
            yield NearbyChange("fact", window.onset, f"{name} went from {words}")


def shift(before: Floats, after: Floats, *, few: int, clear: float) -> str:
    """`0.1 to 0.4` if the means differ by so many standard errors and by LEAST of the larger; empty if not, or of too few."""
    if min(len(before), len(after)) < few:
        return ""
    low, high = float(before.mean()), float(after.mean())
    error = float(np.hypot(before.std(ddof=1) / np.sqrt(len(before)), after.std(ddof=1) / np.sqrt(len(after))))
    return f"{low:.3g} to {high:.3g}" if abs(high - low) > max(clear * error, LEAST * max(abs(low), abs(high))) else ""


def _settings(run: Run, window: Window) -> Iterator[NearbyChange]:
    """Settings and versions of an attempt that begins in the window, where they differ from the attempt before."""
    begins = list(run.attempts.items())
    for (before, _), (attempt, step) in zip(begins, begins[1:], strict=False):
        if window.first <= step <= window.last:
            for each in differences(settings(run.info, before), settings(run.info, attempt)):
                yield NearbyChange("setting", step, f"{each.key} went from {_value(each.a)} to {_value(each.b)}")


def _value(text: str | None) -> str:
    return "unset" if text is None else _short(text)


def _short(text: str) -> str:
    return text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]}…"


def _events(run: Run, window: Window) -> Iterator[NearbyChange]:
    """Events in the window: of each name the nearest one. Settings of attempts are told key by key, see `_settings`."""
    events = _named_events(run)
    width = sum(window.first <= step <= window.last for step in run.steps)
    for (name,), rows in events.group_by(["event"], maintain_order=True):
        near = rows.filter(pl.col("step").is_between(window.first, window.last))
        near = near.sort((pl.col("step") - window.onset).abs(), maintain_order=True)
        chance = 1 - (1 - min(rows["step"].n_unique() / max(len(run.steps), 1), 1.0)) ** width
        resumes = near.filter(pl.col("kind") == "resume")
        for step, note in resumes.select("step", "note").iter_rows():
            yield NearbyChange("attempt", step, _short(note))
        others = near.filter(pl.col("kind") != "resume")
        if len(others):
            step, note = others.select("step", "note").row(0)
            again = others["step"].n_unique() - 1
            more = f", and at {again} more of these steps" if again else ""
            yield NearbyChange("event", step, f"{_short(f'{name}: {note}' if note else str(name))}{more}", chance)


def _named_events(run: Run) -> pl.DataFrame:
    return recorded_events(run).filter(pl.col("event") != "config change")


def labels_that_changed(
    labels: str, keys: Sequence[str], tokens: Floats, steps: Integers, window: Window
) -> list[NearbyChange]:
    """Labels, such as replicas, that are first or last seen within the window.

    tokens: of each label at each step, shape (steps, labels).
    """
    changes: list[NearbyChange] = []
    for key, own in zip(keys, (tokens > 0).T, strict=True):
        seen = np.flatnonzero(own)
        if len(seen) and seen[0] > 0 and window.first < steps[seen[0]] <= window.last:
            changes.append(
                NearbyChange("fact", int(steps[seen[0]]), f"{labels} {_short(key)} is on record for the first time")
            )
        if len(seen) and seen[-1] < len(steps) - 1 and window.first <= steps[seen[-1]] < window.last:
            changes.append(
                NearbyChange("fact", int(steps[seen[-1]]), f"{labels} {_short(key)} is on record for the last time")
            )
    return changes


def falls_near(run: Run, falls: Sequence[int]) -> tuple[NearbyChange, ...]:
    """Events that most falls of a sawtooth have within one recorded step, more often than other steps do."""
    steps = run.steps
    place = {step: at for at, step in enumerate(steps)}
    changes = []
    for (event,), rows in _named_events(run).group_by(["event"], maintain_order=True):
        own = np.array([place[step] for step in rows["step"].unique() if step in place], np.int64)
        hits = [fall for fall in falls if len(own) and int(np.abs(own - place.get(fall, -9)).min()) <= 1]
        every = np.unique((own[:, None] + np.array([-1, 0, 1])).clip(0, len(steps) - 1)).size / max(len(steps), 1)
        if len(hits) * 2 > len(falls):
            words = f"{len(hits)} of {len(falls)} falls come with the event {_short(str(event))}, within a step"
            changes.append(NearbyChange("event", hits[0], f"{words}; chance alone gives {every:.0%}", every))
    return tuple(sorted(changes, key=lambda each: each.usual))
