"""`ratioscope index RUN`: computes the statistics that a run lacks, on several processes or on a cluster, and keeps them."""

from contextlib import AbstractContextManager, closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.errors import ConfigError

from ...presentation.digits import count
from ..exit_codes import OK, UNREADABLE
from ..interruption import ended_in_order
from ..terminal import counting, error, first_of, print_json, say, working
from .arguments import AsJson, RunFolder, comma_separated, opened
from .corrections import of_trainer

if TYPE_CHECKING:
    from ratioscope.ingest.indexing.index import Indexed
    from ratioscope.ingest.indexing.task import Engine
    from ratioscope.ingest.jobs.correction_results import AnyCorrection

PLACES = {"all": "", "corrections": ", corrections"}
USUAL = "usual"
"""The name of the corrections that `ratioscope corrections` shows without a trainer."""


def index(
    run: RunFolder,
    workers: Annotated[int | None, typer.Option(min=1, metavar="N", help="Processes; all cores unless given.")] = None,
    engine: Annotated[
        str, typer.Option(metavar="processes|ray", help="Processes of this machine, or a Ray cluster.")
    ] = "processes",
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="The Ray cluster; that of RAY_ADDRESS, or a new one here, unless given."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="SLICE,...", help="Slices on demand too, such as token_id,group_id: see metrics --by."),
    ] = None,
    corrections: Annotated[
        str | None,
        typer.Option(
            metavar="usual|TRAINER,...",
            help="Effects of corrections too: all standard ones, or a trainer's presets, as the page shows them.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Compute the statistics that the run lacks from its token rows, so that no page has to; a second call goes on."""
    from ratioscope.ingest.indexing.index import index as make
    from ratioscope.ingest.indexing.index import keep_frames

    slices, chosen = _on_demand(by), _corrections(corrections)
    opened_run = opened(run)
    with (
        ended_in_order(),
        _opened(engine, workers, address) as machines,
        counting("computing statistics, steps") as advance,
    ):
        done = make(opened_run, machines, slices, advance, corrections=chosen)
    if not done.failed:
        with working("computing metrics"):
            keep_frames(opened_run)
    if as_json:
        failed = [{"slice": slice, "step": step, "reason": why} for (slice, step), why in done.failed.items()]
        refused = [asdict(each) for each in opened_run.quarantined]
        print_json({**asdict(done), "failed": failed, "set_aside": refused})
    else:
        _print(done, opened_run.place)
    return UNREADABLE if done.failed or done.lost else OK


def _on_demand(by: str | None) -> list[str]:
    """The slices of --by that are computed on demand; a written one is always computed."""
    from ratioscope.ingest.rows.slices import slice_named

    return [name for name in dict.fromkeys(comma_separated(by)) if slice_named(name) is not None]


def _corrections(names: str | None) -> "list[AnyCorrection]":
    """The corrections of --corrections, each once."""
    from ratioscope.ingest.jobs.correction_results import correction_text
    from ratioscope.metrics.corrections.correction import CORRECTIONS

    chosen = [
        each
        for name in comma_separated(names)
        for each in (CORRECTIONS if name == USUAL else of_trainer(name, (), None))
    ]
    return list({correction_text(each): each for each in chosen}.values())


def _opened(engine: str, workers: int | None, address: str | None) -> "AbstractContextManager[Engine]":
    if engine == "ray":
        if workers is not None:
            raise ConfigError("--workers counts processes of this machine; a Ray cluster uses all its CPUs")
        from ratioscope.ingest.indexing.ray_cluster import open_cluster

        return closing(open_cluster(address))
    if engine != "processes":
        raise ConfigError(f"--engine {engine}: wanted processes or ray")
    if address is not None:
        raise ConfigError("--address is that of a Ray cluster; add --engine ray")
    from ratioscope.ingest.indexing.processes import Processes

    return closing(Processes(workers) if workers else Processes())


def _print(done: "Indexed", run: str) -> None:
    if not done.steps:
        say("nothing to compute: the statistics of all steps are on record")
        return
    rate = done.computed / done.seconds if done.seconds else 0.0
    by = f" by {done.loops}" if done.loops else ""
    before = done.steps - done.computed - len(done.failed)
    say(
        f"computed {count(done.computed, 'step')} and {count(done.tokens, 'token')} from token rows in {done.seconds:.1f} s{by}"
        f" ({rate:.3g} steps/s); {before} of {done.steps} were there before"
    )
    if done.lost:
        error(f"{count(done.lost, 'step')} did not stay in the cache, which is full; try fewer slices with --by")
    if done.failed:
        error(f"{count(len(done.failed), 'step')} could not be computed; to try these again: ratioscope index {run}")
    failed = [f"step {step}{PLACES.get(slice, f' by {slice}')}: {why}" for (slice, step), why in done.failed.items()]
    for line in first_of(failed):
        say(line)
