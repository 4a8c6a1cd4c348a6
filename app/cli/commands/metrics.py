"""`ratioscope metrics RUN`: the metrics of a run, a row per step or per slice, as a table, JSON or CSV."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratioscope.errors import ConfigError

from ...blocks import Heading, text_table
from ...presentation.escape import csv as cell
from ..absences import STEP_KEYS, absent_metrics, absent_rows, sliced_by, unscored_rows
from ..blocks_printed import print_blocks
from ..next_steps import after_metrics, print_next
from ..terminal import counting, print_json, say, say_gap, stages
from .arguments import (
    AsJson,
    FailOn,
    OnlySteps,
    RulesFile,
    RunFolder,
    comma_separated,
    demand_metrics,
    failing,
    gaps_of_readings,
    opened,
    severity_of,
    steps_on_record,
)
from .dialect_metrics import dialect_rows, logged_rows, print_dialect, print_logged

if TYPE_CHECKING:
    import polars as pl

    from ratioscope.ingest.analysis.resolution import TooCoarse
    from ratioscope.ingest.run import Run

WHOLE_RUN = "run"
NO_GAP = "no gap between two policies is on record"


def metrics(
    run: RunFolder,
    by: Annotated[
        str,
        typer.Option(
            metavar="step,...",
            help="One row per step, per slice (lag, replica, position, ...), per both, or for the run.",
        ),
    ] = "step",
    gap: Annotated[
        str | None,
        typer.Option(
            metavar="mismatch|total|drift|A:B",
            help="Only these gaps (comma separated); A:B are any two policies or readings, e.g. rollout:referee.",
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these metrics, e.g. kl_k3,ess_token.")
    ] = None,
    steps: OnlySteps = None,
    cluster: Annotated[
        str, typer.Option(metavar="sequence|group", help="The unit that standard errors treat as independent.")
    ] = "sequence",
    dialect: Annotated[
        str | None,
        typer.Option(metavar="TRAINER", help="Print what this trainer would have logged, under its own names."),
    ] = None,
    preset: Annotated[str | None, typer.Option(metavar="NAME", help="With --dialect: one of its presets.")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --dialect: its configuration, as YAML or JSON.")
    ] = None,
    logged: Annotated[
        bool, typer.Option("--logged", help="Every number of a scalar log, under the trainer's own names.")
    ] = False,
    as_json: AsJson = False,
    rules: RulesFile = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    fail_on: FailOn = None,
) -> int:
    """Print the metrics of a run, a row per step.

    JSON is a list of objects: "step", "severity", and a member per metric such as "mismatch/kl_k3", its standard error
    "mismatch/kl_k3_se". null is "not available"; a value that JSON cannot hold is "Infinity", "-Infinity" or "NaN".
    """
    from ratioscope.ingest.analysis.copies import judged_first
    from ratioscope.ingest.analysis.judged_verdict import judged_verdict
    from ratioscope.ingest.analysis.resolution import coarse_words, too_coarse, without_coarse
    from ratioscope.ingest.statistics.metric_columns import within

    severity_of(fail_on)
    if as_json and as_csv:
        raise ConfigError("--json and --csv were both given; wanted one of them")
    if dialect is None and (preset or config):
        raise ConfigError("--preset and --config belong to a trainer; add --dialect TRAINER")
    opened_run = opened(run, rules)
    wanted = steps_on_record(opened_run, steps)
    if logged:
        if as_json or as_csv:
            _print_rows(logged_rows(opened_run, comma_separated(metric), wanted), as_json=as_json)
        else:
            print_logged(opened_run, comma_separated(metric), wanted)
        return 0
    if dialect is not None:
        return _dialect(opened_run, dialect, preset, config, wanted, as_json=as_json)
    keys = _keys(by)
    pairs = gaps_of_readings(opened_run, comma_separated(gap))
    if pairs and cluster != "sequence":
        raise ConfigError(f"--cluster {cluster}: errors of {pairs[0]} are clustered by sequence; leave --cluster out")
    frame = _graded(opened_run, keys, wanted) if cluster == "sequence" else _clustered(opened_run, keys, cluster)
    frame = frame if wanted is None or cluster == "sequence" else within(frame, wanted)
    frame = _with_pairs(opened_run, frame, keys, pairs, wanted)
    coarse = too_coarse(opened_run)
    frame = without_coarse(frame, coarse)
    chosen = _chosen(frame, comma_separated(gap), comma_separated(metric))
    if opened_run.topk_steps and keys == ("step",) and (as_json or as_csv) and not metric:
        chosen = _with_support(opened_run, chosen, comma_separated(gap), wanted)
    if as_json or as_csv:
        _print_rows(chosen, as_json=as_json)
    else:
        if wanted is not None and "step" not in keys:
            say(f"of steps {wanted[0]} to {wanted[-1]} alone", "dim")
        _print_tables(
            opened_run,
            chosen,
            keys,
            gaps=comma_separated(gap),
            metrics=comma_separated(metric),
            coarse=coarse,
            steps=wanted,
        )
        for name in comma_separated(gap) or judged_first(opened_run)[:1]:
            if name in coarse:
                say(coarse_words(name, coarse[name]))
    return failing(judged_verdict(opened_run), fail_on) if fail_on else 0


def _dialect(
    run: "Run", name: str, preset: str | None, config: Path | None, steps: range | None, *, as_json: bool
) -> int:
    rows = [row for row in dialect_rows(run, name, preset, config) if steps is None or row["step"] in steps]
    if as_json:
        print_json(rows)
    else:
        print_dialect(rows, name, {row["step"]: row for row in run.metrics().to_dicts()})
    return 0


def _clustered(run: "Run", keys: tuple[str, ...], cluster: str) -> "pl.DataFrame":
    """The metric frame by step, with errors clustered by prompt group."""
    if cluster != "group" or keys != ("step",):
        raise ConfigError(f"--cluster {cluster}: wanted sequence, or group with --by step")
    from ratioscope.ingest.analysis.group_errors import metrics_by_group

    with stages("errors by group", len(run.steps)) as advance:
        return metrics_by_group(run, progress=lambda done, total: advance(f"step {done} of {total}"))


def _keys(by: str) -> tuple[str, ...]:
    """The columns to group by. ConfigError for an unknown name, or for two slices."""
    from ratioscope.ingest.rows.slices import ON_DEMAND
    from ratioscope.metrics.engines.slices import WRITTEN

    keys = comma_separated(by)
    if keys == (WHOLE_RUN,):
        return ()
    slices = (*(name for name in WRITTEN if name != "all"), *ON_DEMAND)
    unknown = [key for key in keys if key not in (*STEP_KEYS, *slices)]
    if not keys or unknown or len(set(keys) - set(STEP_KEYS)) > 1 or len(set(keys)) < len(keys):
        raise ConfigError(
            f"--by {by or '(empty)'}: wanted {WHOLE_RUN}, or step with or without one of {', '.join(slices)}; try: --by step,lag"
        )
    return keys


def _graded(run: "Run", keys: tuple[str, ...], steps: range | None) -> "pl.DataFrame":
    """The metric frame; by step with each row's severity after it."""
    from ratioscope.ingest.analysis.grades import step_grades

    with counting("reading token rows") as progress:
        frame = _ordered(run.metrics(by=keys, steps=steps, progress=progress), keys)
    if keys != ("step",) or frame.is_empty():
        return frame
    graded = frame.join(step_grades(run).select("step", "severity"), on="step", how="left", maintain_order="left")
    return graded.select("step", "severity", *(column for column in frame.columns if column != "step"))


def _with_pairs(
    run: "Run", frame: "pl.DataFrame", keys: tuple[str, ...], pairs: Sequence[str], steps: range | None
) -> "pl.DataFrame":
    """The frame with the columns of gaps between readings; without steps that none of the requested gaps has."""
    for pair in pairs:
        with counting(f"reading token rows of {pair}") as progress:
            own = _ordered(run.metrics(by=keys, steps=steps, gap=pair, progress=progress), keys)
        frame = frame.join(own, on=list(keys), how="left", maintain_order="left") if keys else frame.hstack(own)
    return frame


def _with_support(run: "Run", frame: "pl.DataFrame", gaps: Sequence[str], steps: range | None) -> "pl.DataFrame":
    """The frame with the numbers of several tokens per position; null at steps that were not read."""
    from ratioscope.ingest.analysis.support_numbers import support_numbers

    for gap in gaps or run.gaps:
        found = support_numbers(run, gap, steps)
        if found is not None and not found.because:
            frame = frame.join(found.course, on="step", how="left", maintain_order="left")
    return frame


def _ordered(frame: "pl.DataFrame", keys: tuple[str, ...]) -> "pl.DataFrame":
    """The rows by step, then by slice key: lag 2 before lag 10."""
    from ...presentation.slice_names import key_order

    slices = [key for key in keys if key not in STEP_KEYS]
    steps = [key for key in keys if key in STEP_KEYS]
    return frame.sort(*steps, *(key_order(frame[name]) for name in slices)) if slices else frame


def _chosen(frame: "pl.DataFrame", gaps: Sequence[str], metrics: Sequence[str]) -> "pl.DataFrame":
    """The frame with the columns of these gaps and metrics; an empty list stands for all."""
    import polars as pl

    from ratioscope.metrics.definitions.registry import METRICS, of_column
    from ratioscope.record import GAPS

    demand_metrics(metrics)

    def is_chosen(column: str) -> bool:
        gap, metric = column.partition("/")[0], of_column(column)
        return metric is None or ((not gaps or gap in gaps) and (not metrics or metric.name in metrics))

    chosen = frame.select(column for column in frame.columns if is_chosen(column))
    counts = {f"{gap}/{metric.name}" for metric in METRICS if metric.kind == "count" for gap in (*GAPS, *gaps)}
    return chosen.cast({column: pl.Int64 for column in chosen.columns if column in counts})


def _print_rows(frame: "pl.DataFrame", *, as_json: bool) -> None:
    """Prints JSON, else CSV."""
    import csv

    if as_json:
        print_json(frame.to_dicts())
        return
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow([cell(column) for column in frame.columns])
    lines.writerows([cell(value) if isinstance(value, str) else value for value in row] for row in frame.iter_rows())


def _print_tables(
    run: "Run",
    frame: "pl.DataFrame",
    keys: Sequence[str],
    *,
    gaps: Sequence[str],
    metrics: Sequence[str],
    coarse: "Mapping[str, TooCoarse]",
    steps: range | None,
) -> None:
    """Prints one table per gap of --gap; without --gap the first gap on record, and a line that names the others."""
    from ratioscope.ingest.analysis.copies import judged_first
    from ratioscope.ingest.analysis.feature_requirements import why_no_gap
    from ratioscope.ingest.analysis.gradient_bias import gradient_bias
    from ratioscope.ingest.analysis.support_numbers import support_numbers

    from ...pages.support import TITLE, support_blocks
    from ...presentation.bias_words import NAME, bias_words

    shown = gaps or judged_first(run)[:1]
    first: list[str] = []
    if not shown:
        say(f"{run.name}: not available, because {run.no_tokens or why_no_gap(run) or NO_GAP}")
    for gap in shown:
        say_gap(gap, run.name)
        if frame.is_empty() and (by := sliced_by(keys)):
            say(f"by {by}: not available, because {absent_rows(run, by)}")
            continue
        present, absent = _print_table(run, frame, keys, gap=gap, metrics=metrics)
        first += present[:1]
        if unscored := unscored_rows(frame, gap, keys):
            say(f"{unscored}: not available, because no token there has two finite log-probs", "dim")
        for names, reason in absent_metrics(run, gap, absent, keys, coarse):
            say(f"{', '.join(names)}: not available, {reason}", "dim")
        if not set(keys) - set(STEP_KEYS) and (bias := gradient_bias(run, gap, steps)).found is not None:
            say(f"{NAME}: {bias_words(bias)}")
        if run.topk_steps and not set(keys) - set(STEP_KEYS) and not metrics:
            print_blocks([Heading(TITLE), *support_blocks(run, support_numbers(run, gap, steps))])
    others = [gap for gap in (*run.gaps, *run.reading_gaps) if gap not in shown]
    if others and not gaps:
        say(f"also on record: {', '.join(others)} (--gap {others[0]}); every metric: --json or --csv", "dim")
    print_next(run, after_metrics(run, metrics or first, keys))


def _print_table(
    run: "Run", frame: "pl.DataFrame", keys: Sequence[str], *, gap: str, metrics: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Prints the table of a gap; returns the metrics with a value in it, and those without. A scalar log shows all it has."""
    from ratioscope.metrics.definitions.registry import METRICS

    from ...presentation.metric_places import names_at
    from ...presentation.value_text import value_with_error

    cards = {metric.name: metric for metric in METRICS if metric.is_of(gap)}
    core = names_at("core", gap)
    names = metrics or (tuple(dict.fromkeys((*core, *cards))) if run.no_tokens else core)
    present = [
        m
        for m in names
        if m in cards and f"{gap}/{m}" in frame.columns and frame[f"{gap}/{m}"].null_count() < len(frame)
    ]
    labels = [column for column in ("severity",) if column in frame.columns]
    header = [
        *(keys or (WHOLE_RUN,)),
        *labels,
        *(f"{m} [{cards[m].unit}]" if cards[m].unit != "1" else m for m in present),
    ]

    def cells(row: dict[str, Any]) -> list[str]:
        facts = [str(row[key]) for key in keys] or [run.name]
        numbers = (value_with_error(cards[m], row[f"{gap}/{m}"], row.get(f"{gap}/{m}_se")) for m in present)
        return [*facts, *(row[label] or "" for label in labels), *numbers]

    print_blocks([text_table(gap, header, map(cells, frame.iter_rows(named=True)))])
    return present, [m for m in metrics or core if m not in present and m in cards]
