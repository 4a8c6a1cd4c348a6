"""History: the level of a gap at each step, and its course: flat, a jump, a rise or fall that goes on, or a sawtooth."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from .growth_laws import CLEAR, DATED, Growth, Growths, growths
from .step_noise import least_errors, weights_of

CourseShape = Literal["flat", "jump", "rise", "sawtooth"]
"""A rise with a factor below 1 is a fall that goes on."""
LEAST_STEPS = 4
"""The least number of steps that have a course."""
LEAST_FACTOR = 1.15
"""The smallest lasting factor that is called a change."""
RARE = 200
"""A history in which fewer than one of so many steps is a reset is no sawtooth."""
BETTER = 6.0
"""A course is told from another one if its BIC is smaller by this: a likelihood ratio of 20. A convention."""
FEW_STEPS = 6
"""Up to so many steps, the last one alone may be a new level."""
DROP = 3.0
"""A fall to less than a third between neighbouring steps is a reset."""
LEAST_OF_STEP = 30
"""A step of fewer tokens has fallen by chance if these are nearly certain, where the sides hardly differ. A convention."""
STEADY = 0.5
"""A rise from the start is steady if less than this part of its log growth falls into the first quarter of the steps."""
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
    of_sizes: bool = False
    """True if it is the course of the usual size of a log-ratio, and K3, the mean of few large tokens, has none."""
    fit: float = 0.0
    """Gain of the log-likelihood over one level, less the price of its parameters (half the difference of BIC)."""
    alternatives: tuple["Course", ...] = ()
    """Other courses that predict the steps nearly as well: the record does not tell which one it is."""


def course(history: History) -> Course:
    """The course that predicts the steps best: one level, two, a growth law or a sawtooth; flat if none is beyond chance.

    Courses compete by their squares with a price for each parameter (BIC: Schwarz 1978). Those that predict the steps nearly as
    well are its `alternatives`.
    """
    known = known_steps(history)
    if len(known.steps) < LEAST_STEPS:
        return Course("flat")
    y, error = np.log(known.level), least_errors(known.error, known.tokens)
    # Places of the steps that lie clearly below a third of the step before.
    fall = -np.diff(y)
    clear = (fall > np.log(DROP)) & (fall > 4 * np.hypot(error[1:], error[:-1])) & (known.tokens[1:] >= LEAST_OF_STEP)
    falls = np.flatnonzero(clear) + 1
    if len(falls) >= max(2, len(y) / RARE):
        return _sawtooth(known.steps, y, falls)
    weights = weights_of(y, error)
    centred = y - float(np.average(y, weights=weights))
    flat, price = float((weights * centred**2).sum()), float(np.log(len(y)))
    jump, grown = _jumps(centred, weights), growths(known.steps, centred, weights)
    rivals = [(jump.least + 2 * price, _jump(known.steps, y, weights, jump))]
    mean = float(np.average(y, weights=weights))
    squares = [jump.least]
    if grown is not None:
        for each in grown.fits:
            places = float(np.log(2)) if each.from_start else price  # the first two steps, or any step
            rivals.append((each.cost + 2 * price + places, _rise(known.steps, each, grown, mean)))
            squares.append(each.cost)
    rivals = sorted((pair for pair in rivals if pair[1].kind != "flat"), key=lambda pair: pair[0])
    if not rivals or flat - min(squares) < CLEAR**2:
        return Course("flat")
    least, best = rivals[0]
    near = tuple(replace(each, fit=(flat - cost) / 2) for cost, each in rivals[1:] if cost < least + BETTER)
    return replace(best, fit=(flat - least) / 2, alternatives=near)


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


def _rise(steps: Integers, own: Growth, grown: Growths, mean: float) -> Course:
    """The course of a growth law. mean: the log level that the growths are relative to."""
    if abs(own.grown) < max(CLEAR * own.error, np.log(LEAST_FACTOR)):
        return Course("flat")
    is_steady = own.from_start and own.grown > 0 and own.early < STEADY
    first = 0 if is_steady else own.place
    earliest, latest = (0, 0) if is_steady else (min(first, grown.earliest), max(first, grown.latest))
    return Course(
        "rise", int(steps[first]), float(np.exp(own.grown)), own.error, float(np.exp(mean + own.floor)),
        from_start=own.from_start, is_steady=is_steady, earliest=int(steps[earliest]), latest=int(steps[latest]),
    )  # fmt: skip


def _sawtooth(steps: Integers, y: Floats, falls: Integers) -> Course:
    floor = float(np.median(y[falls]))
    high = float(np.median(y[falls - 1]))
    low = np.flatnonzero(y[: falls[0]] <= floor + RISEN * (high - floor))
    onset = int(steps[low[-1] + 1] if len(low) else steps[0])
    return Course(
        "sawtooth", onset, float(np.exp(high - floor)), 0.1, float(np.exp(floor)), len(falls),
        earliest=onset, latest=onset, falls=tuple(steps[falls].tolist()),
    )  # fmt: skip
