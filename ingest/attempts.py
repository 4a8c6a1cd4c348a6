"""Attempts: a resumed run writes a new attempt, whose steps replace the older attempts' from its first step on."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Shadow:
    """Steps of an older attempt that are not shown, because a later attempt began at or before them."""

    attempt: int
    by: int
    first_step: int
    last_step: int
    steps: int


def horizons(first_steps: Mapping[int, int]) -> dict[int, tuple[int, int] | None]:
    """attempt -> (the step from which it is shadowed, the attempt that shadows it); None where nothing does.

    >>> horizons({0: 0, 1: 50, 2: 40})
    {0: (40, 2), 1: (40, 2), 2: None}
    """
    later: tuple[int, int] | None = None
    found: dict[int, tuple[int, int] | None] = {}
    for attempt in sorted(first_steps, reverse=True):
        found[attempt] = later
        begins = (first_steps[attempt], attempt)
        later = begins if later is None or begins[0] < later[0] else later
    return dict(sorted(found.items()))


def visible(attempt: int, step: int, limits: Mapping[int, tuple[int, int] | None]) -> bool:
    """Whether a step of an attempt is part of the run as it is shown."""
    limit = limits.get(attempt)
    return limit is None or step < limit[0]


def shadows(steps: Mapping[int, Collection[int]]) -> tuple[Shadow, ...]:
    """What is shadowed; steps: attempt -> the steps it recorded."""
    limits = horizons({attempt: min(found) for attempt, found in steps.items() if found})
    hidden = {
        attempt: sorted(step for step in steps[attempt] if limit is not None and step >= limit[0])
        for attempt, limit in limits.items()
    }
    return tuple(
        Shadow(attempt, limit[1], hidden[attempt][0], hidden[attempt][-1], len(hidden[attempt]))
        for attempt, limit in limits.items()
        if limit is not None and hidden[attempt]
    )
