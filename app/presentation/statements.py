"""The statements of the first page beside the verdict: now, worst, trend and checks, each with the page that shows it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ratioscope.metrics.grading.finding import Check, Finding, Severity

from .digits import count, first_few
from .theme import MARKS

if TYPE_CHECKING:
    from ratioscope.metrics.diagnosis.doubling import Doubling

CAUSE = ("why", "whole diagnosis", "why")


@dataclass(frozen=True)
class Statement:
    """One fact about the run, and where it can be seen."""

    name: str
    """The question it answers, in one word."""
    words: str
    page: str
    """Path of the page that shows it."""
    choices: Mapping[str, str | int] = field(default_factory=dict)
    """Choices on that page."""
    help: str = ""
    """The whole of it, for a tooltip."""


def statements(finding: Finding, growing: "Doubling | None" = None, *, has_tokens: bool = True) -> Iterator[Statement]:
    """The statements, in the order in which a reader asks. growing: the exponential that the gap follows now, if any.

    has_tokens: False for a scalar log, of which there is no diagnosis.
    """
    if finding.since_step is not None:
        now = Severity.HEALTHY if finding.now is None else finding.now
        begun = [step for step in (finding.now_since, finding.since_step) if step is not None]
        first = finding.now_since if finding.until_step is not None else min(begun, default=None)
        since = f" since step {first}" if first is not None and now > Severity.HEALTHY else ""
        yield Statement("now", f"{_graded(now)}{since}", "alerts", help="The course of every alert over the steps.")
        yield _worst(finding)
    if growing is not None:
        yield _trend(growing)
    if has_tokens:
        yield Statement(*CAUSE, help="Evidence, remedy and confirmation of each likely cause, and what is ruled out.")
    if finding.checks:
        yield _checks(finding)


def _worst(finding: Finding) -> Statement:
    first, last, peak = finding.since_step, finding.until_step, finding.peak_step
    over = "" if last is None else ", over" if last == first else f", out of bounds at steps {first} to {last}, over"
    at = f" at step {first if last == first or peak is None else peak}"
    choices = {} if finding.peak_step is None else {"step": finding.peak_step}
    words = f"{_graded(finding.severity)}{at}{over}"
    return Statement("worst", words, "samples", choices, "The sequences of the worst step.")


def _trend(growing: "Doubling") -> Statement:
    often = f"{growing.steps:.2g}" if growing.steps < 100 else f"{float(f'{growing.steps:.2g}'):,.0f}"
    words = f"doubling every {often} steps since step {growing.first}"
    about = (
        f"An exponential fits steps {growing.first} to {growing.last}: {growing.steps:.3g} ± {growing.error:.1g} steps."
    )
    return Statement("trend", words, "charts", help=about)


def _checks(finding: Finding) -> Statement:
    absent = [check for check in finding.checks if not check.steps]
    ran = f"{len(finding.checks) - len(absent)} of {count(len(finding.checks), 'check')} ran"
    return Statement("checks", f"{ran}{_named(absent)}", "alerts" if not absent else "record", help=finding.checked)


def _named(absent: list[Check]) -> str:
    """The names of checks that were not made; the tooltip names all."""
    if not absent:
        return ""
    return f"; not checked: {first_few([check.name.replace('_', ' ') for check in absent])}"


def _graded(severity: Severity) -> str:
    return f"{MARKS[severity.label]} {severity.label}"
