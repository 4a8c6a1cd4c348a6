"""The report as Markdown, for pull requests and job summaries: the same numbers in tables, small charts as block characters."""

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from ratioscope.metrics.grading.finding import LABELS

from ..presentation.escape import markdown as escaped
from ..presentation.escape import visible
from ..presentation.theme import MARKS
from . import texts
from .data import ReportData
from .sparkline import blocks

MOST_SPELLS = 20
MOST_EVENTS = 30
WORST_TOKENS = 5
TEXT_SHOWN = 300
RIBBON = 60
CODE = " " * 6
"""Indentation of a line of code in an item of a list. No text of the line can end the code."""


def markdown_report(data: ReportData) -> str:
    """The document; foreign text in it is escaped, so that it cannot be markup, a mention or a link."""
    sections = (
        _head, _comparison, _side, _diagnosis, _scorecard, _timeline, _places, _sequences, _quality, _reproduction,
    )  # fmt: skip
    return "\n".join(line for section in sections for line in section(data)).rstrip() + "\n"


def _head(data: ReportData) -> Iterator[str]:
    head = data.diagnosis.head
    yield f"# {MARKS[head.severity]} {head.severity}: {escaped(head.title)}"
    yield ""
    yield from (f"- **{escaped(label)}**: {escaped(value)}" for label, value in head.facts)
    yield ""
    yield f"Run **{escaped(data.name)}** · " + " · ".join(f"{k}: {escaped(v)}" for k, v in texts.summary(data))
    yield ""


def _comparison(data: ReportData) -> Iterator[str]:
    baseline = data.baseline
    if baseline is None:
        return
    yield from (f"## Compared with {escaped(baseline.name)}", "")
    yield from (f"- **{label}**: {escaped(value)}" for label, value in baseline.facts)
    yield ""
    yield from _table(baseline.header, baseline.rows)
    yield ""
    if baseline.settings:
        yield from _table(("setting that differs", "known-good", "this run"), baseline.settings)
    else:
        yield "No setting on record differs."
    yield ""


def _side(data: ReportData) -> Iterator[str]:
    if data.side is not None:
        yield from ("## Which side is off?", "", f"**{escaped(data.side.sentence)}**", "")
        yield from (f"- **{escaped(label)}**: {escaped(value)}" for label, value in data.side.facts)
        yield ""


def _diagnosis(data: ReportData) -> Iterator[str]:
    yield from ("## Diagnosis", "")
    for cause in data.diagnosis.causes:
        yield from (f"**{escaped(cause.title)}**", "")
        yield from (f"- **{label}**: {escaped(value)}" for label, value in cause.facts)
        if cause.settings:
            yield from ("- **settings**:", "", *(f"{CODE}{visible(line)}" for line in cause.settings))
        yield ""
    yield from (f"- **{label}**: {escaped(value)}" for label, value in texts.verdict_facts(data))
    if data.diagnosis.excluded:
        yield f"- **ruled out**: {escaped('; '.join(title for title, _ in data.diagnosis.excluded))}"
    yield ""


def _scorecard(data: ReportData) -> Iterator[str]:
    yield "## Scorecard"
    for gap in (*data.gaps, *data.reading_gaps):
        rows = texts.headlines([score for score in data.scores if score.gap == gap])
        yield from ("", f"### {gap}", "")
        yield from _table(
            ("metric", "whole run", "over steps", "worst step", "limits", "N"),
            [
                (
                    f"{texts.title_of(score.name)} ({score.name})",
                    f"{texts.value_of(score)}{f', {score.reading}' if score.reading else ''}",
                    "" if score.absent else blocks(score.series),
                    texts.worst_of(score),
                    ", ".join(score.limits),
                    texts.size_of(score),
                )
                for score in rows
            ],
        )
        if gap in data.digits:
            yield from ("", escaped(data.digits[gap]))
    yield ""


def _timeline(data: ReportData) -> Iterator[str]:
    yield from ("## Timeline", "")
    if len(data.grades):
        yield f"Severity over {len(data.grades)} steps, the worst of each part: `{_ribbon(data.grades)}`"
        yield ""
    spells = data.spells[:MOST_SPELLS]
    rows = [
        (_steps(s.first, s.last), f"{MARKS[s.severity]} {s.severity}", f"{s.reading} (step {s.peak})") for s in spells
    ]
    yield from _table(("steps", "severity", "worst reading"), rows)
    if len(data.spells) > MOST_SPELLS:
        yield from ("", f"The first {MOST_SPELLS} of {len(data.spells)} periods of equal severity.")
    if len(data.events):
        yield from ("", "Events:", "")
        shown_events = data.events.head(MOST_EVENTS).iter_rows(named=True)
        yield from (
            f"- step {row['step']}: {escaped(row['event'])} {escaped(row['note'] or '')}" for row in shown_events
        )
    yield ""


def _ribbon(grades: pl.DataFrame) -> str:
    """One block character per part of the steps: low is healthy, half is watch, full is act."""
    ranks = (
        grades.sort("step")["severity"].cast(pl.String).replace_strict({word: rank for rank, word in enumerate(LABELS)})
    )
    parts = min(len(ranks), RIBBON)
    ends = [round(part * len(ranks) / parts) for part in range(parts + 1)]
    return "".join("▁▄█"[max(ranks[first:last])] for first, last in zip(ends, ends[1:], strict=False))


def _steps(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _places(data: ReportData) -> Iterator[str]:
    yield f"## Where {data.gap} happens"
    for place in data.places:
        yield from ("", f"### {escaped(place.title)}", "")
        if place.absent:
            yield f"Not available, {escaped(place.absent)}."
        else:
            yield from _table(*texts.place_table(place))
            if place.left_out:
                yield from ("", f"Values that are missing are not available, {escaped(place.left_out)}.")
    yield ""


def _sequences(data: ReportData) -> Iterator[str]:
    yield from ("## Worst sequences", "")
    if not data.worst:
        yield f"Not available, because no token rows of {data.gap} are on record."
    for number, item in enumerate(data.worst, start=1):
        yield f"{number}. **{escaped(item.sequence_id)}** {escaped(texts.sequence_facts(item))}"
        worst = texts.worst_tokens(item, data.gap, WORST_TOKENS)
        yield f"   <br>worst tokens: {', '.join(escaped(token) for token in worst)}" if worst else ""
        text = texts.text_of(item)
        if text:
            yield f"   <br>{escaped(text, TEXT_SHOWN)}"
    yield ""


def _quality(data: ReportData) -> Iterator[str]:
    yield from ("## Data quality", "")
    yield from (f"- {label}: {escaped(value)}" for label, value in texts.quality_facts(data.quality))
    yield from (f"- set aside: {escaped(item.path)}: {escaped(item.reason)}" for item in data.quality.quarantined)
    yield from (f"- {item.view}: not available, {escaped(item.reason)}" for item in data.quality.unrecorded)
    yield ""


def _reproduction(data: ReportData) -> Iterator[str]:
    yield from ("## Reproduction", "")
    yield from (f"- {label}: {escaped(value)}" for label, value in texts.reproduction_facts(data.reproduction))
    yield ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table; the first column aligned left, the others right."""
    yield _row(header)
    yield "| --- |" + " ---: |" * (len(header) - 1)
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(escaped(cell) for cell in cells)} |"
