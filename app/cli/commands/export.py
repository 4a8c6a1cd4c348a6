"""`ratioscope export RUN`: a run's table by step, sequence or token as one Parquet, CSV or JSON Lines file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.errors import ConfigError

from ...presentation.digits import size_on_disk
from ..interruption import ended_in_order
from ..terminal import counting, print_json, say
from .arguments import AsJson, OnlySteps, RunFolder, comma_separated, demand_metrics, gaps_of_readings, opened, steps_of

if TYPE_CHECKING:
    from ...export.export import Exported

ENDINGS = (".parquet", ".csv", ".jsonl")
LEVELS = ("step", "sequence", "token")


def export(
    run: RunFolder,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The file to write: .parquet, .csv or .jsonl.")
    ],
    level: Annotated[
        str,
        typer.Option(metavar="step|sequence|token", help="One row per step, per sequence and minibatch, or per token."),
    ] = "step",
    steps: OnlySteps = None,
    gap: Annotated[
        str | None,
        typer.Option(metavar="mismatch|total|drift|A:B", help="Only this gap; A:B are any two policies or readings."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these metrics, e.g. kl_k3,ess_token.")
    ] = None,
    no_text: Annotated[
        bool, typer.Option("--no-text", help="Leave out prompts, token texts, token ids and the column extra.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: AsJson = False,
) -> int:
    """Write the metrics of a run, its sequences or its tokens into one file for other programs.

    The file appears whole or not at all. It says by which formula each column was computed: Parquet in its metadata under the
    key ratioscope_export, CSV and JSON Lines in FILE.schema.json beside it. Only you can read it (mode 0600). --json prints
    what was written.
    """
    from ...export.export import export as exported
    from ...export.tables import ExportedPart

    if output.suffix not in ENDINGS:
        raise ConfigError(
            f"-o {output}: wanted a name that ends in {', '.join(ENDINGS)}; try: -o {output.stem or level}.parquet"
        )
    if level not in LEVELS:
        raise ConfigError(f"--level {level}: wanted one of {', '.join(LEVELS)}; try: --level step")
    chosen, metrics = steps_of(steps), comma_separated(metric)
    demand_metrics(metrics)
    opened_run = opened(run)
    if gap is not None:
        gaps_of_readings(opened_run, (gap,))
    part = ExportedPart(
        "step" if level == "step" else "sequence" if level == "sequence" else "token", chosen, gap, metrics, not no_text
    )
    with ended_in_order(), counting(f"exporting {opened_run.name}") as progress:
        done = exported(opened_run, part, output, force=force, progress=progress)
    if as_json:
        files = [str(file) for file in reversed(done.files)]
        print_json({"files": files, "rows": done.rows, "steps": done.steps, "steps_without_rows": done.without_rows})
    else:
        _tell(done, output, opened_run.place)
    return 0


def _tell(done: "Exported", output: Path, place: str) -> None:
    """Prints what was written, and what could not be."""
    rows = "1 row" if done.rows == 1 else f"{done.rows:,} rows"
    say(f"wrote {output} ({rows} of {done.steps} steps, {size_on_disk(output.stat().st_size)})")
    for beside in done.files[:-1]:
        say(f"its columns and the digests of their formulas: {beside}", "dim")
    if done.without_rows:
        say(
            f"{done.without_rows} steps have no token rows on record, and no row here; --level step has all steps",
            "dim",
        )
    if done.without_topk:
        say(f"the likeliest tokens are left out: they lie in {place}/topk, as docs/run_format.md describes", "dim")
    if done.not_read:
        say(
            f"{done.not_read} damaged files of the run could not be read; ratioscope verify {place} names them", "watch"
        )
