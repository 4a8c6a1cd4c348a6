"""`ratioscope metrics RUN --dialect TRAINER` and `--logged`: numbers under the names of the trainer, computed or logged."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratioscope.errors import ConfigError
from ratioscope.metrics.dialects import dialect

from ...blocks import Facts, Paragraph, text_table
from ...presentation.digits import plus_minus
from ..blocks_printed import print_blocks
from ..terminal import say, stages
from .corrections import of_trainer

if TYPE_CHECKING:
    import polars as pl

    from ratioscope.ingest.run import Run


def dialect_rows(run: "Run", dialect: str, preset: str | None, config: Path | None) -> list[dict[str, Any]]:
    """One row per step: "step", then the trainer's metrics, by the preset, by the file, or else by its first preset."""
    from ratioscope.ingest.analysis.correction_effects import logged_by_trainer

    chosen = of_trainer(dialect, [preset] if preset else [], config)[0]
    with stages(dialect, len(run.steps)) as advance:
        logged = logged_by_trainer(run, chosen, lambda done, total: advance(f"step {done} of {total}"))
    if not logged:
        if reason := run.no_tokens:
            raise ConfigError(f"what {dialect} would have logged is not available, because {reason}; try: --logged")
        raise ConfigError(
            f"{run.name} has no step with rollout log-probs of a token that counts, which {dialect} reads"
        )
    return [{"step": step, **metrics} for step, metrics in sorted(logged.items())]


def print_dialect(
    rows: Sequence[Mapping[str, Any]], dialect_name: str, canonical: Mapping[int, Mapping[str, Any]]
) -> None:
    """Prints the last step: the trainer's values, ours for the same quantities, and notes on misleading values."""
    trainer, last = dialect(dialect_name), rows[-1]
    ours, names = canonical.get(last["step"], {}), [name for name in last if name != "step"]
    say(f"{dialect_name} at step {last['step']}, the last of {len(rows)} (all steps: --json)", "bold")
    table = []
    for name in names:
        full = trainer.CANONICAL.get(name)
        shown = plus_minus(ours.get(full), ours.get(f"{full}_se")) if full else ""
        table.append((name, f"{last[name]:.6g}", shown, full or ""))
    print_blocks([text_table("logged at the last step", ("logged as", "value", "ours ± se", "canonical"), table)])
    if notes := [(name, trainer.NOTES[name]) for name in names if name in trainer.NOTES]:
        print_blocks([Paragraph("how theirs differs", "lead"), Facts(notes)])


def logged_rows(run: "Run", names: tuple[str, ...] = (), steps: range | None = None) -> "pl.DataFrame":
    """One row per step, a column per name. ConfigError for a run that was not made of a scalar log, or an unknown name."""
    import polars as pl

    from ...presentation.logged_names import column_of

    known, chosen = _logged(run, names, steps)
    columns = {name: column_of(name) for name in known}
    wide = chosen.with_columns(pl.col("name").replace(columns)).pivot(
        "name", index="step", values="value", aggregate_function="last"
    )
    return wide.select("step", *columns.values()).sort("step")


def print_logged(run: "Run", names: tuple[str, ...], steps: range | None = None) -> None:
    """Prints each number: its steps, its last value, and the metric of ours that it is, or why it is none."""
    from ...presentation.logged_names import metrics_of, own_words, with_trainer

    known, chosen = _logged(run, names, steps)
    metrics, rows = metrics_of(run.logged), []
    numbers = chosen.unique(["name", "step"], keep="last", maintain_order=True).partition_by("name", as_dict=True)
    for name in known:
        values = numbers[(name,)]["value"]
        odd, last = (~values.is_finite()).sum(), f"{values[-1]:.6g}" if len(values) else ""
        about = metrics.get(name) or own_words(name, run.info)
        rows.append((with_trainer(name, run.info), str(len(values)), str(odd), last, about))
    print_blocks([text_table("logged numbers", ("logged as", "steps", "not finite", "last value", "is"), rows)])


def _logged(run: "Run", names: tuple[str, ...], steps: range | None) -> "tuple[tuple[str, ...], pl.DataFrame]":
    """(names, their rows by step). steps: only these."""
    import polars as pl

    from ratioscope.ingest.statistics.metric_columns import within

    table = run.logged if steps is None else within(run.logged, steps)
    if not len(table):
        raise ConfigError(
            f"{run.name} holds no logged numbers; wanted a run that ratioscope import made of a scalar log"
        )
    known = table["name"].unique().sort().to_list()
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(
            f"--metric {unknown[0]}: {run.name} has no number of this name; it has {', '.join(known[:8])}"
        )
    return names or tuple(known), table.filter(pl.col("name").is_in(list(names or known)))
