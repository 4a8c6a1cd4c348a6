"""What corrections would have done to a run: read step by step from its token rows, so that memory stays that of a step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from ratioscope.metrics.corrections.correction import Correction
from ratioscope.metrics.corrections.effect import SUMS, correction_sums, effect_values, schema
from ratioscope.metrics.dialects.effect import dialect_sums

from ..files.progress import OnProgress
from ..rows.slices import labels_of
from ..run import Run
from .step_rows import step_records


@dataclass(frozen=True)
class TrainerCorrection:
    """A trainer's own correction: a dialect and its configuration, called `title` in frames."""

    title: str
    dialect: str
    config: Mapping[str, Any]
    version: str | None = None


@dataclass(frozen=True)
class StepEffects:
    """sums: `correction_effect.SUMS` per step and correction. logged: step -> what each trainer would have logged there."""

    sums: pl.DataFrame
    logged: dict[str, dict[int, dict[str, float]]]


def correction_effects(
    run: Run,
    corrections: Sequence[Correction | TrainerCorrection],
    *,
    by: str | None = None,
    progress: OnProgress | None = None,
) -> StepEffects:
    """Carry out each correction on every step of the run that has token rows.

    by: a slice (see slices.labels_of), whose keys the sums then hold in the column `key`; a correction sees whole steps all
    the same. A trainer's own correction is not cut by slices.
    """
    parts: list[pa.Table] = [schema().empty_table()]
    logged: dict[str, dict[int, dict[str, float]]] = {}
    ours = [correction for correction in corrections if isinstance(correction, Correction)]
    theirs = [correction for correction in corrections if isinstance(correction, TrainerCorrection)]
    for _, records in step_records(run, progress):
        parts.append(correction_sums(records, ours, None if by is None else labels_of(by, records)))
        for each in theirs:
            table, evaluations = dialect_sums(
                records, each.dialect, each.config, version=each.version, title=each.title
            )
            parts.append(table)
            for (_, at), evaluation in evaluations.items():
                logged.setdefault(each.title, {})[at] = evaluation.metrics
    sums = pl.from_arrow(pa.concat_tables(parts))
    assert isinstance(sums, pl.DataFrame)
    return StepEffects(sums, logged)


def effect_frame(sums: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """One row per correction and group (`by`: attempt, step, key), with the EFFECTS as columns; null: nothing to read."""
    keys = [*by, "correction", "gap"]
    groups = sums.group_by(keys, maintain_order=True).agg(pl.col(SUMS).sum())
    values = effect_values({name: groups[name].to_numpy() for name in SUMS})
    effects = [pl.Series(name, value, dtype=pl.Float64, nan_to_null=True) for name, value in values.items()]
    return groups.select(*keys, "tokens").with_columns(effects)
