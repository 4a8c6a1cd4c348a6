"""`ratioscope info RUN`: what was recorded, how much, by whom, and what is missing, in one screen."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .arguments import AsJson, RunFolder, opened

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

MOST_SHOWN = 12
"""Reasons and files named in the terminal; --json holds all."""


def info(run: RunFolder, as_json: AsJson = False) -> int:
    """Say what a run holds: steps, policies, gaps, counts, the verdict, and what is not available, because …"""
    from ..terminal import print_json

    found = opened(run)
    facts = facts_of(found)
    if as_json:
        print_json(facts | {"quality": asdict(facts["quality"])})
    else:
        _print(facts)
    return 0


def facts_of(run: "Run") -> dict[str, Any]:
    """Everything `info` says, as data. not_available: reason -> the metrics it takes away."""
    from ..grading import step_grades, verdict_of
    from ..report.quality import quality

    steps = run.metrics(by=("step",))
    found = verdict_of(step_grades(run))
    absent: dict[str, list[str]] = {}
    for name, reason in run.unavailable.items():
        absent.setdefault(reason, []).append(name)
    return {
        "name": run.name,
        "path": str(run.path),
        "digest": run.digest,
        "trainer": run.info.get("trainer"),
        "versions": run.info.get("versions"),
        "gaps": list(run.gaps),
        "severity": found.severity.label,
        "verdict": found.sentence,
        "quality": quality(run, steps),
        "writers": run.writers.to_dicts(),
        "events": _counts(run.events["event"].to_list()),
        "not_available": absent,
    }


def _counts(words: list[str]) -> dict[str, int]:
    return {word: words.count(word) for word in sorted(set(words))}


def _print(facts: dict[str, Any]) -> None:
    from ..report.shown import quality_facts
    from ..terminal import print_pairs, say

    say(f"{facts['name']}: {facts['verdict']}", facts["severity"])
    say()
    print_pairs(
        [
            ("path", facts["path"]),
            ("trainer", _trainer(facts)),
            ("gaps", ", ".join(facts["gaps"]) or "none: no step has the logprobs of two policies"),
            *quality_facts(facts["quality"]),
            ("events", ", ".join(f"{count} {word}" for word, count in facts["events"].items()) or "none"),
        ]
    )
    for line in _missing(facts):
        say(line)


def _trainer(facts: dict[str, Any]) -> str:
    versions = facts["versions"] if isinstance(facts["versions"], dict) else {}
    known = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{facts['trainer'] or 'not recorded'}{f' ({known})' if known else ''}"


def _missing(facts: dict[str, Any]) -> Iterator[str]:
    """What is not there, and why: metrics by reason, then files that were set aside."""
    reasons = facts["not_available"]
    if reasons:
        yield ""
        yield "not available"
    for reason, names in list(reasons.items())[:MOST_SHOWN]:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"  {', '.join(names[:3])}{more}: {reason}"
    aside = facts["quality"].quarantined
    if aside:
        yield ""
        yield "files set aside"
    yield from (f"  {item.path}: {item.reason}" for item in aside[:MOST_SHOWN])
    if max(len(reasons), len(aside)) > MOST_SHOWN:
        yield "  ... (all of it: --json)"
