"""The ratios of a table, each with the range of its rounds, and those that differ from an earlier measurement."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

OUTSIDE = (0.05, 0.95)
"""The range of a ratio leaves out a tenth of the rounds; of few rounds it is the range of nearly all. Convention."""
ALLOWED = 0.01
"""Ranges so far apart, as a part of the ratio, still count as the same: sizes in bytes have no rounds. Convention."""


@dataclass(frozen=True)
class Ratio:
    """A contender against another one."""

    value: float
    """The ratio of their medians."""
    low: float
    high: float
    """The range of the ratio in single rounds; both are `value` where there is one round."""

    def is_apart(self, other: "Ratio") -> bool:
        """True if the two ranges have nothing in common."""
        return self.low > other.high * (1 + ALLOWED) or other.low > self.high * (1 + ALLOWED)

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


def ratios(table: Mapping[str, Any]) -> dict[str, Ratio]:
    """contender -> its ratio, of a table as `measured.as_json` gives it."""
    rows = {row["name"]: row["values"] for row in table["rows"]}
    against = rows[table["against"]]

    def ratio(values: Sequence[float]) -> Ratio:
        low, high = np.quantile(np.asarray(values) / np.asarray(against), OUTSIDE)
        return Ratio(median(values) / median(against), float(low), float(high))

    return {name: ratio(values) for name, values in rows.items()}


def compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, Ratio, Ratio]]:
    """(table and contender, ratio before, ratio after) of each that both measurements have, by their parts."""
    earlier = {table["name"]: ratios(table) for table in _tables(before)}
    for table in _tables(after):
        for name, ratio in ratios(table).items():
            if name != table["against"] and name in earlier.get(table["name"], ()):
                yield f"{table['title']}: {name}", earlier[table["name"]][name], ratio


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """A line with the number of ratios that agree with the earlier measurement, and a line for each that does not."""
    found = list(compared(before, after))
    apart = [f"{name} {now}, before {then}" for name, then, now in found if now.is_apart(then)]
    return [
        f"{len(found) - len(apart)} of {len(found)} ratios agree with the figures before, within their ranges",
        *apart,
    ]


def _tables(measured: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = [part for group in measured.values() if not group["is_quick"] for part in group["parts"]]
    return [part for part in parts if part["kind"] == "Table"]
