"""A Finding: a graded statement about a run, with its evidence, what it means, and what to try next."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

Confidence = Literal["high", "medium", "low"]


class Severity(IntEnum):
    """How bad it is; ordered, so that the worst wins."""

    HEALTHY = 0
    WATCH = 1
    ACT = 2

    @property
    def label(self) -> str:
        """The word in tables and figures: healthy, watch, act."""
        return self.name.lower()


LABELS = tuple(severity.label for severity in Severity)


@dataclass(frozen=True)
class Finding:
    """One statement. signal, gap: which grade decided; since_step: the first step that it holds for."""

    severity: Severity
    title: str
    signal: str
    gap: str
    since_step: int | None
    confidence: Confidence
    evidence: str
    meaning: str
    remedy: str

    @property
    def sentence(self) -> str:
        """The verdict in one line: severity, cause, since when, how sure."""
        since = (
            "" if self.since_step is None or self.severity == Severity.HEALTHY else f", since step {self.since_step}"
        )
        return f"{self.severity.label}: {self.title}{since} ({self.confidence} confidence). {self.evidence}"
