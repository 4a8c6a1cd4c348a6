"""`ratioscope info RUN`: the content of a run, its size, its writers and its missing parts, on one screen."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ratioscope.errors import RatioscopeError
from ratioscope.layout import NOTE

from ...presentation.digits import count, size_on_disk
from ..next_steps import after_info, print_next
from ..terminal import print_json, print_pairs, say
from .arguments import AsJson, BaselineName, RulesFile, RunFolder, floor_named, opened

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.diagnosis import RunDiagnosis
    from ratioscope.ingest.run import Run

MOST_FETCHED = 64 << 20
"""Bytes of token rows that are fetched from a store for the diagnosis. A convention: some seconds."""
MOST_SHOWN = 12
"""Most lines of one kind in the terminal; --json holds all."""


def info(run: RunFolder, rules: RulesFile = None, baseline: BaselineName = None, as_json: AsJson = False) -> int:
    """Show what a run contains: steps, policies, gaps, counts, verdict, likely cause, and what is not available and why."""
    from ratioscope.ingest.analysis.diagnosis import plain_diagnosis
    from ratioscope.ingest.analysis.grades import plain_finding, verdict_of
    from ratioscope.ingest.analysis.info import info as facts_of
    from ratioscope.ingest.analysis.resolution import resolutions
    from ratioscope.ingest.analysis.weight_arrivals import plain_arrivals, weight_arrivals
    from ratioscope.metrics.diagnosis.judged import judged

    from ...presentation.run_state import state_of
    from ...referee.floor_of_run import against_floor

    floor = floor_named(baseline)
    opened_run = opened(run, rules)
    diagnosis, undiagnosed = _diagnosis(opened_run)
    verdict = judged(verdict_of(opened_run), None if diagnosis is None else diagnosis.diagnosis)
    beside = against_floor(opened_run, floor, verdict.gap or "") if floor else None
    if as_json:
        graded = {
            "state": state_of(opened_run.path).life,
            "severity": verdict.word,
            "verdict": verdict.sentence,
            "finding": plain_finding(verdict),
            "diagnosis": None if diagnosis is None else plain_diagnosis(diagnosis),
            "metrics_unavailable": _by_reason(opened_run.unavailable),
            "weights": plain_arrivals(weight_arrivals(opened_run)),
            "resolution": {policy: asdict(grid) for policy, grid in resolutions(opened_run).items()},
        }
        print_json(facts_of(opened_run) | graded | ({"baseline": beside} if beside else {}))
        return 0
    facts = facts_of(opened_run)
    say(f"{opened_run.name}: {verdict.brief}", verdict.word)
    if beside:
        say(beside)
    say(f"diagnosis: {undiagnosed if diagnosis is None else diagnosis.diagnosis.answer}")
    say()
    _print_facts(opened_run, facts, verdict.checked)
    for title, lines in _lists(opened_run, facts):
        for line in _listed(title, lines):
            say(line)
    print_next(opened_run, after_info(opened_run, is_healthy=verdict.is_healthy))
    return 0


def _lists(run: "Run", facts: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """(title, lines) of what follows the facts."""
    from ratioscope.ingest.analysis.resolution import resolution_words, resolutions
    from ratioscope.ingest.analysis.weight_arrivals import weight_arrivals

    views = [f"{name}: {reason}" for name, reason in facts["unavailable"].items() if name not in run.gaps]
    of_gaps = _by_reason({name: why for name, why in run.unavailable.items() if name.split("/")[0] in run.gaps})
    yield "not available", [*views, *(f"{_some(names)}: {reason}" for reason, names in of_gaps.items())]
    yield "files set aside", [f"{item.path}: {item.reason}" for item in run.quarantined]
    yield "not kept", [run.unkept] if run.unkept else []
    yield "stored digits", resolution_words(resolutions(run))
    yield "weights", [one.words for one in weight_arrivals(run)]
    yield "notes", [f"step {event['step']}: {event['note']}" for event in facts["events"] if event["event"] == NOTE]


def _diagnosis(run: "Run") -> "tuple[RunDiagnosis | None, str]":
    """The diagnosis of the run; None with the reason if it has none."""
    from ratioscope.ingest.analysis.diagnosis import diagnosed_gap, diagnosis_of
    from ratioscope.ingest.analysis.evidence import steps_to_read

    try:
        if run.is_remote and (to_fetch := run.bytes_to_fetch(steps_to_read(run, diagnosed_gap(run)))) > MOST_FETCHED:
            return None, (
                f"not made, because {size_on_disk(to_fetch)} of token rows would have to be fetched for it; ratioscope diagnose"
                f" {run.place} makes it"
            )
        return diagnosis_of(run), ""
    except RatioscopeError as error:
        return None, f"not available, because {error}"


def _by_reason(unavailable: Mapping[str, str]) -> dict[str, list[str]]:
    metrics: dict[str, list[str]] = {}
    for name, reason in unavailable.items():
        metrics.setdefault(reason, []).append(name)
    return metrics


def _print_facts(run: "Run", facts: Mapping[str, Any], checked: str) -> None:
    from ...pages.quality import quality, quality_facts

    events: list[str] = [event["event"] for event in facts["events"]]
    unsettled = facts["unsettled"]
    print_pairs(
        [
            ("path", facts["path"]),
            ("trainer", _trainer(facts)),
            *([("code", _code(facts))] if facts["code"] else []),
            ("machine", _machine(facts)),
            ("gaps", ", ".join(facts["gaps"]) or "none"),
            *(
                [("readings", "; ".join(_reading(name, own) for name, own in facts["readings"].items()))]
                if facts["readings"]
                else []
            ),
            *quality_facts(quality(run, run.metrics(by=("step",)))),
            ("events", ", ".join(f"{events.count(word)} {word}" for word in sorted(set(events))) or "none"),
            ("size", f"{size_on_disk(facts['bytes'])} in {count(facts['rows'], 'row')}"),
            *([("secrets, not stored", ", ".join(facts["redacted"]))] if facts["redacted"] else []),
            *([("checks", checked)] if checked else []),
            *([("still being written", f"from step {unsettled[0]} on")] if unsettled else []),
        ]
    )


def _reading(name: str, facts: Mapping[str, Any]) -> str:
    model = next((made["model"] for made in facts["made_of"] if "model" in made), None)
    odd = [f"{facts[word]} {word}" for word in ("unknown", "mismatched") if facts.get(word)]
    parts = [
        f"{count(facts['sequences'], 'sequence')} of {count(facts['steps'], 'step')}",
        *([f"by {model}"] if model else []),
        *([f"{len(facts['made_of'])} ways of making it"] if len(facts["made_of"]) > 1 else []),
        *([f"not used: {', '.join(odd)}"] if odd else []),
        *([] if "unknown" in facts else ["how its rows fit is not available, because they are on a store"]),
    ]
    return f"{name} ({', '.join(parts)})"


def _trainer(facts: Mapping[str, Any]) -> str:
    versions = facts["versions"] if isinstance(facts["versions"], dict) else {}
    known = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{facts['trainer'] or 'not recorded'}{f' ({known})' if known else ''}"


def _code(facts: Mapping[str, Any]) -> str:
    known = facts["code"] if isinstance(facts["code"], dict) else {}
    return ", ".join(f"{name} at commit {commit}" for name, commit in known.items())


def _machine(facts: Mapping[str, Any]) -> str:
    known = facts["machine"] if isinstance(facts["machine"], dict) else {}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in known.items()) or "not recorded"


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield title
    yield from (f"  {line}" for line in lines[:MOST_SHOWN])
    if len(lines) > MOST_SHOWN:
        yield f"  and {len(lines) - MOST_SHOWN} more: --json"
