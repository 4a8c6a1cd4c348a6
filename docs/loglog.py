"""A plot of costs along a size, both axes logarithmic, as SVG; and the slopes of its lines."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from drawing import svg, text

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, FOOT = 76, 240, 36, 52
COLOURS = ("#8a94a3", "#2f7ed8", "#d9822b", "#2ea27a", "#b05fcf", "#d1495b")
"""Colours that are read on light and on dark paper; the first is that of the reference."""
Span = tuple[int, int]


@dataclass(frozen=True)
class Curve:
    """A line of the plot: at each size, the values of all rounds."""

    name: str
    sizes: Sequence[float]
    values: Sequence[Sequence[float]]

    @property
    def medians(self) -> list[float]:
        return [median(each) for each in self.values]


def slope(curve: Curve) -> tuple[float, float]:
    """(slope of log cost on log size over all rounds, its standard error). 1 is linear; the error is nan for two rounds."""
    x = np.log(np.repeat(curve.sizes, [len(each) for each in curve.values]))
    y = np.log(np.concatenate([np.asarray(each, dtype=float) for each in curve.values]))
    design = np.stack([np.ones_like(x), x], axis=1)
    found, *_ = np.linalg.lstsq(design, y, rcond=None)
    left = float(((y - design @ found) ** 2).sum())
    spread = float(((x - x.mean()) ** 2).sum())
    return float(found[1]), math.sqrt(left / (len(x) - 2) / spread) if len(x) > 2 else math.nan


def last_slope(curve: Curve) -> float:
    """Slope between the two largest sizes, where a fixed cost weighs least."""
    (a, b), (low, high) = curve.sizes[-2:], curve.medians[-2:]
    return math.log(high / low) / math.log(b / a)


def plot(curves: Sequence[Curve], title: str, along: str, unit: str) -> str:
    """The picture."""
    every = [value for curve in curves for each in curve.values for value in each]
    x, y = _span([size for curve in curves for size in curve.sizes]), _span(every)
    parts = [
        *_grid(x, y),
        text((LEFT + WIDTH - RIGHT) // 2, HEIGHT - 12, along),
        text(12, 18, unit, anchor="start"),
    ]
    ends = _apart([_up(curve.medians[-1], y) for curve in curves])
    for colour, curve, end in zip(COLOURS, curves, ends, strict=False):
        points = [(_across(size, x), _up(value, y)) for size, value in zip(curve.sizes, curve.medians, strict=True)]
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (a, b), each in zip(points, curve.values, strict=True):
            parts.append(_whisker(a, _up(min(each), y), _up(max(each), y), colour))
            parts.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{colour}"/>')
        parts.append(
            f'<path d="M{points[-1][0] + 6:.1f} {points[-1][1]:.1f}L{WIDTH - RIGHT + 20} {end - 4:.1f}" stroke="{colour}"/>'
        )
        parts.append(text(WIDTH - RIGHT + 26, round(end), curve.name, anchor="start"))
    return svg(WIDTH, HEIGHT, title, parts)


def _span(values: Sequence[float]) -> Span:
    """Powers of ten around the values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _across(value: float, span: Span) -> float:
    return LEFT + (math.log10(value) - span[0]) / (span[1] - span[0]) * (WIDTH - LEFT - RIGHT)


def _up(value: float, span: Span) -> float:
    return HEIGHT - FOOT - (math.log10(value) - span[0]) / (span[1] - span[0]) * (HEIGHT - TOP - FOOT)


def _grid(x: Span, y: Span) -> Iterator[str]:
    for power in range(x[0], x[1] + 1):
        place = _across(10.0**power, x)
        yield f'<path d="M{place:.1f} {TOP}V{HEIGHT - FOOT}" stroke="#8a94a3" stroke-opacity=".3"/>'
        yield text(round(place), HEIGHT - FOOT + 18, _ten(power), "small")
    for power in range(y[0], y[1] + 1):
        place = _up(10.0**power, y)
        yield f'<path d="M{LEFT} {place:.1f}H{WIDTH - RIGHT}" stroke="#8a94a3" stroke-opacity=".3"/>'
        yield text(LEFT - 8, round(place) + 4, _ten(power), "small", anchor="end")


def _ten(power: int) -> str:
    return f"{10.0**power:g}" if -4 < power < 4 else f"1e{power}"


def _whisker(across: float, low: float, high: float, colour: str) -> str:
    return f'<path d="M{across:.1f} {low:.1f}V{high:.1f}" stroke="{colour}" stroke-width="1.2"/>'


def _apart(places: Sequence[float], least: float = 18) -> list[float]:
    """Places of the names: at the ends of their lines, and none upon another."""
    ordered = sorted(range(len(places)), key=lambda each: places[each])
    found = [place + 4 for place in places]
    for before, after in zip(ordered, ordered[1:], strict=False):
        found[after] = max(found[after], found[before] + least)
    over = max(found) - (HEIGHT - FOOT)
    return [place - max(0.0, over) for place in found]
