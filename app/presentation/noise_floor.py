"""The noise floor of a set-up: by how much two computations of one policy differ. Its words, and its line on charts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.limits import Limit
from ratioscope.metrics.metric import Metric

from .digits import count, digits
from .metric_places import OF_FLOOR
from .value_text import value_words

SURE = 2.0
"""Standard errors up to which a value counts as within the floor. Convention, as that of grading."""


@dataclass(frozen=True)
class FloorValue:
    """A value of the floor with its standard error."""

    value: float
    error: float
    """NaN if it is not known."""


@dataclass(frozen=True)
class NoiseFloor:
    """A floor that a user saved under a name."""

    name: str
    gap: str
    """The gap of the run that it was measured on, such as referee:referee_again."""
    how: str
    """The kind of floor in words: which two computations differ by it."""
    values: tuple[tuple[str, FloorValue], ...]
    """Metric -> its value, for each metric of OF_FLOOR."""
    tokens: int
    sequences: int
    run: str
    """Name of the run that it was measured on."""
    digest: str
    """Digest of the committed files of that run."""
    steps: tuple[int, ...]
    facts: tuple[tuple[str, str], ...] = ()
    """Model, engine, precision and versions, as far as they are on record."""
    saved: str = ""
    """When, as ISO 8601."""
    kind: Literal["baseline", "pinned run"] = "baseline"
    """pinned run: its values at the same gap, which are no floor."""

    def value_of(self, metric: str) -> FloorValue | None:
        return dict(self.values).get(metric)


def has_floor(gap: str) -> bool:
    """True if a floor can stand beside the gap: drift is the update itself, and no noise."""
    return gap != "drift"


def stands_beside(floor: NoiseFloor, gap: str) -> bool:
    """True if the values of the floor can be compared with those of the gap."""
    return has_floor(gap) if floor.kind == "baseline" else gap == floor.gap


def with_floor(limits: Sequence[Limit], metric: Metric, gap: str, floor: NoiseFloor | None) -> tuple[Limit, ...]:
    """The limits of a metric, and the floor among them. A floor grades nothing."""
    own = floor.value_of(metric.name) if floor is not None and stands_beside(floor, gap) else None
    if floor is None or own is None:
        return tuple(limits)
    return (*limits, Limit(own.value, f"{floor.kind} {floor.name}", is_floor=True))


def floor_sentence(floor: NoiseFloor, gap: str, value: float | None, error: float | None) -> str:
    """The size of a gap beside the floor, with both numbers. value: of the metric of `compared`; None: not available.

    >>> floor = NoiseFloor("q", "referee:referee_again", "", (("kl_k3", FloorValue(0.001, 0.0001)),), 9, 3, "r", "d", (1,))
    >>> floor_sentence(floor, "mismatch", 0.007, 0.0002)
    '7 times your baseline q: kl_k3 0.007 ± 0.0002 nats/token against 0.001 ± 0.0001'
    >>> floor_sentence(floor, "mismatch", 0.0011, 0.0002)
    'within your baseline q: kl_k3 0.0011 ± 0.0002 nats/token against 0.001 ± 0.0001'
    """
    metric, own = compared(floor, gap)
    if not stands_beside(floor, gap):
        return f"not comparable with your {floor.kind} {floor.name}, because {gap} is the update, and no noise"
    if value is None or math.isnan(value):
        return f"not comparable with your {floor.kind} {floor.name}, because the run has no {metric} of {gap}"
    sides = (
        f"{metric} {value_words(metric, value, error)} nats/token against {value_words(metric, own.value, own.error)}"
    )
    return f"{times(_named(floor), own, value, error)}: {sides}"


def compared(floor: NoiseFloor, gap: str) -> tuple[str, FloorValue]:
    """The metric of a gap's size that the floor is of, and the floor's value."""
    metric = size_metric(gap)
    own = floor.value_of(metric)
    return (metric, own) if own is not None else (OF_FLOOR[1], dict(floor.values)[OF_FLOOR[1]])


def times(name: str, own: FloorValue, value: float, error: float | None) -> str:
    """A value beside another one of this name: so many times it, or within it if their errors cannot tell the two apart."""
    errors = [each for each in (error, own.error) if each is not None and not math.isnan(each)]
    if value <= own.value + SURE * math.hypot(*errors):
        return f"within {name}"
    if not own.value:
        return f"above {name}, which is exactly 0"
    return f"{digits(value / own.value, 2)} times {name}"


def _named(floor: NoiseFloor) -> str:
    return f"your {floor.kind} {floor.name}"


def times_words(floor: NoiseFloor, metric: Metric, gap: str, value: float | None, error: float | None) -> str:
    """`7 times your pinned run good`, for a metric whose ideal is 0; the other's own value for any other; "" where none."""
    own = floor.value_of(metric.name) if stands_beside(floor, gap) else None
    if own is None or value is None or not math.isfinite(value):
        return ""
    if metric.worse == "above" and metric.neutral == 0:
        return times(_named(floor), own, value, error)
    return f"{_named(floor)}: {digits(own.value)}"


def floor_facts(floor: NoiseFloor) -> list[tuple[str, str]]:
    """The stored facts, a line each."""
    first, last = min(floor.steps, default=0), max(floor.steps, default=0)
    steps = f"{count(len(floor.steps), 'step')} ({first} to {last})"
    return [
        ("floor", floor.how),
        *((name, f"{value_words(name, own.value, own.error)} {BY_NAME[name].unit}") for name, own in floor.values),
        (
            "measured on",
            f"{floor.run}: {count(floor.sequences, 'sequence')} of {count(floor.tokens, 'token')}, {steps}",
        ),
        *floor.facts,
        ("input digest (sha256)", floor.digest),
        ("saved", floor.saved),
    ]
