"""`ratioscope info RUN`: the content of a run, its size, its writers and its missing parts, on one screen."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ratioscope.errors import RatioscopeError
from ratioscope.layout import NOTE

from ...blocks import Block, Facts, Heading, Paragraph
from ...presentation.digits import count, size_on_disk
from ..blocks_printed import print_blocks
from ..next_steps import after_info, print_next
from ..terminal import first_of, print_json, say
from .arguments import AsJson, BaselineName, RulesFile, RunFolder, floor_named, opened

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.diagnosis import RunDiagnosis
    from ratioscope.ingest.run import Run

    from ...presentation.noise_floor import NoiseFloor

MOST_FETCHED = 64 << 20
"""Bytes of token rows that are fetched from a store for the diagnosis. A convention: some seconds."""


def info(run: RunFolder, rules: RulesFile = None, baseline: BaselineName = None, as_json: AsJson = False) -> int:
    """Show what a run contains: steps, policies, gaps, counts, verdict, likely cause, and what is not available and why."""
    from ratioscope.ingest.analysis.diagnosis import plain_diagnosis
    from ratioscope.ingest.analysis.gap_history import size_of_run
    from ratioscope.ingest.analysis.grades import plain_finding, verdict_of
    from ratioscope.ingest.analysis.gradient_bias import bias_of_run, plain_bias
    from ratioscope.ingest.analysis.info import info as facts_of
    from ratioscope.ingest.analysis.resolution import resolutions
    from ratioscope.ingest.analysis.weight_arrivals import plain_arrivals, weight_arrivals
    from ratioscope.metrics.diagnosis.judged import judged

    from ...presentation.answer import words_of
    from ...presentation.run_state import state_of
    from ...presentation.unavailable import by_reason
    from ...referee.engine_part import engine_part, plain_engine_part
    from ...referee.floor_of_run import against_floor

    floor = floor_named(baseline)
    opened_run = opened(run, rules)
    diagnosis, undiagnosed = _diagnosis(opened_run)
    verdict = judged(verdict_of(opened_run), None if diagnosis is None else diagnosis.diagnosis)
    beside = against_floor(opened_run, floor, verdict.gap or "") if floor else None
    part = None if opened_run.is_remote else engine_part(opened_run)  # its rows would have to be fetched
    if as_json:
        graded = {
            "state": state_of(opened_run.path).life,
            "severity": verdict.word,
            "verdict": verdict.sentence,
            "finding": plain_finding(verdict),
            "size": None if (size := size_of_run(opened_run)) is None else asdict(size),
            "diagnosis": None if diagnosis is None else plain_diagnosis(diagnosis),
            "metrics_unavailable": by_reason(opened_run.unavailable),
            "weights": plain_arrivals(weight_arrivals(opened_run)),
            "engine_part": part and plain_engine_part(part),
            "gradient_bias": (bias := bias_of_run(opened_run)) and plain_bias(bias),
            "resolution": {policy: asdict(grid) for policy, grid in resolutions(opened_run).items()},
        }
        known = _plain_settings(opened_run) if opened_run.no_tokens else {}
        beside_it = {"baseline": beside} if beside else {}
        print_json(facts_of(opened_run) | graded | known | beside_it | _support(opened_run))
        return 0
    say(f"{opened_run.name}: {words_of(verdict, diagnosis).brief}", verdict.word)
    told = (f"diagnosis: {undiagnosed}" if undiagnosed else "", beside, part and part.sentence)
    print_blocks(Paragraph(text) for text in told if text)
    say()
    print_blocks(_blocks(opened_run, facts_of(opened_run), verdict.checked, floor))
    print_next(opened_run, after_info(opened_run, is_healthy=verdict.is_healthy))
    return 0


def _support(run: "Run") -> dict[str, Any]:
    """The numbers of several tokens per position; empty where no gap or no such tokens are on record."""
    from ratioscope.ingest.analysis.copies import judged_first
    from ratioscope.ingest.analysis.support_numbers import plain_support, support_numbers

    gaps = judged_first(run) if run.topk_steps else ()
    found = run.once(support_numbers, gaps[0]) if gaps else None
    return {} if found is None else {"support": plain_support(found)}


def _blocks(run: "Run", facts: Mapping[str, Any], checked: str, floor: "NoiseFloor | None") -> Iterator[Block]:
    """The facts of the run, and lists of what is missing or was noted. floor: the one that --baseline names."""
    from ratioscope.ingest.analysis.gap_history import size_of_run
    from ratioscope.ingest.analysis.gradient_bias import bias_of_run
    from ratioscope.ingest.analysis.known_context import reference_of, setting_faults
    from ratioscope.ingest.analysis.resolution import resolution_words, resolutions
    from ratioscope.ingest.analysis.weight_arrivals import weight_arrivals

    from ...pages.quality import quality, quality_facts
    from ...presentation.bias_words import NAME as BIAS
    from ...presentation.bias_words import bias_words
    from ...presentation.size_words import NAME, size_words
    from ...presentation.unavailable import unavailable_rows
    from ...referee.floor_of_run import pinned_floor

    size = size_of_run(run)
    events: list[str] = [event["event"] for event in facts["events"]]
    made = {name: facts[name] if isinstance(facts[name], dict) else {} for name in ("versions", "code", "machine")}
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    rows = [
        ("path", facts["path"]),
        ("trainer", f"{facts['trainer'] or 'not recorded'}{f' ({versions})' if versions else ''}"),
        ("code", ", ".join(f"{name} at commit {commit}" for name, commit in made["code"].items())),
        (
            "machine",
            ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in made["machine"].items()) or "not recorded",
        ),
        ("gaps", ", ".join(facts["gaps"]) or "none"),
        (NAME, size_words(size, None if size is None else floor or pinned_floor(run, size.gap))),
        (BIAS, "" if (bias := bias_of_run(run)) is None else bias_words(bias)),
        ("readings", "; ".join(_reading(name, own) for name, own in facts["readings"].items())),
        ("top-k", _topk(facts["topk"]) if "topk" in facts else ""),
        ("published", reference_of(run, run.gaps[0]).words if run.no_tokens and run.gaps else ""),
        *quality_facts(quality(run, run.metrics(by=("step",)))),
        ("events", ", ".join(f"{events.count(word)} {word}" for word in sorted(set(events))) or "none"),
        ("size", f"{size_on_disk(facts['bytes'])} in {count(facts['rows'], 'row')}"),
        ("secrets, not stored", ", ".join(facts["redacted"])),
        ("checks", checked),
        ("still being written", f"from step {facts['unsettled'][0]} on" if facts["unsettled"] else ""),
    ]
    yield Facts([(name, text) for name, text in rows if text])
    views = [f"{name}: {reason}" for name, reason in facts["unavailable"].items() if name not in run.gaps]
    for title, lines in (
        ("not available", [*views, *(f"{which}: {reason}" for reason, which in unavailable_rows(run))]),
        ("files set aside", [f"{item.path}: {item.reason}" for item in run.quarantined]),
        ("not kept", [run.unkept] if run.unkept else []),
        ("stored digits", resolution_words(resolutions(run))),
        ("weights", [one.words for one in weight_arrivals(run)]),
        ("known faults of the settings", [one.words for one in setting_faults(run.info)] if run.no_tokens else []),
        ("notes", [f"step {event['step']}: {event['note']}" for event in facts["events"] if event["event"] == NOTE]),
    ):
        if lines:
            yield Heading(title)
        yield from (Paragraph(f"  {line}") for line in first_of(lines))


def _plain_settings(run: "Run") -> dict[str, Any]:
    """The faults and the published range by the settings of a run that cannot be diagnosed, named as in a diagnosis."""
    from ratioscope.ingest.analysis.known_context import plain_reference, reference_of, setting_faults

    reference = plain_reference(reference_of(run, run.gaps[0])) if run.gaps else None
    return {"known_faults": [asdict(each) for each in setting_faults(run.info)], "reference": reference}


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


def _topk(facts: Mapping[str, int]) -> str:
    """The likeliest tokens on record, in words."""
    of = f"{count(facts['rows'], 'row')} of {count(facts['steps'], 'step')}"
    return f"the likeliest tokens of {count(facts['tokens'], 'token')}, {of}, {size_on_disk(facts['bytes'])}"


def _reading(name: str, facts: Mapping[str, Any]) -> str:
    model = next((own for made in facts["made_of"] if (own := made.get("model") or made.get("engine"))), None)
    odd = [f"{facts[word]} {word}" for word in ("unknown", "mismatched") if facts.get(word)]
    parts = [
        f"{count(facts['sequences'], 'sequence')} of {count(facts['steps'], 'step')}",
        *([f"by {model}"] if model else []),
        *([f"{len(facts['made_of'])} ways of making it"] if len(facts["made_of"]) > 1 else []),
        *([f"not used: {', '.join(odd)}"] if odd else []),
        *([] if "unknown" in facts else ["how its rows fit is not available, because they are on a store"]),
    ]
    return f"{name} ({', '.join(parts)})"
