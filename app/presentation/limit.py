"""A Limit: where the reading of a metric changes. Charts draw it and tables name it, so it needs neither of them."""

from dataclasses import dataclass

from .digits import digits
from .escape import plotly as escaped
from .theme import MARKS


@dataclass(frozen=True)
class Limit:
    """A value at which a metric's reading changes, the reading beyond it, and (where it is graded) that grade."""

    at: float
    reading: str
    worse: str = "above"
    """above or below: the side of `at` on which the reading holds."""
    severity: str | None = None

    def reached(self, value: float) -> bool:
        """Whether the reading holds for this value."""
        return value >= self.at if self.worse == "above" else value <= self.at

    @property
    def words(self) -> str:
        mark = f"{MARKS[self.severity]} " if self.severity else ""
        return f"{mark}{escaped(self.reading, 40)} {'≥' if self.worse == 'above' else '≤'} {digits(self.at)}"
