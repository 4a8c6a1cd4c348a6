"""`ratioscope weights --engine URL`: which weights do running engines hold, and does one of them hold older ones?"""

from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.errors import ConfigError, SourceError

from ..blocks_printed import print_blocks
from ..engine_options import KeyOption, engines_at, named
from ..exit_codes import FINDINGS, OK
from ..terminal import note, print_json, working
from .arguments import AsJson, opened

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

    from ...checkers.answers import Checker
    from ...checkers.polls import Known, Poll, Recorder

EnginesOption = Annotated[
    list[str],
    typer.Option(
        "--engine", metavar="[NAME=]URL", help="A running vLLM or SGLang server; repeatable, one for each replica."
    ),
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option(
        "--model", metavar="DIR", help="The checkpoint whose weights they should hold: safetensors and config.json."
    ),
]
DigestsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--digests",
        metavar="STEP=FILE",
        help="Checksums that an engine had at a step: the --json of an earlier call; repeatable.",
    ),
]
RunOption = Annotated[
    Path | None,
    typer.Option("--run", metavar="RUN", help="Compare with earlier polls of this run, and record this one there."),
]
StepOption = Annotated[
    int | None,
    typer.Option(
        min=0, max=2**63 - 1, help="The step whose weights they should hold; else that of the newest weight sync."
    ),
]
FollowOption = Annotated[
    bool, typer.Option("--every-sync", help="Go on, and read them again after each weight sync of RUN, until it ends.")
]
EVERY = 2.0
"""Seconds between two looks for a new sync."""


def weights(
    engine: EnginesOption,
    model: CheckpointOption = None,
    digests: DigestsOption = None,
    run: RunOption = None,
    step: StepOption = None,
    every_sync: FollowOption = False,
    engine_key_file: KeyOption = None,
    as_json: AsJson = False,
) -> int:
    """Ask running engines for checksums of their weights, and say which replica holds other ones, and of which step.

    Each engine computes no token while it hashes its weights. Nothing but the action `checksum` is ever sent. It ends with code 1
    if weights differ.
    """
    from ...checkers.answers import checkers
    from ...checkers.checkpoint import checkpoint
    from ...checkers.polls import Known, Recorder, poll
    from ...checkers.references import kept

    _demand(model, run, step, every_sync)
    addresses = named(engine, str)
    known = Known(
        None if model is None else checkpoint(model),
        list(map(kept, digests or ())),
        None if run is None else _newest_start(run),
    )
    asked = checkers(engines_at(addresses, engine_key_file))
    recorder = None if known.run is None else Recorder(known.run)
    if every_sync and recorder is not None:
        return _follow(asked, known, recorder, as_json=as_json)
    with working("reading the checksums"):
        made = poll(asked, known, step)
    _tell(made, known, recorder, as_json=as_json)
    return FINDINGS if made.has_findings else OK


def _demand(model: Path | None, run: Path | None, step: int | None, every_sync: bool) -> None:
    """ConfigError for options that do not fit."""
    if every_sync and (run is None or model is not None or step is not None):
        raise ConfigError(
            "--every-sync follows the syncs of a run: wanted --run RUN with it, and neither --model nor --step"
        )
    if model is not None and run is not None and step is None:
        raise ConfigError(
            "--model and --run: the step of the checkpoint is not given; wanted it, to record it: --step N"
        )


def _newest_start(path: Path) -> "Run":
    """The run as the newest start of its job recorded it: an earlier one may have come to later syncs."""
    from ratioscope.ingest.run import open_run

    run = opened(path)
    newest = max(run.attempts, default=0)
    return open_run(path, attempt=newest) if newest else run


def _follow(asked: "list[Checker]", known: "Known", recorder: "Recorder", *, as_json: bool) -> int:
    """A poll now, and one after each sync, until the run has ended; 1 if weights differed in one of them."""
    from ...checkers.polls import newest_sync, poll
    from ...presentation.run_state import state_of

    seen, has_findings, is_first = newest_sync(recorder.run), False, True
    while True:
        synced = newest_sync(recorder.run)
        if is_first or synced != seen:
            seen, is_first = synced, False
            try:
                made = poll(asked, known)
                _tell(made, known, recorder, as_json=as_json)
                has_findings |= made.has_findings
            except SourceError as error:  # the next sync may find the servers well
                note(f"not read: {error}")
        if not state_of(recorder.run.path).may_grow:
            return FINDINGS if has_findings else OK
        sleep(EVERY)
        recorder.run.refresh()


def _tell(made: "Poll", known: "Known", recorder: "Recorder | None", *, as_json: bool) -> None:
    from ...checkers.words import blocks, plain

    log = None if recorder is None else recorder.record(made)
    if as_json:
        print_json(plain(made, log))
    else:
        print_blocks(blocks(made, known, log))
