"""`ratioscope report RUN`: one file with the problem of a run, its first step, its certainty and a remedy."""

import os
import re
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.errors import ConfigError, RatioscopeError

from ...export.whole_file import demand_free, whole_files
from ...presentation.digits import size_on_disk
from ..interruption import ended_in_order
from ..terminal import print_json, say, stages
from .arguments import (
    AsJson,
    BaselineName,
    FailOn,
    RulesFile,
    RunFolder,
    failing,
    floor_named,
    gaps_of_readings,
    opened,
    severity_of,
)

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

    from ...documents.material import Material
    from ...presentation.noise_floor import NoiseFloor

ENDINGS = (".html", ".md", ".json")
LONGEST_NAME = 80
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="The file to write or replace; its ending selects the format: .html, .md or .json. Without it: RUN-report.html in "
        "this folder, or RUN-report-2.html and so on where that is taken.",
    ),
]
InteractiveOption = Annotated[
    bool,
    typer.Option("--interactive", help="Charts to zoom and hover, drawn by plotly.js inside the file (1.5 MB more)."),
]
NoTextOption = Annotated[bool, typer.Option("--no-text", help="Leave prompts and token texts out.")]
GapOption = Annotated[
    str | None,
    typer.Option(
        metavar="mismatch|total|drift|A:B",
        help="The gap of distributions, places and worst sequences, the verdict's unless given; A:B are any two policies or"
        " readings, e.g. rollout:referee.",
    ),
]
CompareOption = Annotated[
    Path | None,
    typer.Option(
        "--compare",
        metavar="OTHER",
        help="Compare with this run: the report says how many times its gap this one has, and which settings differ."
        " Without it, with the pinned run of the folder.",
    ),
]


def report(
    run: RunFolder,
    output: OutputOption = None,
    no_text: NoTextOption = False,
    interactive: InteractiveOption = False,
    gap: GapOption = None,
    compare: CompareOption = None,
    rules: RulesFile = None,
    baseline: BaselineName = None,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> int:
    """Write a report of a run: one HTML file, or its Markdown or JSON twin.

    --json prints what was written and the verdict. The HTML file needs no network, runs no script and can be mailed or
    printed. It contains the texts of the ten worst sequences unless --no-text is given. The file appears whole or not at all.
    Only you can read it (mode 0600); use chmod to share it.
    """
    from ...documents.json import MEMBERS
    from ...documents.material import material
    from ...pages.pages import PAGES
    from ...pages.reproduction import folder_name

    _refuse(output, interactive)
    severity_of(fail_on)
    floor = floor_named(baseline)
    opened_run = opened(run, rules)
    _demand_gap(opened_run, gap)
    good = None if compare is None else _other_run(compare, opened_run.path)
    if good is None and floor is None:
        good, floor = _pinned(opened_run)
    named = _name_for(folder_name(opened_run, text=not no_text))
    output, shown = (_free(named), named) if output is None else (output, Path(output.name))
    flags = (("--no-text", no_text), ("--interactive", interactive))
    options = (
        "-o",
        shown.name,
        *(flag for flag, given in flags if given),
        *(("--gap", gap) if gap else ()),
        *(() if good is None else ("--compare", folder_name(good, text=not no_text))),
        *(("--baseline", floor.name) if floor else ()),
    )
    demand_free([output], force=True)
    parts = len(MEMBERS if output.suffix == ".json" else PAGES)
    with ended_in_order(), stages("report", parts + 2) as stage:
        read = material(opened_run, text=not no_text, gap=gap, good=good, floor=floor, options=options, stage=stage)
        content = rendered(read, output.suffix, interactive).encode()
        stage("writing")
        with whole_files([output], force=True) as (file,):
            written = file.write(content)
    verdict = read.verdict
    if as_json:
        facts = {"file": str(output), "bytes": written, "severity": verdict.word, "verdict": verdict.sentence}
        print_json(facts)
    else:
        say(read.words.brief, verdict.word)
        say(f"wrote {output} ({size_on_disk(written)})")
    return failing(verdict, fail_on)


def _refuse(output: Path | None, interactive: bool) -> None:
    """ConfigError if the options cannot be served."""
    if output is None:
        return
    if output.suffix not in ENDINGS:
        raise ConfigError(
            f"-o {output}: wanted a name that ends in {', '.join(ENDINGS)}; try: -o {output.stem or 'report'}.html"
        )
    if interactive and output.suffix != ".html":
        raise ConfigError(
            f"--interactive -o {output}: wanted an .html file, because only a page has charts; try: -o {output.stem}.html"
        )


def _pinned(run: "Run") -> "tuple[Run | None, NoiseFloor | None]":
    """The run or the baseline that the folder of this one pins; neither where none can be read."""
    from ratioscope.ingest.files.reference_file import pinned_above

    from ...pages.pinning import run_path

    with suppress(RatioscopeError, OSError):
        known, folder = (None, run.path.parent) if run.is_remote else pinned_above(run.path)
        if known is not None and known.kind == "baseline":
            return None, floor_named(known.name)
        if (path := run_path(known, folder)) and Path(path).resolve() != run.path.resolve():
            return opened(Path(path), is_reference=True), None
    return None, None


def _demand_gap(run: "Run", gap: str | None) -> None:
    """ConfigError unless the run has the gap."""
    if gap is not None and not gaps_of_readings(run, [gap]) and gap not in run.gaps:
        raise ConfigError(f"--gap {gap}: {run.name} has {', '.join(run.gaps) or 'no gap'}; wanted one of these")


def _other_run(other: Path, own: Path) -> "Run":
    """The run to compare with. ConfigError if it is the run of the report."""
    good = opened(other, is_reference=True)
    if good.path.resolve() == own.resolve():
        raise ConfigError(f"--compare {good.place}: this is the run of the report; wanted another run")
    return good


def _name_for(folder: str) -> Path:
    """The name of the report of a run folder, for a run without -o."""
    safe = re.sub(r"[^\w.-]+", "-", folder).strip(".-")[:LONGEST_NAME]
    return Path(f"{safe or 'run'}-report.html")


def _free(named: Path) -> Path:
    """The name, else the first of NAME-2, NAME-3 and so on that no file has: a report is never replaced unasked."""
    if not os.path.lexists(named):
        return named
    numbered = (named.with_stem(f"{named.stem}-{number}") for number in count(2))
    return next(path for path in numbered if not os.path.lexists(path))


def rendered(read: "Material", ending: str, interactive: bool = False) -> str:
    """The report as a file with this ending of ENDINGS holds it. interactive: with charts that plotly.js draws."""
    from ...documents.json import json_report
    from ...documents.report import html_report, markdown_report

    if ending == ".html":
        return html_report(read, interactive=interactive)
    return markdown_report(read) if ending == ".md" else json_report(read)
