"""Growth laws: a level plus a squared distance that grows with the updates since an onset, fitted to log levels.

level(t) = floor * (1 + r g(e)), with e the updates since the onset, and g one of some laws: a random walk gives e, a walk in one
direction its square, a policy that settles a curve that bends, one that speeds up an exponential.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ratioscope.arrays import Floats, Integers

Law = Callable[[Floats, Floats], Floats]
POWERS = (0.5, 1.0, 1.5, 2.0, 3.0)
"""Exponents of the elapsed updates."""
SETTLES = 3.0
"""Updates after which a bent law has 63% of its growth."""
MOST_BLOCKS = 250
"""Longer histories are fitted to the means of so many blocks of neighbouring steps, before their best law is to every step."""
MOST_PLACES = 20
"""At most so many places are tried as the onset at once."""
LEAST_AFTER = 3
"""The least number of steps of a growth."""
CLEAR = 5.0
"""Standard errors of a jump or growth that is beyond chance, although every step is tried as its beginning."""
DATED = 7.35
"""Places whose cost is within this of the least one hold the true one with 95%: Hansen 2000, table 1."""
STARTS, ROUNDS = 5, 4
"""Sizes of the growth that a fit begins with, and its Gauss-Newton steps."""
ENDS = 10
"""One step in so many tells the level at either end."""


@dataclass(frozen=True)
class Growth:
    """A growth law at one onset. A fall is the growth of the inverse level."""

    place: int
    """Index of the first step of the growth."""
    cost: float
    """Weighted squares that are left."""
    grown: float
    """Log of the level at the last step divided by the floor; negative for a fall."""
    error: float
    """Its standard error, the law and the onset given."""
    floor: float
    """Log of the level before the onset."""
    early: float
    """Part of the log growth within the first quarter of the steps."""

    @property
    def from_start(self) -> bool:
        """True if it begins within the first two steps: the first one may be exact."""
        return self.place <= 1


class Growths(NamedTuple):
    """The growths of a history by the place of their onset."""

    fits: tuple[Growth, ...]
    """The best one that begins within the first two steps, and the best one that begins later, if there is a place for it."""
    earliest: int
    """The first place that may be the onset, with 95% confidence."""
    latest: int
    """The last place that may be the onset, likewise."""


class _Steps(NamedTuple):
    at: Floats
    y: Floats
    weights: Floats


def growths(steps: Integers, y: Floats, weights: Floats) -> Growths | None:
    """The growths of log levels y with these inverse variances; None if there are too few steps. Shapes (steps,).

    y: centred on its weighted mean.
    """
    if len(y) < LEAST_AFTER:
        return None
    every = _Steps(np.asarray(steps, np.float64) / float(np.median(np.diff(steps))), y, weights)
    end = max(len(y) // ENDS, 1)
    change = float(y[-end:].mean() - y[:end].mean()) * len(y) / max(len(y) - end, 1)
    sign, laws = (1.0 if change > 0 else -1.0), _laws(max(abs(change), 0.1))
    last = len(y) - max(LEAST_AFTER, 2 * len(y) // MOST_BLOCKS)
    places = np.unique(
        np.concatenate([np.arange(min(3, last + 1)), np.linspace(0, last, 2 * MOST_PLACES).astype(np.int64)])
    )
    few, size = _blocks(every), -(-len(y) // MOST_BLOCKS)
    costs, law = _costs(few, every, sign, laws, places)
    is_clear = float((weights * y * y).sum()) - costs.min() > CLEAR**2
    while is_clear and len(near := _between(places, costs)):
        # Every law is tried again between the neighbours of the best place, and within a block the best one alone.
        best, within = law[np.argmin(costs)], np.ptp(near) < size
        more, own = _costs(every if within else few, every, sign, [laws[best]] if within else laws, near)
        order = np.argsort(places := np.concatenate([places, near]))
        costs, law = np.concatenate([costs, more]), np.concatenate([law, np.full(len(near), best) if within else own])
        places, costs, law = places[order], costs[order], law[order]
    fits = [
        _growth(every, sign, laws[law[at]], int(places[at]))
        for among in (places <= 1, places > 1)
        if among.any()
        for at in [int(np.argmin(np.where(among, costs, np.inf)))]
    ]
    is_near = np.flatnonzero(costs <= costs.min() + DATED)
    edges = np.concatenate([[-1], places, [last + 1]])  # a place between two that were tried may be the onset as well
    return Growths(tuple(fits), int(edges[is_near[0]]) + 1, int(edges[is_near[-1] + 2]) - 1)


def _between(places: Integers, costs: Floats) -> Integers:
    """At most MOST_PLACES places between the best one and its neighbours; empty if there are none."""
    at = int(np.argmin(costs))
    low, high = places[max(at - 1, 0)], places[min(at + 1, len(places) - 1)]
    if high - low <= 2:
        return np.setdiff1d(np.arange(low, high + 1), places)
    return np.setdiff1d(np.unique(np.linspace(low, high, MOST_PLACES).astype(np.int64)), places)


def _costs(part: _Steps, every: _Steps, sign: float, laws: Sequence[Law], places: Integers) -> tuple[Floats, Integers]:
    """(weighted squares that the best law leaves, index of that law) of each place. part: the steps, or blocks of them."""
    costs = _fitted(_curves(laws, part.at, every.at[places]), sign * part.y, part.weights)[0]
    within = float((every.weights * every.y**2).sum() - (part.weights * part.y**2).sum())
    return costs.min(axis=0) + within, costs.argmin(axis=0)


def _blocks(every: _Steps) -> _Steps:
    """Means of neighbouring steps; the first step of a block stands for its place."""
    if len(every.y) <= MOST_BLOCKS:
        return every
    starts = np.unique(np.linspace(0, len(every.y), MOST_BLOCKS + 1).astype(np.int64))[:-1]
    total = np.add.reduceat(every.weights, starts)
    return _Steps(every.at[starts], np.add.reduceat(every.weights * every.y, starts) / total, total)


def _laws(exponent: float) -> list[Law]:
    """Laws of (elapsed updates, share of the updates that elapsed). exponent: of a growth by an equal factor at each update."""
    powers: list[Law] = [lambda _, share, power=power: share**power for power in POWERS]  # type: ignore[misc]
    bent: list[Law] = [lambda elapsed, _: -np.expm1(-elapsed / SETTLES), lambda elapsed, _: np.log1p(elapsed)]
    return [*powers, *bent, lambda _, share: np.expm1(exponent * share)]


def _curves(laws: Sequence[Law], at: Floats, onsets: Floats) -> Floats:
    """Each law from each onset on, 1 at the last step and 0 before the onset; shape (laws, onsets, steps)."""
    elapsed = np.where(at >= onsets[:, None], at - onsets[:, None] + 1.0, 0.0)
    curves = np.stack([law(elapsed, elapsed / elapsed[:, -1:]) for law in laws])
    return np.asarray(curves / curves[:, :, -1:])


def _fitted(curves: Floats, y: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """(weighted squares that are left, log growth) of each curve; both shapes (laws, onsets). The floor is profiled out."""
    centred, most = y - weights @ y / weights.sum(), float(np.ptp(y)) + 1.0

    def cost(grown: Floats) -> Floats:
        model = np.log1p(np.expm1(grown)[..., None] * curves)
        return np.asarray((_centred(model, weights) - centred) ** 2 @ weights)

    starts = [np.full(curves.shape[:2], size) for size in np.linspace(0.1, most, STARTS)]
    costs = np.stack([cost(start) for start in starts])
    best, grown = costs.min(axis=0), np.stack(starts)[costs.argmin(axis=0), *np.indices(curves.shape[:2])]
    damping = np.ones_like(grown)
    for _ in range(ROUNDS):
        r = np.expm1(grown)[..., None] * curves
        slope = _centred(np.exp(grown)[..., None] * curves / (1 + r), weights)
        left = centred - _centred(np.log1p(r), weights)
        move = (slope * left) @ weights / np.maximum((slope * slope) @ weights, 1e-300)
        tried = np.clip(grown + damping * move, 0.0, 2 * most)
        own = cost(tried)
        better = own < best
        damping = np.where(better, 1.0, damping / 4)
        best, grown = np.where(better, own, best), np.where(better, tried, grown)
    return best, np.asarray(grown)


def _centred(values: Floats, weights: Floats) -> Floats:
    return np.asarray(values - (values @ weights / weights.sum())[..., None])


def _growth(every: _Steps, sign: float, law: Law, place: int) -> Growth:
    """The fit of one law at one onset to every step."""
    curve = _curves([law], every.at, every.at[place : place + 1])
    cost, size = _fitted(curve, sign * every.y, every.weights)
    grown = float(size[0, 0])
    own = np.log1p(np.expm1(grown) * curve[0, 0])
    slope = _centred(np.exp(grown - own) * curve[0, 0], every.weights)
    floor = float(np.average(every.y - sign * own, weights=every.weights))
    error = float(1 / np.sqrt(max((every.weights * slope**2).sum(), 1e-300)))
    return Growth(place, float(cost[0, 0]), sign * grown, error, floor, float(own[len(own) // 4] / max(grown, 1e-300)))
