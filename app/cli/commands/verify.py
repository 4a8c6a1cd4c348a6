"""`ratioscope verify RUN`: compares the folder with its commit logs; names every file that differs, with a remedy."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.layout import READINGS, TOPK

from ...blocks import Block, Facts, Heading, Paragraph
from ...presentation.digits import count, size_on_disk
from ..blocks_printed import print_blocks
from ..exit_codes import FINDINGS, OK
from ..terminal import counting, print_json, say
from .arguments import AsJson, RunFolder, attempt_asked

if TYPE_CHECKING:
    from ratioscope.ingest.maintenance.verify import Verification

MOST_SHOWN = 25
"""Most troubles in the terminal; --json holds all."""

DeepOption = Annotated[
    bool, typer.Option("--deep", help="Decode every page, and recompute statistics from token rows.")
]


def verify(run: RunFolder, deep: DeepOption = False, as_json: AsJson = False) -> int:
    """Check every commit line, digest and footer of a run; exit 0 sound, 1 findings, 3 unreadable."""
    from ratioscope.ingest.maintenance.verify import verify as walk
    from ratioscope.ingest.remote.opening import place_of

    with counting(f"verifying {place_of(run)}") as progress:
        verification = walk(run, deep=deep, attempt=attempt_asked(), progress=progress)
    if as_json:
        print_json({"sound": verification.sound, **asdict(verification)})
    else:
        found = "sound" if verification.sound else count(len(verification.troubles), "finding")
        say(f"{place_of(run)}: {found}", "healthy" if verification.sound else "act")
        print_blocks(_blocks(verification))
    return OK if verification.sound else FINDINGS


def _blocks(verification: "Verification") -> Iterator[Block]:
    yield Paragraph(_counted(verification))
    if few := verification.unnumbered:
        logs = verification.logs
        which = f"{few:,} of {logs:,} commit logs {'predates' if few == 1 else 'predate'}"
        which = "its commit log predates" if few == logs == 1 else which
        yield Paragraph(f"{which} numbered lines, so a removed line cannot be detected")
    if verification.deep:
        alone = "".join(f"; {steps:,} not, because {reason}" for reason, steps in sorted(verification.alone.items()))
        compared = count(verification.compared, "step")
        yield Paragraph(f"the statistics of {compared} were recomputed from token rows{alone}")
    for trouble in verification.troubles[:MOST_SHOWN]:
        yield Heading(trouble.file)
        yield Facts([("  found", trouble.found), ("  wanted", trouble.wanted), ("  do", trouble.advice)])
    if len(verification.troubles) > MOST_SHOWN:
        yield Paragraph(f"and {len(verification.troubles) - MOST_SHOWN} more: --json")


def _counted(verification: "Verification") -> str:
    logs = f"{count(verification.logs, 'commit log')} of {count(verification.lines, 'line')}"
    condensed = verification.condensed
    short = f", {condensed} of them also in a short form, which agrees with the log" if condensed else ""
    size = f"{count(verification.rows, 'row')}, {size_on_disk(verification.bytes)}"
    return f"{logs}{short}; {committed_files(verification)} ({size})"


def committed_files(verification: "Verification") -> str:
    """The clause on the numbers of data files; a kind without a file is not named."""
    troubled = {trouble.file for trouble in verification.troubles}
    readings = verification.readings - sum(
        file.startswith((f"{READINGS}/", f"{TOPK}/")) and file.endswith(".parquet") for file in troubled
    )
    numbers = {
        "token file": verification.token_files,
        "statistics segment": verification.segments,
        "reading file": max(0, readings),
        "file of scalars": verification.scalars,
    }
    named = " and ".join(count(number, noun) for noun, number in numbers.items() if number)
    if not named:
        return "no token file or statistics segment is committed"
    return f"{named} {'is' if sum(numbers.values()) == 1 else 'are'} as committed"
