"""`ratioscope metrics RUN --logged`: every number of a scalar log, under the trainer's own names."""

from typing import TYPE_CHECKING, Any

import polars as pl

from ratioscope.errors import ConfigError

from ..terminal import print_table

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run


def logged_rows(run: "Run", names: tuple[str, ...] = ()) -> pl.DataFrame:
    """One row per step, a column per name. ConfigError for a run that was not made of a scalar log, or an unknown name."""
    from ...presentation.logged_names import column_of

    known, chosen = _chosen(run, names)
    columns = {name: column_of(name) for name in known}
    wide = chosen.with_columns(pl.col("name").replace(columns)).pivot(
        "name", index="step", values="value", aggregate_function="last"
    )
    return wide.select("step", *columns.values()).sort("step")


def print_logged(run: "Run", names: tuple[str, ...]) -> None:
    """Prints each number: its steps, its last value, and the metric of ours that it is, or why it is none."""
    from ...presentation.logged_names import metrics_of

    known, chosen = _chosen(run, names)
    metrics = metrics_of(run.logged)
    values = chosen.unique(["name", "step"], keep="last", maintain_order=True).partition_by("name", as_dict=True)
    print_table(
        ["logged as", "steps", "not finite", "last value", "is"],
        [_row(name, values[(name,)]["value"], metrics.get(name), run.info) for name in known],
    )


def _chosen(run: "Run", names: tuple[str, ...]) -> tuple[tuple[str, ...], pl.DataFrame]:
    """(names, their rows by step)."""
    table = run.logged
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


def _row(name: str, values: pl.Series, metric: str | None, info: dict[str, Any]) -> list[str]:
    from ...presentation.logged_names import own_words, with_trainer

    last = f"{values[-1]:.6g}" if len(values) else ""
    return [
        with_trainer(name, info),
        str(len(values)),
        str((~values.is_finite()).sum()),
        last,
        metric or own_words(name, info),
    ]
