"""A Finding: a graded statement about a run, with its evidence, what it means, what to try next, and what was not checked."""

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
class Check:
    """What a verdict rests on: a signal, a gap, or staleness. steps: on which it could be looked at; none, because `absent`."""

    name: str
    steps: int
    absent: str = ""


@dataclass(frozen=True)
class Finding:
    """One statement. signal, gap: which grade decided. since_step, until_step: the episode of its worst reading, which was at
    peak_step; until_step is None as long as it is not over. now: the worst grade of the newest steps, since now_since and by the
    signal of now_title. checks: all that there are.
    """

    severity: Severity
    title: str
    signal: str
    gap: str
    since_step: int | None
    confidence: Confidence
    evidence: str
    meaning: str
    remedy: str
    until_step: int | None = None
    peak_step: int | None = None
    now: Severity | None = None
    now_since: int | None = None
    now_title: str = ""
    checks: tuple[Check, ...] = ()

    @property
    def when(self) -> str:
        """Since when, and whether it is over; empty for a healthy run."""
        if self.since_step is None or self.severity == Severity.HEALTHY:
            return ""
        if self.until_step is None:
            lower = f"; now {self.now.label}" if self.now is not None and self.now < self.severity else ""
            return f"since step {self.since_step}{lower}"
        steps = f"steps {self.since_step} to {self.until_step}"
        over = f"step {self.since_step}" if self.since_step == self.until_step else steps
        other = "" if self.now_title == self.title else f": {self.now_title}"
        since = "" if self.now_since is None else f" since step {self.now_since}{other}"
        return f"{over}, over" + ("" if self.now is None else f"; now {self.now.label}{since}")

    @property
    def checked(self) -> str:
        """What was checked, and what could not be and why, in sentences; empty where nothing is known of it."""
        ran = [check for check in self.checks if check.steps]
        if not self.checks:
            return ""
        most = max((check.steps for check in ran), default=0)
        few = " · ".join(f"{check.name} on {check.steps} of {most} steps" for check in ran if check.steps < most)
        absent = " · ".join(f"{check.name}, {check.absent}" for check in self.checks if not check.steps)
        return (
            f"{len(ran)} of {len(self.checks)} checks ran."
            + (f" Checked in part: {few}." if few else "")
            + (f" Not checked: {absent}." if absent else "")
        )

    @property
    def sentence(self) -> str:
        """The verdict in one line: severity, cause, since when, how sure, and what it does not rest on."""
        head = ", ".join(part for part in (self.title, self.when) if part)
        rest = " ".join(part for part in (self.evidence, self.checked) if part)
        return f"{self.severity.label}: {head} ({self.confidence} confidence). {rest}"
