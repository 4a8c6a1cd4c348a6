"""What a scenario found: numbers for the page, and what should not have been."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Figures:
    """counts: name -> how many, in the order they are shown. wrong: a sentence for everything that broke a promise."""

    title: str
    counts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, **counts: int) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def demand(self, holds: bool, otherwise: str) -> None:
        """Keeps the sentence if the promise does not hold."""
        if not holds:
            self.wrong.append(otherwise)
