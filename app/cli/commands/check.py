"""`ratioscope check RUN`: a gate for pipelines: the verdict, bounds on metrics and forbidden causes decide the exit code."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratioscope.errors import ConfigError, SourceError

from ...presentation.digits import count
from ...presentation.escape import markdown, visible
from ..exit_codes import FINDINGS, OK, UNMEASURED
from ..terminal import print_json, say, working
from .arguments import AsJson, BaselineName, RulesFile, RunFolder, floor_named, opened, severity_of

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.gate_outcomes import DemandOutcome, DemandState
    from ratioscope.ingest.run import Run
    from ratioscope.metrics.grading.gate import Gate

OPEN: "Mapping[DemandState, str]" = {"unmeasured": "not measured", "undecided": "undecided"}
"""State of a demand that neither passed nor failed -> its word."""
SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable in which GitHub names the file of the step summary."""
_LONGEST = 2000
"""Characters of a text in these files: a verdict takes some hundred."""
STYLES = {"failed": "act", "unmeasured": "partly measured", "undecided": "watch", "passed": "healthy"}
"""State of an outcome -> the severity whose colour it has, in the order of printing."""

FailOnOption = Annotated[
    str | None,
    typer.Option(
        metavar="watch|act", help="Fail if the verdict is this severe or worse; act unless a limits file has another."
    ),
]
LimitsFileOption = Annotated[
    Path | None,
    typer.Option("--limits", metavar="FILE.toml", help="Bounds on metrics, and causes that must not be likely."),
]
ExactOption = Annotated[
    bool, typer.Option("--exact", help="Demand that both log-probs of every token are equal to the last bit.")
]
AllowUnmeasuredOption = Annotated[
    bool, typer.Option("--allow-unmeasured", help="Exit 0, not 4, if the gap was not measured, or only in part.")
]
JUnitOption = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write the outcomes as JUnit XML.")]
GitHubOption = Annotated[
    bool, typer.Option("--github", help="Append the outcomes to the step summary of a GitHub workflow, as Markdown.")
]


def check(
    run: RunFolder,
    fail_on: FailOnOption = None,
    limits: LimitsFileOption = None,
    exact: ExactOption = False,
    junit: JUnitOption = None,
    github: GitHubOption = False,
    rules: RulesFile = None,
    baseline: BaselineName = None,
    allow_unmeasured: AllowUnmeasuredOption = False,
    as_json: AsJson = False,
) -> int:
    """Test a run against bounds: exit 0 if all pass, 1 if one fails, 2 wrong bounds, 3 unreadable, 4 not measured.

    A bound compares the value less two standard errors, so that chance alone fails nothing. A metric that a bound names
    and the run lacks fails, unless the bound is optional. docs/gates.md describes the limits file.
    """
    from ratioscope.ingest.analysis.gate_outcomes import outcomes

    from ...export.whole_file import demand_outside_runs
    from ...referee.floor_of_run import against_floor

    floor = floor_named(baseline)
    gate = _gate(limits, fail_on, exact=exact)
    summary = summary_path() if github else None
    if junit is not None:
        demand_outside_runs(junit, "--junit")
    opened_run = opened(run, rules)
    with working(f"checking {opened_run.name}"):
        results = outcomes(opened_run, gate)
        if allow_unmeasured:
            results = tuple(replace(one, state="undecided") if one.state == "unmeasured" else one for one in results)
        beside = against_floor(opened_run, floor, "") if floor else None
    states = {outcome.state for outcome in results}
    code = FINDINGS if "failed" in states else UNMEASURED if "unmeasured" in states else OK
    if junit is not None:
        write_junit(junit, opened_run.name, results)
    if summary is not None:
        append_to_summary(summary, opened_run.name, results)
    if as_json:
        plain = {"name": opened_run.name, "passed": code == OK, "outcomes": [asdict(outcome) for outcome in results]}
        plain |= {"baseline": beside} if beside else {}
        print_json(plain | ({"exact": _certificate(opened_run)} if gate.exact else {}))
    else:
        order = list(STYLES)
        worst = min((outcome.state for outcome in results), key=order.index, default="passed")
        say(headline(opened_run.name, results), "healthy" if worst == "undecided" else STYLES[worst])
        for one in sorted(results, key=lambda outcome: order.index(outcome.state)):
            say(f"  {one.state:<9}  {one.name}: {one.found} (wanted {one.wanted})", STYLES[one.state])
        if beside:
            say(beside)
    return code


def _certificate(run: "Run") -> dict[str, Any] | None:
    """The certificate of exactness by step; None without token rows."""
    from ratioscope.ingest.analysis.exactness import exactness_of, plain_exactness

    try:
        return plain_exactness(exactness_of(run))
    except SourceError:
        return None


def _gate(limits: Path | None, fail_on: str | None, *, exact: bool) -> "Gate":
    from ratioscope.metrics.diagnosis.catalogue import CAUSE
    from ratioscope.metrics.grading.gate import Gate, gate_of
    from ratioscope.toml_file import tables_of_file

    severity = severity_of(fail_on)
    gate = Gate() if limits is None else gate_of(tables_of_file(limits), tuple(CAUSE), str(limits))
    chosen = gate if severity is None else replace(gate, verdict=severity)
    chosen = replace(chosen, exact=True) if exact else chosen
    if (
        chosen.verdict is None
        and not chosen.exact
        and not chosen.bounds
        and "fail" not in (chosen.causes or {}).values()
    ):
        raise ConfigError(f'{limits} demands nothing; wanted a bound, a cause = "fail", or verdict = "act"')
    return chosen


def headline(name: str, outcomes: "Sequence[DemandOutcome]") -> str:
    """The number of demands that passed or failed, in one line."""
    counts = Counter(one.state for one in outcomes)
    demands = count(len(outcomes), "demand")
    left = "".join(f" ({counts[state]} {word})" for state, word in OPEN.items() if counts[state])
    if counts["failed"]:
        return f"{name}: {counts['failed']} of {demands} failed{left}"
    passed = counts["passed"] + counts["undecided"]
    return f"{name}: passed {passed} of {demands}{left}" if counts["unmeasured"] else f"{name}: passed {demands}{left}"


def junit(name: str, outcomes: "Sequence[DemandOutcome]") -> bytes:
    """JUnit XML with one test case per demand. An undecided demand is a skipped test."""
    from xml.etree import ElementTree

    numbers = {
        "tests": len(outcomes),
        "failures": sum(outcome.state in ("failed", "unmeasured") for outcome in outcomes),
        "errors": 0,
        "skipped": sum(outcome.state == "undecided" for outcome in outcomes),
    }
    counted = {key: str(number) for key, number in numbers.items()}
    root = ElementTree.Element("testsuites", counted)
    suite = ElementTree.SubElement(root, "testsuite", {"name": f"ratioscope check {visible(name, 200)}", **counted})
    for outcome in outcomes:
        named = f"{outcome.name} {outcome.wanted}"
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": visible(name, 200), "name": visible(named, 200), "time": "0"}
        )
        words = visible(outcome.found, _LONGEST)
        if outcome.state in ("failed", "unmeasured"):
            ElementTree.SubElement(case, "failure", {"message": words}).text = f"found {words}; wanted {outcome.wanted}"
        elif outcome.state == "undecided":
            ElementTree.SubElement(case, "skipped", {"message": words})
        else:
            ElementTree.SubElement(case, "system-out").text = words
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def write_junit(path: Path, name: str, outcomes: "Sequence[DemandOutcome]") -> None:
    """Writes the JUnit XML. ConfigError if the file cannot be written."""
    try:
        path.write_bytes(junit(name, outcomes))
    except OSError as error:
        raise ConfigError(f"--junit {path}: {error.strerror}; wanted a file in a folder that can be written") from error


def summary(name: str, outcomes: "Sequence[DemandOutcome]") -> str:
    """A heading and a table in Markdown; failed demands come first."""
    lines = [f"### ratioscope check: {markdown(headline(name, outcomes), 300)}", ""]
    lines += ["| outcome | demand | found | wanted |", "| --- | --- | --- | --- |"]
    for outcome in sorted(outcomes, key=lambda outcome: outcome.state != "failed"):
        cells = (outcome.state, outcome.name, outcome.found, outcome.wanted)
        lines.append(f"| {' | '.join(markdown(cell, _LONGEST) for cell in cells)} |")
    return "\n".join(lines) + "\n\n"


def summary_path() -> Path:
    """The file of the step summary; ConfigError outside a GitHub workflow."""
    named = os.environ.get(SUMMARY)
    if not named:
        raise ConfigError(f"--github: {SUMMARY} is not set; wanted a step of a GitHub workflow, which sets it")
    return Path(named)


def append_to_summary(path: Path, name: str, outcomes: "Sequence[DemandOutcome]") -> None:
    """Appends the summary to the file, which other steps may have begun. ConfigError if it cannot be written."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(summary(name, outcomes))
    except OSError as error:
        raise ConfigError(f"--github: {path}: {error.strerror}; wanted a file that can be written") from error
