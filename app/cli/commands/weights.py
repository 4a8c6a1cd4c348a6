"""`ratioscope weights --engine URL`: which weights do running engines hold, and does one of them hold older ones?"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratioscope.errors import ConfigError, SourceError

from ...blocks import Block, Paragraph, text_table
from ..blocks_printed import print_blocks
from ..engine_readings import engine_key
from ..exit_codes import FINDINGS, OK
from ..terminal import note, print_json, working
from .arguments import AsJson, opened

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

    from ...checkers.answers import Checker
    from ...checkers.polls import Known, Poll, Recorder
    from ...referee.server import Server

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
KeyOption = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="A file with the servers' key; else $RATIOSCOPE_ENGINE_KEY. It is never kept."),
]
_NAMED = re.compile(r"([\w.:-]{1,60})=(?=https?://)", re.ASCII)
EVERY = 2.0
"""Seconds between two looks for a new sync."""
MOST_ENGINES = 256


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
    from ...checkers.checkpoint import checkpoint
    from ...checkers.polls import Known, Recorder, poll
    from ...checkers.references import kept

    _demand(model, run, step, every_sync)
    servers = _servers(engine, engine_key(engine_key_file))
    known = Known(
        None if model is None else checkpoint(model),
        list(map(kept, digests or ())),
        None if run is None else _newest_start(run),
    )
    asked = _asked(servers)
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


def _servers(texts: Sequence[str], key: str) -> "dict[str, Server]":
    """Replica -> server. A server without a name has its number."""
    from ...referee.server import server_at

    if len(texts) > MOST_ENGINES:
        raise ConfigError(f"{len(texts)} engines; wanted at most {MOST_ENGINES}")
    found: dict[str, Server] = {}
    for number, text in enumerate(texts):
        match = _NAMED.match(text)
        name, address = (match[1], text[match.end() :]) if match else (str(number), text)
        if name in found:
            raise ConfigError(f"two engines have the name {name}; wanted a name each: --engine NAME={address}")
        found[name] = server_at(address, key)
    return found


def _asked(servers: "dict[str, Server]") -> "list[Checker]":
    from ...checkers.answers import checkers

    with working("asking the servers what they are"):
        return checkers(servers)


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
    log = None if recorder is None else recorder.record(made)
    if as_json:
        print_json(_plain(made, log))
    else:
        print_blocks(_told(made, known, log))


def _told(made: "Poll", known: "Known", log: str | None) -> Iterator[Block]:
    from ...checkers.words import agreements, findings, left_out, pauses

    yield from (Paragraph(words, "warning") for words in findings(made))
    yield from (Paragraph(words, "" if made.has_findings else "lead") for words in agreements(made, known))
    yield from (Paragraph(words) for words in left_out(made))
    rows = [[one.replica, one.by, str(len(one.checksums)), f"{one.seconds:.3g}"] for one in made.held]
    yield text_table("replicas", ("replica", "checksums by", "tensors", "seconds"), rows)
    yield from (Paragraph(words, "muted") for words in pauses(made))
    yield Paragraph("nothing is recorded: no --run" if log is None else f"recorded at step {made.at.step}", "muted")


def _plain(made: "Poll", log: str | None) -> dict[str, Any]:
    from ...checkers.words import findings, left_out

    arrivals = {one.replica: one for one in made.found}
    return {
        "step": made.at.step,
        "version": made.at.version,
        "findings": list(findings(made)),
        "not_compared": list(left_out(made)),
        "recorded": log,
        "replicas": [
            {
                "replica": one.replica, "engine": one.kind, "by": one.by, "seconds": one.seconds,
                "state": arrivals[one.replica].state, "differing": list(arrivals[one.replica].differing),
                "holds_version": arrivals[one.replica].holds, "why": arrivals[one.replica].why,
                "empty": list(one.empty), "checksums": dict(one.checksums),
            }
            for one in made.held
        ],
    }  # fmt: skip
