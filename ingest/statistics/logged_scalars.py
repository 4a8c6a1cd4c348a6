"""Numbers that a trainer logged by step, of runs that were made of a scalar log: as they were logged, and as a frame of metrics.

A logged mean has no sums, so it has no standard error, cannot be merged over steps, and has no slices. A frame by step holds it
under the metric of ours whose definition is the same; frames over all steps, and of slices, hold nothing of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.metrics.metric import Metric
from ratioscope.record import GAPS, scalar_schema

from ..commits.entries import Segment
from ..commits.visible_files import VisibleFiles
from ..files.columns import conformed, demand_scalars
from ..files.parquet_files import ParquetFiles, read
from ..files.quarantine import SetAside, faults_set_aside, printable

SCHEMA = scalar_schema()
SCALAR_LOG = "this run was imported from a scalar log: it holds no tokens"
"""Why everything that is read from tokens is missing from such a run; follows "because"."""


@dataclass
class LoggedScalars:
    """Reads files of scalars. A file that is not as committed is set aside and has no rows."""

    files: ParquetFiles
    set_aside: SetAside
    _table: tuple[VisibleFiles | None, pl.DataFrame] = field(default=(None, pl.DataFrame()))
    """(visible files, every logged number of them)."""
    _wide: tuple[VisibleFiles | None, pl.DataFrame] = field(default=(None, pl.DataFrame()))
    """(visible files, our metrics among them with a column each)."""

    def table(self, visible: VisibleFiles) -> pl.DataFrame:
        """Columns attempt, step, name, value, metric: every number that is shown, by step and name."""
        if self._table[0] is not visible:
            parts = [self._rows(visible, segment) for segment in visible.scalars]
            rows = pl.concat([pl.DataFrame(schema=_polars_schema()), *parts])
            own = rows.unique(["attempt", "step", "name"], keep="last", maintain_order=True).sort("step", "name")
            self._table = visible, own
        return self._table[1]

    def gaps(self, visible: VisibleFiles) -> frozenset[str]:
        """Gaps of which a metric was logged."""
        if not visible.scalars:
            return frozenset()
        return frozenset(_gaps(self.table(visible)["metric"].drop_nulls().unique().to_list()))

    def frame(self, visible: VisibleFiles, by: Sequence[str], names: Sequence[str] | None) -> pl.DataFrame:
        """A metric_frame of what was logged. by: step, attempt, both or none; over all steps every value is null."""
        if self._wide[0] is not visible:
            self._wide = visible, _wide(self.table(visible))
        wide = self._wide[1]
        wanted = None if names is None else {*names, *(f"{name}_se" for name in names)}
        columns = [
            column
            for column in wide.columns
            if "/" in column and (wanted is None or column.partition("/")[2] in wanted)
        ]
        if "step" in by:
            return wide.select(*by, *columns)
        keys = wide.select(by).unique().sort(by) if by else None
        nulls = {column: pl.Series([None] * (1 if keys is None else len(keys)), dtype=pl.Float64) for column in columns}
        return pl.DataFrame(nulls) if keys is None else keys.with_columns(**nulls)

    def _rows(self, visible: VisibleFiles, segment: Segment) -> pl.DataFrame:
        size = None if segment.sha256 is None else segment.bytes
        frame = None
        with faults_set_aside(segment.path, self.set_aside):
            with self.files.opened(segment.path, size, segment.sha256) as parquet:
                demand_scalars(parquet.schema_arrow)
                frame = pl.DataFrame(conformed(read(parquet, SCHEMA.names), SCHEMA))
        if frame is None:
            return pl.DataFrame(schema=_polars_schema())
        cutoff = visible.cutoff(segment)
        own = frame.filter(pl.col("step").is_in(list(segment.steps)))
        return own if cutoff is None else own.filter(pl.col("step") < cutoff.step)


def why_absent(logged: Sequence[str], gaps: Sequence[str]) -> dict[str, str]:
    """`<gap>/<metric>` -> "because ..." for every metric of these gaps, of a run that holds logged numbers alone."""
    return {
        name: f"because {SCALAR_LOG}: it has no sum over all steps"
        if name in logged
        else f"because {SCALAR_LOG}, and the log has no number of this definition"
        for gap in gaps
        for name in [f"{gap}/{metric.name}" for metric in METRICS if metric.is_of(gap)]
    }


def _wide(table: pl.DataFrame) -> pl.DataFrame:
    """attempt, step, and a column for each metric of each gap that was logged, as metric_frame has them."""
    gaps = _gaps(table["metric"].drop_nulls().unique().to_list())
    schema = [name for gap in gaps for metric in METRICS if metric.is_of(gap) for name in _columns(gap, metric)]
    known = table.filter(pl.col("metric").is_in(schema))  # another name could be that of a key
    steps = table.select("attempt", "step").unique(maintain_order=True).cast(pl.Int64)
    if not len(known):
        return steps
    values = known.pivot("metric", index=["attempt", "step"], values="value", aggregate_function="last").cast(
        {"attempt": pl.Int64, "step": pl.Int64}
    )
    own = steps.join(values, on=["attempt", "step"], how="left", maintain_order="left")
    return own.select("attempt", "step", *(_finished(own, name) for name in schema)).sort("step", "attempt")


def _finished(frame: pl.DataFrame, name: str) -> pl.Expr:
    """The column, NaN as null: not available, as in every frame of metrics."""
    return (pl.col(name).fill_nan(None) if name in frame.columns else pl.lit(None, pl.Float64)).alias(name)


def _columns(gap: str, metric: Metric) -> tuple[str, ...]:
    name = f"{gap}/{metric.name}"
    return (name, f"{name}_se") if metric.error is not None else (name,)


def _gaps(metrics: Sequence[str]) -> list[str]:
    present = {metric.partition("/")[0] for metric in metrics}
    return [gap for gap in GAPS if gap in present]


def _polars_schema() -> pl.Schema:
    frame = pl.DataFrame(SCHEMA.empty_table())
    return frame.schema


def note_on(logged: pl.DataFrame) -> str:
    """The sentence on a run that was made of a scalar log, with the trainer's name of each metric. logged: see `table`."""
    known = logged.filter(pl.col("metric").is_not_null()).select("metric", "name").unique().sort("metric", "name")
    words = [f"{metric} is its {printable(name)}" for metric, name in known.iter_rows()]
    named = f": {', '.join(words)}" if words else ", and none of them is a metric of ours"
    return f"{SCALAR_LOG}. Its metrics are numbers that the trainer logged, without standard errors{named}"
