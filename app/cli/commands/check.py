"""`ratioscope check RUN`: a gate for pipelines: the verdict, bounds on metrics and forbidden causes decide the exit code."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratioscope.errors import ConfigError, SourceError

from ..exit_codes import FINDINGS, OK, UNMEASURED
from ..terminal import print_json, say, working
from .arguments import AsJson, BaselineName, RulesFile, RunFolder, floor_named, opened, severity_of

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.gate_outcomes import DemandOutcome
    from ratioscope.ingest.run import Run
    from ratioscope.metrics.grading.gate import Gate

STYLES = {"failed": "act", "unmeasured": "partly measured", "undecided": "watch", "passed": "healthy"}
"""State of an outcome -> the severity whose colour it has, in the order of printing."""

FailOnOption = Annotated[
    str | None,
    typer.Option(
        metavar="watch|act",
        help="Fail if the verdict is this severe or worse; act unless a limits file has another.",
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
    from ..gate_files import append_to_summary, summary_path, write_junit

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
        _print(opened_run.name, results)
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


def _print(name: str, results: "Sequence[DemandOutcome]") -> None:
    from ..gate_files import headline

    worst = min((outcome.state for outcome in results), key=list(STYLES).index, default="passed")
    say(headline(name, results), "healthy" if worst == "undecided" else STYLES[worst])
    for outcome in sorted(results, key=lambda outcome: list(STYLES).index(outcome.state)):
        say(f"  {outcome.state:<9}  {outcome.name}: {outcome.found} (wanted {outcome.wanted})", STYLES[outcome.state])
