"""Changes: every lasting change of a gap's level over the steps, each dated with an interval."""

from dataclasses import replace

import numpy as np

from .growth_laws import CLEAR
from .history import LEAST_FACTOR, Course, History, course, known_steps
from .raised_steps import raised_steps
from .step_noise import least_errors, weights_of

LEAST_PART = 8
"""The least number of steps of a part of a history in which a further change is looked for."""
MOST_CHANGES = 8
"""At most so many changes are told: a gap with more has no levels."""


def changes(history: History) -> tuple[Course, ...]:
    """The changes of a history, by step; none if it has one level. A sawtooth is one change. Two clear levels have a jump at
    each edge of a span.

    A history is split at its clearest jump, and each part is looked at again (binary segmentation: Scott and Knott 1974). Then
    each change is dated and measured anew between its neighbours, and kept if it is still beyond chance.
    """
    known = known_steps(history)
    if (raised := raised_steps(known)) is not None:
        return raised.courses[:MOST_CHANGES]
    changes_within = _within(known, MOST_CHANGES)
    if len(changes_within) < 2:
        return changes_within
    edges = [0, *(int(np.searchsorted(known.steps, each.onset)) for each in changes_within), len(known.steps)]
    anew = (
        replace(course(known.part(slice(before, after))), from_start=each.from_start)
        for before, each, after in zip(edges, changes_within, edges[2:], strict=False)
    )
    return tuple(each for each in anew if each.kind != "flat")


def _within(history: History, most: int) -> tuple[Course, ...]:
    whole_course = course(history)
    if whole_course.kind in ("flat", "sawtooth") or most < 2:
        return () if whole_course.kind == "flat" else (whole_course,)
    at = int(np.searchsorted(history.steps, whole_course.onset))
    before = _further(history.part(slice(None, at)), most - 1)
    after = _further(history.part(slice(at, None)), most - 1 - len(before)) if whole_course.kind == "jump" else ()
    return (*before, whole_course, *after)


def _further(part: History, most: int) -> tuple[Course, ...]:
    """The changes of a part of a history. The resets of a sawtooth count only if all of the history has them."""
    earlier = _within(part, most) if len(part.steps) >= LEAST_PART and most > 0 else ()
    return tuple(replace(each, from_start=False) for each in earlier if each.kind != "sawtooth")


def least_factor(history: History) -> float:
    """The smallest lasting factor that would be found in the middle of this history; infinite if it is too short."""
    known = known_steps(history)
    middle = len(known.steps) // 2
    if middle < LEAST_PART // 2:
        return np.inf
    weights = weights_of(np.log(known.level), least_errors(known.error, known.tokens))
    error = np.sqrt(1 / weights[:middle].sum() + 1 / weights[middle:].sum())
    return float(max(np.exp(CLEAR * error), LEAST_FACTOR))
