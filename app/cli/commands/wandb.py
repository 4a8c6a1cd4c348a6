"""`ratioscope wandb`: a run as a W&B run of its own, beside the trainer's; and what a trainer logged to W&B's own file."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.ingest.importers.wandb_log import LogDamage, entries, wandb_file

from ..blocks_printed import print_pairs, print_table
from ..terminal import print_json, say
from .arguments import AsJson, RunFolder, opened, with_attempt
from .sync import EveryOption, FollowOption, has_ended, sent_until_ended

if TYPE_CHECKING:
    from ratioscope.ingest.importers.scalars.wandb_online import Scalar


PROJECT = "ratioscope"
wandb = typer.Typer(help="Show a run in Weights & Biases, or read what a trainer logged there.", no_args_is_help=True)

ProjectOption = Annotated[str | None, typer.Option(help="W&B project; by default WANDB_PROJECT, else ratioscope.")]
EntityOption = Annotated[str | None, typer.Option(help="W&B user or team; by default your own.")]
GroupOption = Annotated[str | None, typer.Option(help="W&B group: name the group, or the id, of the trainer's run.")]
OfflineOption = Annotated[
    bool,
    typer.Option("--offline", help="Send nothing: write a folder that `wandb sync` uploads later. Needs no login."),
]
NoTextOption = Annotated[bool, typer.Option("--no-text", help="Leave prompts and token texts out.")]


@wandb.command()
@with_attempt
def sync(
    run: RunFolder,
    follow: FollowOption = False,
    every: EveryOption = 5.0,
    project: ProjectOption = None,
    entity: EntityOption = None,
    group: GroupOption = None,
    offline: OfflineOption = False,
    no_text: NoTextOption = False,
) -> None:
    """Send metrics, alerts, the worst sequences and the report of a run to W&B.

    They become a W&B run of job type ratioscope with charts over ratioscope/step. A second sync sends what is new. The report and
    the table of worst sequences hold the texts of ten sequences unless --no-text is given.
    """
    from ...export.wandb.session import demand_extras, session
    from ...export.wandb.sync import Sync
    from ...export.wandb.sync_record import Destination, sync_record, wandb_id
    from ...presentation.privacy import scrubbed_text
    from ...presentation.without_texts import outgoing

    demand_extras()
    offline = offline or os.environ.get("WANDB_MODE") in ("offline", "dryrun")
    target = Destination(project or os.environ.get("WANDB_PROJECT") or PROJECT, entity, group, offline, not no_text)
    opened_run = opened(run)
    run_id = wandb_id(opened_run)
    with sync_record(target, run_id) as (record, file):
        leaving = outgoing(opened_run, text=target.text)
        work = Sync(leaving, target, record, file)
        ended = has_ended(opened_run)
        if not (work.report_is_due or work.state_is_due or work.rows(ended)) and (ended or not follow):
            say(f"nothing new since the last sync to {run_id}")
            return
        name = scrubbed_text(leaving.name)
        config = {"run": name, "trainer": scrubbed_text(str(leaving.info.get("trainer")))}
        with session(target, run_id, name, config) as open_session:
            work.begin(open_session)
            rows = sent_until_ended(opened_run, partial(work.send, open_session), every if follow else None)
            if work.report_is_due:
                work.report(open_session)
            folder, link = open_session.folder, open_session.link
    say(f"sent {rows} steps and the report as {run_id}" + (f": {link}" if link else ""))
    if offline:
        say(f"nothing has left this machine; to upload it: wandb sync {folder}")


LogFileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A file run-ID.wandb, or its folder, such as wandb/offline-run-DATE-ID.")
]
DialectOption = Annotated[
    str | None, typer.Option("--dialect", metavar="TRAINER", help="The trainer that wrote it; else by its names.")
]
EveryNameOption = Annotated[bool, typer.Option("--all", help="Every number, not only those on the gap.")]


@wandb.command()
def show(
    file: LogFileArgument, dialect: DialectOption = None, every_name: EveryNameOption = False, as_json: AsJson = False
) -> None:
    """Print what a trainer logged on the gap to W&B's own file, beside the metrics of ours that it comes close to.

    Neither W&B nor a network is needed. Values stay under the trainer's names, because their definitions are the trainer's.
    """
    from ratioscope.ingest.importers.scalars.agreement import trainer_named
    from ratioscope.ingest.importers.scalars.wandb_online import likely_dialect, scalars
    from ratioscope.metrics.logged_names import facts_of, logged_name

    health = LogDamage()
    numbers = scalars(entries(wandb_file(file), health))
    name = trainer_named(dialect)[0] or likely_dialect(numbers)
    rows = {} if name is None else {key: row for key in numbers if (row := logged_name(name, key)) is not None}
    near = {key: row.near for key, row in rows.items() if row.near}
    shown = {key: numbers[key] for key in sorted(numbers) if every_name or key in near}
    if as_json:
        listed = [{"name": key, "canonical": near.get(key), **vars(scalar)} for key, scalar in shown.items()]
        print_json({"dialect": name, "damaged": health.damaged, "torn": health.torn, "numbers": listed})
        return
    if health.damaged:
        say(f"{health.damaged} damaged parts of the file were skipped; their rows are missing", "watch")
    if health.torn:
        say("the file ends within a record: it was cut, or it is still being written", "dim")
    if rows:
        say(f"names and definitions of {min(facts_of(row)[0][1] for row in rows.values())}", "bold")
    _print_scalars(shown, near, {key: row.note for key, row in rows.items() if row.note})
    if len(shown) < len(numbers):
        say(f"{len(numbers) - len(shown)} other numbers of the log: --all", "dim")


def _print_scalars(shown: "Mapping[str, Scalar]", canonical: Mapping[str, str], notes: Mapping[str, str]) -> None:
    rows = [
        [key, str(scalar.rows), str(scalar.not_finite), f"{scalar.last:.6g}", canonical.get(key) or ""]
        for key, scalar in shown.items()
    ]
    print_table(["logged as", "rows", "not finite", "last value", "comes close to"], rows)
    if differing := [(key, notes[key]) for key in shown if key in notes]:
        say("how theirs differs", "bold")
        print_pairs(differing)
