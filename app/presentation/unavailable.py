"""The metrics that a run has no value of, by the reason: one wording for the page Record and for `ratioscope info`.

Hidden and lost data in words, the same for dashboard, report and command line.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ratioscope.ingest.commits.attempts import Shadow
from ratioscope.ingest.commits.conservation import UNSEEN
from ratioscope.metrics.definitions.registry import BY_NAME

from .digits import count

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

NAMED, FIRST = 8, 3
"""The most metrics of a gap that are all named, and those that are named of more."""


def by_reason(unavailable: Mapping[str, str]) -> dict[str, list[str]]:
    """Reason -> metrics. unavailable: metric -> reason."""
    metrics: dict[str, list[str]] = {}
    for name, reason in unavailable.items():
        metrics.setdefault(reason, []).append(name)
    return metrics


def unavailable_rows(run: "Run") -> list[tuple[str, str]]:
    """Each reason ("because ...") and the metrics that it makes unavailable, in words; the reason of most metrics first."""
    ordered = sorted(by_reason(dict(sorted(run.unavailable.items()))).items(), key=lambda part: -len(part[1]))
    return [(reason, _named(metrics)) for reason, metrics in ordered]


def _named(metrics: list[str]) -> str:
    """The metrics in words, by gap; where a gap lacks many, their number and the first of them."""
    of_gap: dict[str, list[str]] = {}
    for metric in metrics:
        gap, _, name = metric.partition("/")
        of_gap.setdefault(gap, []).append(BY_NAME[name].title if name in BY_NAME else name)
    return " · ".join(
        f"{gap}: {'; '.join(titles)}"
        if len(titles) <= NAMED
        else f"{gap}: {count(len(titles), 'metric')}, such as {'; '.join(titles[:FIRST])}"
        for gap, titles in of_gap.items()
    )


def replaced(old: Shadow) -> tuple[str, str]:
    """(which steps, why they are not shown)."""
    steps = (
        f"step {old.first_step}" if old.steps == 1 else f"{old.steps} steps from {old.first_step} to {old.last_step}"
    )
    rows = f", {count(old.rows, 'row')}" if old.rows else ""
    who = f"attempt {old.attempt}" if old.rank is None else f"rank {old.rank}"
    return f"{steps} of {who}{rows}", _why_hidden(old)


def _why_hidden(old: Shadow) -> str:
    if old.rank is None:
        again = f"written again by attempt {old.by}"
        apart = f"attempt {old.by} began again at step {old.since}; --attempt {old.attempt} shows them"
        return again if old.is_again else apart
    if old.is_again:
        return "written again by this rank, which was started again by itself"
    return f"this rank was started again by itself, at step {old.since}"


def lost_words(lost: int, gone: int, silent: int) -> str:
    """The sequences lost by writers that ended without closing; those after their last log line were not counted."""
    words = (
        f"at least {count(lost, 'sequence')}"
        if lost
        else "not known, because nothing was counted after the last commit"
    )
    ended = [f"{count(gone, 'writer')} ended without closing"] if gone else []
    ended += [f"{count(silent, 'writer')} silent for an hour"] if silent else []
    who = " and ".join(ended) or "an earlier writer ended without closing"
    return f"{words}: {who}; tokens {UNSEEN}"
