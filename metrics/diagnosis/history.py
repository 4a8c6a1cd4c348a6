"""History: the level of a gap at each step, and its course: flat, a jump, a rise or fall that goes on, or a sawtooth."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from .step_noise import MANY_STEPS, least_errors, weights_of

CourseShape = Literal["flat", "jump", "rise", "sawtooth"]
"""A rise with a factor below 1 is a fall that goes on."""
LEAST_STEPS = 4
"""The least number of steps that have a course."""
CLEAR = 5.0
"""Standard errors of a jump or rise that is beyond chance, although every step is tried as its beginning."""
LEAST_FACTOR = 1.15
"""The smallest lasting factor that is called a change."""
MOST_PLACES = 100
"""At most so many places are tried as the beginning of a rise."""
RARE = 200
"""A history in which fewer than one of so many steps is a reset is no sawtooth."""
DATED = 7.35
"""Places whose cost is within this of the least one hold the true one with 95%: Hansen 2000, table 1."""
BETTER = 6.0
"""A rise over many steps is told from a jump if its cost is smaller by this: a likelihood ratio of 20. A convention."""
FEW_STEPS = 6
"""Up to so many steps, the last one alone may be a new level."""
DROP = 3.0
"""A fall to less than a third between neighbouring steps is a reset."""
STEADY = 0.25
"""A rise has no level before it if the log level grew by this part of the rise's log factor before its onset. A convention."""
RISEN = 0.25
"""A tooth of a sawtooth has begun when the log level is this part of the way up, so that noise at the foot is no beginning."""


@dataclass(frozen=True)
class History:
    """The level of a gap at each step, ascending by step. Every array has shape (steps,)."""

    steps: Integers
    level: Floats
    """Mean K3 in nats/token, or its ratio to the usual; positive."""
    error: Floats
    """Standard error of the log of the level."""
    tokens: Floats
    """Tokens of the step."""
    fixed_mix: Floats | None = None
    """The level as it would be at one mix of probabilities, see composition.at_fixed_mix; None if it is not known."""

    def part(self, kept: slice | Booleans) -> "History":
        """The history of some of its steps."""
        fixed = None if self.fixed_mix is None else self.fixed_mix[kept]
        return History(self.steps[kept], self.level[kept], self.error[kept], self.tokens[kept], fixed)


@dataclass(frozen=True)
class Course:
    """The course of a history."""

    kind: CourseShape
    onset: int = 0
    """The first step of the new level or of the rise; of a sawtooth the first step of its first tooth."""
    factor: float = 1.0
    """Level of the last steps, or after the jump, divided by the level before."""
    error: float = np.inf
    """Standard error of the log of the factor."""
    floor: float = np.nan
    """The level before the onset."""
    resets: int = 0
    """Number of falls to less than a third."""
    from_start: bool = False
    """True if the rise begins within the first steps of the record."""
    is_steady: bool = False
    """True for a rise from the start that grows by about an equal factor each step: no step is its beginning."""
    earliest: int = 0
    """The first step that may be the onset, with 95% confidence."""
    latest: int = 0
    """The last step that may be the onset, likewise."""
    falls: tuple[int, ...] = ()
    """Steps of the resets."""


def course(history: History) -> Course:
    """The course that fits best: two levels, or a level and a rise, or a sawtooth; flat if none is beyond chance."""
    known = known_steps(history)
    if len(known.steps) < LEAST_STEPS:
        return Course("flat")
    y, error = np.log(known.level), least_errors(known.error, known.tokens)
    # Places of the steps that lie clearly below a third of the step before.
    fall = -np.diff(y)
    clear = (fall > np.log(DROP)) & (fall > 4 * np.hypot(error[1:], error[:-1]))
    falls = np.flatnonzero(clear) + 1
    if len(falls) >= max(2, len(y) / RARE):
        return _sawtooth(known.steps, y, falls)
    weights = weights_of(y, error)
    centred = y - float(np.average(y, weights=weights))
    flat = float((weights * centred**2).sum())
    jump = _jumps(centred, weights)
    rise = _rises(known.steps, centred, weights)
    if flat - min(jump.least, rise.least) < CLEAR**2:
        return Course("flat")
    # A jump and a hinge have equally many parameters. A hinge is steep at first, so noise makes one of a jump in many steps.
    is_jump = jump.least <= rise.least + (BETTER if len(y) >= MANY_STEPS else 0.0)
    return _jump(known.steps, y, weights, jump) if is_jump else _rise(known.steps, y, weights, rise)


def known_steps(history: History) -> History:
    """The steps with a level above 0 and a known error."""
    known = (history.level > 0) & np.isfinite(history.error) & (history.error > 0)
    return history.part(known)


@dataclass(frozen=True)
class _Costs:
    """Weighted squares that are left when a change is put at each of some places."""

    places: Integers
    costs: Floats
    """One per place."""

    @property
    def least(self) -> float:
        return float(self.costs.min(initial=np.inf))

    @property
    def best(self) -> int:
        return int(self.places[np.argmin(self.costs)])

    @property
    def range(self) -> tuple[int, int]:
        """First and last place within DATED of the least cost."""
        near = self.places[self.costs <= self.least + DATED]
        return int(near[0]), int(near[-1])


def _jumps(y: Floats, weights: Floats) -> _Costs:
    """Costs of two levels by the first place of the second one. A long history may not split off its last step alone."""
    sums, squares, total = np.cumsum(weights * y), np.cumsum(weights * y * y), np.cumsum(weights)
    at = np.arange(1, len(y) if len(y) <= FEW_STEPS else len(y) - 1)
    before = squares[at - 1] - sums[at - 1] ** 2 / total[at - 1]
    after = (squares[-1] - squares[at - 1]) - (sums[-1] - sums[at - 1]) ** 2 / (total[-1] - total[at - 1])
    return _Costs(at, before + after)


def _rises(steps: Integers, y: Floats, weights: Floats) -> _Costs:
    """Costs of a level and a hinge, by the place of the hinge. Longer histories are tried at MOST_PLACES places.

    y: centred on its weighted mean, shape (steps,).
    """
    places = np.unique(np.linspace(0, max(len(y) - 4, 0), MOST_PLACES).astype(np.int64))
    hinges = _hinge(steps, places)
    centred = hinges - (hinges @ weights / weights.sum())[:, None]
    size = (centred * centred) @ weights
    slope = (centred @ (weights * y)) / np.where(size > 0, size, 1.0)
    return _Costs(places, float((weights * y * y).sum()) - slope**2 * size)


def _hinge(steps: Integers, places: Integers) -> Floats:
    """Log growth as of a squared distance, log(1 + elapsed), from each place on; shape (places, steps)."""
    elapsed = np.maximum(steps - steps[places][:, None], 0).astype(np.float64)
    return np.asarray(np.log1p(elapsed))


def _jump(steps: Integers, y: Floats, weights: Floats, costs: _Costs) -> Course:
    at, (first, last) = costs.best, costs.range
    low, high = (float(np.average(y[part], weights=weights[part])) for part in (slice(None, at), slice(at, None)))
    error = float(np.sqrt(1 / weights[:at].sum() + 1 / weights[at:].sum()))
    if abs(high - low) < max(CLEAR * error, np.log(LEAST_FACTOR)):
        return Course("flat")
    return Course(
        "jump", int(steps[at]), float(np.exp(high - low)), error, float(np.exp(low)),
        earliest=int(steps[first]), latest=int(steps[last]),
    )  # fmt: skip


def _rise(steps: Integers, y: Floats, weights: Floats, costs: _Costs) -> Course:
    at, (first, last) = costs.best, costs.range
    columns = np.stack([np.ones(len(steps)), _hinge(steps, np.array([at]))[0]], axis=1)
    root = np.sqrt(weights)
    level, slope = np.linalg.lstsq(columns * root[:, None], y * root, rcond=None)[0]
    covariance = np.linalg.pinv((columns * weights[:, None]).T @ columns)
    span = float(columns[-1, 1])
    error = float(np.sqrt(max(covariance[1, 1], 0.0)) * span)
    if abs(slope * span) < max(CLEAR * error, np.log(LEAST_FACTOR)):
        return Course("flat")
    grown = _growth(steps[:at], y[:at], weights[:at])
    if slope > 0 and grown > STEADY * slope * span:
        factor, floor = float(np.exp(slope * span + grown)), float(np.exp(level - grown / 2))
        begin = int(steps[0])
        return Course(
            "rise", begin, factor, error, floor, from_start=True, is_steady=True, earliest=begin, latest=begin
        )
    return Course(
        "rise", int(steps[at]), float(np.exp(slope * span)), error, float(np.exp(level)), from_start=at <= 1,
        earliest=int(steps[first]), latest=int(steps[last]),
    )  # fmt: skip


def _growth(steps: Integers, y: Floats, weights: Floats) -> float:
    """The growth of log levels that grow by an equal amount each step; 0 if it is not beyond chance, or one jump fits better."""
    if len(steps) < LEAST_STEPS:
        return 0.0
    y, x = (each - np.average(each, weights=weights) for each in (y, steps))
    size = float((weights * x**2).sum())
    slope = float((weights * x * y).sum()) / size
    left = float((weights * (y - slope * x) ** 2).sum())
    is_clear = slope > CLEAR / np.sqrt(size) and left < _jumps(y, weights).least + BETTER
    return slope * float(steps[-1] - steps[0]) if is_clear else 0.0


def _sawtooth(steps: Integers, y: Floats, falls: Integers) -> Course:
    floor = float(np.median(y[falls]))
    high = float(np.median(y[falls - 1]))
    low = np.flatnonzero(y[: falls[0]] <= floor + RISEN * (high - floor))
    onset = int(steps[low[-1] + 1] if len(low) else steps[0])
    return Course(
        "sawtooth", onset, float(np.exp(high - floor)), 0.1, float(np.exp(floor)), len(falls),
        earliest=onset, latest=onset, falls=tuple(steps[falls].tolist()),
    )  # fmt: skip
