"""The card of a metric: what it is, how it is read, and its names in other trainers.

The documentation page, `ratioscope explain` and the tooltips of the dashboard are made from these cards.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from ratioscope.errors import ConfigError
from ratioscope.record import BETWEEN, GAPS

from .definitions.registry import METRICS
from .dialects import NAMES, dialect
from .logged_names import nearest_names
from .metric import Metric


@dataclass(frozen=True)
class Elsewhere:
    """A trainer's own name for a metric in one gap."""

    trainer: str
    gap: str
    name: str
    note: str
    """Difference of the trainer's value from ours; empty if there is none."""


@dataclass(frozen=True)
class Card:
    """A metric and its names in other trainers."""

    metric: Metric
    elsewhere: tuple[Elsewhere, ...]


def card(name: str) -> Card:
    """The card of a metric by its name, with or without its gap (`kl_k3`, `mismatch/kl_k3`)."""
    return cards(name)[0]


def cards(name: str) -> tuple[Card, ...]:
    """The card of the metric with this name, or the cards of a family: every metric whose name begins with it (`ess`).

    The metric that has the name of a family for its title comes first. ConfigError for any other name, with those that are close.
    """
    if found := family(name):
        return tuple(Card(one, tuple(place for known, place in _elsewhere() if known == one.name)) for one in found)
    short = _short(name)
    close = nearest_names(short) or [metric.name for metric in METRICS if name[:4] in metric.name]
    near = f"close are {', '.join(close)}; " if close else ""
    raise ConfigError(f"not known: there is no metric of the name '{name}'; {near}`ratioscope explain` lists all")


def family(name: str) -> tuple[Metric, ...]:
    """The metric with this name, or every metric whose name begins with it; empty: none does."""
    short = _short(name)
    found = [metric for metric in METRICS if metric.name == short] or sorted(
        (metric for metric in METRICS if metric.name.startswith(f"{short}_")),
        key=lambda metric: metric.title.casefold() != short.casefold(),
    )
    return tuple(found)


def _short(name: str) -> str:
    """The name of a metric without its gap and the ending of its error."""
    gap, _, own = name.rpartition("/")
    return own.removesuffix("_se") if gap in ("", *GAPS) or BETWEEN in gap else name


def lines(card: Card) -> Iterator[tuple[str, str]]:
    """(heading, text) of every line of the card; the text is empty if the line does not apply."""
    metric = card.metric
    symbols = "; ".join(
        f"{gap}: x = {later} - {earlier}" for gap, (earlier, later) in GAPS.items() if gap in metric.gaps
    )
    yield "meaning", metric.meaning
    yield "formula", metric.formula
    yield "gaps", symbols
    yield "unit", "none (a pure number)" if metric.unit == "1" else metric.unit
    yield "estimator", metric.estimator
    yield "weighting", metric.weighting
    yield "direction", metric.direction
    yield "range", metric.range
    yield "uncertainty", "standard error, clustered by sequence" if metric.error else ""
    for band in metric.bands:
        yield "band", f"{_interval(band.low, band.high)}: {band.reading} ({band.source})"
    yield "missing if", metric.absent
    for place in card.elsewhere:
        yield place.trainer, f"{place.name} for {place.gap}" + (f"; {place.note}" if place.note else "")


def _interval(low: float, high: float) -> str:
    if low == float("-inf"):
        return f"below {high:g}"
    return f"from {low:g}" + ("" if high == float("inf") else f" to {high:g}")


@cache
def _elsewhere() -> tuple[tuple[str, Elsewhere], ...]:
    return tuple(
        (full.split("/", 1)[1], Elsewhere(name, full.split("/", 1)[0], theirs, dialect(name).NOTES.get(theirs, "")))
        for name in NAMES
        for theirs, full in dialect(name).CANONICAL.items()
        if full is not None
    )
