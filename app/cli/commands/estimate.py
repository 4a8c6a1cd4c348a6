"""`ratioscope estimate`: the cost of recording on disk and in time, before it begins."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratioscope.errors import ConfigError
from ratioscope.layout import MOST_TOPK

from ...blocks import Facts
from ...presentation.digits import count, size_on_disk
from ..blocks_printed import print_blocks
from ..terminal import print_json, working
from .arguments import AsJson, comma_separated, opened

if TYPE_CHECKING:
    from ..cost import BatchShape


def estimate(
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Estimate from the recorded steps of this run.")
    ] = None,
    sequences: Annotated[int | None, typer.Option(help="Sequences per step and rank.")] = None,
    length: Annotated[int | None, typer.Option(help="Tokens per sequence, on average.")] = None,
    policies: Annotated[str, typer.Option(help="Policies to record, comma-separated.")] = "rollout,old,current",
    entropy: Annotated[bool, typer.Option("--entropy", help="Record entropy too.")] = False,
    text: Annotated[
        str,
        typer.Option(
            metavar="ids|none",
            help="Record token ids, or none. Texts are not estimated: their size depends on the tokenizer.",
        ),
    ] = "ids",
    readings: Annotated[
        int,
        typer.Option(
            min=0, max=8, help="Readings of every token, such as a referee's: further log-probs under a name."
        ),
    ] = 0,
    topk: Annotated[
        int,
        typer.Option(
            min=0, max=MOST_TOPK, help="Likeliest tokens of each place, with log-probs of the first two policies."
        ),
    ] = 0,
    steps: Annotated[int, typer.Option(help="Number of steps of the run.")] = 1000,
    ranks: Annotated[int, typer.Option(help="Number of ranks that write.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Estimate bytes and milliseconds per step and gigabytes per run, by recording a batch of that shape on this machine.

    Give --sequences and --length, or a RUN whose first steps are on disk. A budget bounds the token rows: Collector(budget=
    Budget(step_bytes=...)), or {"step_bytes": ...} in control.json of the run folder while the run goes on.
    """
    from ..cost import BatchShape, policies_of

    if steps < 1 or ranks < 1:
        raise ConfigError(f"--steps {steps} --ranks {ranks}: wanted at least 1 of each")
    if text not in ("ids", "none"):
        raise ConfigError(f"--text {text}: wanted ids or none; try: --text ids")
    if run is not None and readings:
        raise ConfigError(
            f"--readings {readings} {run}: an estimate from a run counts none; wanted --sequences and --length with --readings"
        )
    if run is not None and topk:
        raise ConfigError(
            f"--topk {topk} {run}: an estimate from a run counts what it has; wanted --sequences and --length with --topk"
        )
    if run is not None:
        estimates = _of_run(run, steps)
    elif sequences is not None and length is not None:
        recorded = policies_of(comma_separated(policies))
        estimates = _of_shape(BatchShape(sequences, length, recorded, entropy, text, readings, topk), steps, ranks)
    else:
        raise ConfigError(
            "wanted --sequences and --length, or a RUN; try: ratioscope estimate --sequences 512 --length 2000"
        )
    if as_json:
        print_json(estimates)
    else:
        print_blocks([Facts(_facts(estimates))])


def _of_shape(shape: "BatchShape", steps: int, ranks: int) -> dict[str, Any]:
    from ..cost import measured_cost

    with working("recording a batch of this shape"):
        cost = measured_cost(shape)
    per_step = cost.token_bytes + cost.statistics_bytes
    return {
        "tokens_per_step": shape.tokens,
        "policies": list(shape.policies),
        **({"readings": shape.readings} if shape.readings else {}),
        **({"topk": shape.topk} if shape.topk else {}),
        "bytes_per_step": round(per_step),
        "bytes_per_token": round(cost.token_bytes / shape.tokens, 2),
        "statistics_bytes_per_step": round(cost.statistics_bytes),
        "log_milliseconds_per_step": round(cost.log_seconds * 1e3, 2),
        "writer_cpu_seconds_per_step": round(cost.writer_seconds, 3),
        "host_bytes_per_queued_step": round(cost.host_bytes),
        "steps": steps,
        "ranks": ranks,
        "bytes_per_run": round(per_step * steps * ranks),
        "statistics_bytes_per_run": round(cost.statistics_bytes * steps * ranks),
    }


def _of_run(folder: Path, steps: int) -> dict[str, Any]:
    run = opened(folder)
    if not run.steps:
        raise ConfigError(f"{folder} has no step on record yet; give --sequences and --length instead")
    per_step = (run.size.bytes + run.topk_size.bytes) / len(run.steps)
    return {
        "tokens_per_step": round(run.size.tokens / len(run.steps)),
        "policies": list(run.policies),
        "bytes_per_step": round(per_step),
        "steps": steps,
        "ranks": run.writers["rank"].n_unique(),
        "bytes_per_run": round(per_step * steps),
    }


def _facts(made: dict[str, Any]) -> list[tuple[str, str]]:
    """The estimates in words. A run on record has the steps of all its ranks."""
    of_rank, each = (" of a rank", " and rank") if "bytes_per_token" in made and made["ranks"] > 1 else ("", "")
    readings = f" and {count(made['readings'], 'reading')}" if "readings" in made else ""
    readings += f" and the {made['topk']} likeliest tokens" if "topk" in made else ""
    tokens = f"{made['bytes_per_token']:.1f} bytes per token" if "bytes_per_token" in made else "statistics included"
    facts = [
        (f"a step{of_rank}", f"{count(made['tokens_per_step'], 'token')} of {', '.join(made['policies'])}{readings}"),
        ("on disk", f"{size_on_disk(made['bytes_per_step'])} per step{each}, {tokens}"),
        (
            "a run",
            f"{size_on_disk(made['bytes_per_run'])} in {count(made['steps'], 'step')} on {count(made['ranks'], 'rank')}",
        ),
    ]
    if "log_milliseconds_per_step" not in made:
        return facts
    from ratioscope.collectors.collector import QUEUE_BYTES

    queue = size_on_disk(QUEUE_BYTES)
    alone = f"{size_on_disk(made['statistics_bytes_per_run'])}; a budget bounds token rows, not statistics"
    return [
        *facts,
        ("statistics alone", alone),
        ("trainer's thread", f"{made['log_milliseconds_per_step']:.1f} ms per step, one copy from host memory"),
        ("writer's thread", f"{made['writer_cpu_seconds_per_step']:.2f} s of CPU per step, in the background"),
        ("host memory", f"{size_on_disk(made['host_bytes_per_queued_step'])} per step in the queue, at most {queue}"),
    ]
