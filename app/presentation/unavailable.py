"""The metrics that a run has no value of, by the reason: one wording for the page Health and for `ratioscope info`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

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
