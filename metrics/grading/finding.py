"""A Finding: a graded statement about a run, with its evidence, meaning, remedy, and the checks that could not be made."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from .coverage import Coverage

Confidence = Literal["high", "medium", "low"]


class Severity(IntEnum):
    """Grade of a step, a run or a signal. The values are ordered, so that max gives the worst."""

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
    """One thing that a verdict takes into account: a signal, a gap, or staleness."""

    name: str
    steps: int
    """The number of steps on which it could be checked."""
    absent: str = ""
    """Why it could be checked on no step ("because ..."); empty otherwise."""
    gap: str = ""
    """The one gap on record in which a signal could not be checked that was checked in another; empty for any other check."""


@dataclass(frozen=True)
class Finding:
    """One graded statement."""

    severity: Severity
    title: str
    """The problem, in a few words."""
    signal: str
    """The signal that decided the severity."""
    gap: str
    since_step: int | None
    """The first step of the worst episode; None for a healthy run."""
    confidence: Confidence
    evidence: str
    """The measurements, with numbers."""
    meaning: str
    """Meaning of the numbers for the run."""
    remedy: str
    """The action to try next."""
    coverage: Coverage
    """The part that is known of the gap between the sampler and the trainer."""
    until_step: int | None = None
    """The last step of the worst episode; None while it is not over."""
    peak_step: int | None = None
    """The step with the worst value."""
    now: Severity | None = None
    """The worst grade of the newest steps."""
    now_since: int | None = None
    """The first step of the episode that is open now."""
    now_title: str = ""
    """The problem of the newest steps, in a few words."""
    checks: tuple[Check, ...] = ()
    """Every check, made or not."""
    rules: str = ""
    """Everything that the run's own rules mute or tune, in one sentence; empty if nothing."""

    @property
    def word(self) -> str:
        """The severity of a fault; without one "healthy" only if everything was measured."""
        return self.severity.label if self.severity > Severity.HEALTHY else self.coverage.word

    @property
    def is_healthy(self) -> bool:
        """True if no fault was found, and everything was measured."""
        return self.severity == Severity.HEALTHY and self.coverage.is_measured

    @property
    def when(self) -> str:
        """Since which step, and whether it is over, in words; empty for a healthy run."""
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
        """The number of checks made, those not made with the reason, and changed rules, in sentences."""
        ran = [check for check in self.checks if check.steps]
        if not self.checks:
            return self.rules
        most = max((check.steps for check in ran), default=0)
        few = " · ".join(f"{check.name} on {check.steps} of {most} steps" for check in ran if check.steps < most)
        why: dict[str, list[str]] = {}
        for check in self.checks:
            if not check.steps:
                why.setdefault(check.absent, []).append(check.name)
        absent = " · ".join(f"{_listed(names)}, {reason}" for reason, names in why.items())
        return (
            f"{len(ran)} of {len(self.checks)} checks ran."
            + (f" Checked in part: {few}." if few else "")
            + (f" Not checked: {absent}." if absent else "")
            + (f" {self.rules}" if self.rules else "")
        )

    @property
    def sentence(self) -> str:
        """The finding in one line: severity, title, since when, confidence, evidence, and the checks that could not be made."""
        return " ".join(part for part in (self.brief, self.checked) if part)

    @property
    def brief(self) -> str:
        """The sentence without the checks."""
        head = ", ".join(part for part in (self.title, self.when) if part)
        return f"{self.word}: {head} ({self.confidence} confidence). {self.measured}".rstrip()

    @property
    def measured(self) -> str:
        """The measurements, and what of the question is not known."""
        return " ".join(part for part in (self.coverage.why, self.evidence) if part)


def _listed(names: list[str]) -> str:
    """
    >>> _listed(["total"]), _listed(["total", "drift", "staleness"])
    ('total', 'total, drift and staleness')
    """
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
