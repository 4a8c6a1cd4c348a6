"""The effects that corrections would have had on a run, computed from its token rows. Memory stays that of one step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from ratioscope.errors import SchemaError
from ratioscope.metrics.corrections.correction import Correction
from ratioscope.metrics.corrections.effect import SUMS, correction_sums, effect_values, schema
from ratioscope.metrics.dialects.effect import dialect_evaluations, dialect_sums

from ..files.progress import OnProgress
from ..rows.slices import labels_of
from ..run import Run
from .step_rows import step_records


@dataclass(frozen=True)
class TrainerCorrection:
    """A trainer's own correction."""

    title: str
    dialect: str
    config: Mapping[str, Any]
    """The trainer's own settings."""
    version: str | None = None
    """Version of the trainer; the newest known unless given."""

    @property
    def name(self) -> str:
        """Its title, as a Correction has its name."""
        return self.title


@dataclass(frozen=True)
class StepEffects:
    """The effects that corrections would have had on each step."""

    sums: pl.DataFrame
    """SUMS of metrics/corrections/effect.py, per step and correction."""
    absent: dict[str, str]
    """Title of a trainer's correction -> "because ...", if steps lack something that it reads."""
    by_minibatch: bool = False
    """True if rows have minibatches, so that a trainer's correction read each sequence as its first minibatch did."""


def correction_effects(
    run: Run,
    corrections: Sequence[Correction | TrainerCorrection],
    *,
    by: str | None = None,
    steps: Sequence[int] | None = None,
    gap: str = "",
    progress: OnProgress | None = None,
) -> StepEffects:
    """Applies each correction to every step of the run that has token rows. steps: only to these; None: to all.

    gap: one of readings that corrections read; then the steps are those that have its readings.

    by: a slice (see slices.labels_of); the sums then have its keys in the column `key`. Corrections are applied to whole steps
    before they are sliced. A trainer's own correction is not sliced.
    """
    parts: list[pa.Table] = [schema().empty_table()]
    refused: dict[str, list[str]] = {}
    by_minibatch = False
    ours = [correction for correction in corrections if isinstance(correction, Correction)]
    theirs = [correction for correction in corrections if isinstance(correction, TrainerCorrection)]
    read = list(run.row_digests(run.steps if steps is None else steps, gap)) if gap else steps
    for step, rows in step_records(run, progress, read):
        records = run.beside(rows, step, gap) if gap else rows
        parts.append(correction_sums(records, ours, None if by is None else labels_of(by, records)))
        by_minibatch |= records["minibatch"].null_count < len(records)
        for each in theirs:
            try:
                parts.append(dialect_sums(records, each.dialect, each.config, version=each.version, title=each.title))
            except SchemaError as error:
                refused.setdefault(each.title, []).append(str(error))
    sums = pl.DataFrame(pa.concat_tables(parts))
    done = dict(sums.group_by("correction").agg(pl.col("step").n_unique()).iter_rows())
    absent = {title: _why_absent(reasons, done.get(title, 0)) for title, reasons in refused.items()}
    return StepEffects(sums, absent, by_minibatch)


def _why_absent(reasons: Sequence[str], done: int) -> str:
    """The first reason of the steps that were refused. done: the steps that were not."""
    where = f"at {len(reasons):,} of {len(reasons) + done:,} steps " if done else ""
    return f"because {where}{reasons[0]}"


def logged_by_trainer(
    run: Run, correction: TrainerCorrection, progress: OnProgress | None = None
) -> dict[int, dict[str, float]]:
    """step -> the metrics that the trainer would have logged with this correction."""
    return {
        each.step: each.evaluation.metrics
        for _, records in step_records(run, progress)
        for each in dialect_evaluations(records, correction.dialect, correction.config, correction.version)
    }


def effect_frame(sums: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """One row per correction and group, with the EFFECTS as columns; null where nothing was measured. by: attempt, step, key."""
    keys = [*by, "correction", "gap"]
    groups = sums.group_by(keys, maintain_order=True).agg(pl.col(SUMS).sum())
    values = effect_values({name: groups[name].to_numpy() for name in SUMS})
    effects = [pl.Series(name, value, dtype=pl.Float64, nan_to_null=True) for name, value in values.items()]
    return groups.select(*keys, "tokens").with_columns(effects)
