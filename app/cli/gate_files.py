"""The outcome of a gate for other programs: JUnit XML, and the step summary of a GitHub workflow. Foreign text is escaped."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.gate_outcomes import DemandOutcome, DemandState

from ..presentation.digits import count
from ..presentation.escape import markdown, visible

OPEN: Mapping[DemandState, str] = {"unmeasured": "not measured", "undecided": "undecided"}
"""State of a demand that neither passed nor failed -> its word."""
SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable in which GitHub names the file of the step summary."""
_LONGEST = 2000
"""Characters of a text in these files: a verdict takes some hundred."""


def headline(name: str, outcomes: Sequence[DemandOutcome]) -> str:
    """The number of demands that passed or failed, in one line."""
    counts = Counter(one.state for one in outcomes)
    demands = count(len(outcomes), "demand")
    left = "".join(f" ({counts[state]} {word})" for state, word in OPEN.items() if counts[state])
    if counts["failed"]:
        return f"{name}: {counts['failed']} of {demands} failed{left}"
    passed = counts["passed"] + counts["undecided"]
    return f"{name}: passed {passed} of {demands}{left}" if counts["unmeasured"] else f"{name}: passed {demands}{left}"


def junit(name: str, outcomes: Sequence[DemandOutcome]) -> bytes:
    """JUnit XML with one test case per demand. An undecided demand is a skipped test."""
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


def write_junit(path: Path, name: str, outcomes: Sequence[DemandOutcome]) -> None:
    """Writes the JUnit XML. ConfigError if the file cannot be written."""
    try:
        path.write_bytes(junit(name, outcomes))
    except OSError as error:
        raise ConfigError(f"--junit {path}: {error.strerror}; wanted a file in a folder that can be written") from error


def summary(name: str, outcomes: Sequence[DemandOutcome]) -> str:
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


def append_to_summary(path: Path, name: str, outcomes: Sequence[DemandOutcome]) -> None:
    """Appends the summary to the file, which other steps may have begun. ConfigError if it cannot be written."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(summary(name, outcomes))
    except OSError as error:
        raise ConfigError(f"--github: {path}: {error.strerror}; wanted a file that can be written") from error
