"""The table of a run at one level, a few steps at a time: the frames of `Run.metrics`, `Run.sequences` and `Run.tokens`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from ratioscope.errors import ConfigError, SourceError
from ratioscope.ingest.rows.token_frame import token_schema
from ratioscope.metrics.definitions.registry import METRICS, of_column
from ratioscope.record import BETWEEN, GAPS, POLICIES, kin, sides

from .probe import probe_table

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

RowLevel = Literal["step", "sequence", "token"]
LEVELS: tuple[RowLevel, ...] = ("step", "sequence", "token")
TEXTS = ("prompt_text", "token_text", "token_id", "sampled_id", "extra")
"""Columns that hold text, that a tokenizer turns into text, or that may hold anything. --no-text leaves them out."""
STEPS_AT_ONCE = 256
"""Steps of metrics that are read together: four segments of statistics."""


@dataclass(frozen=True)
class ExportedPart:
    """The part of a run that is exported."""

    level: RowLevel
    steps: range | None = None
    """Only these; None: all."""
    gap: str | None = None
    """Only this one; None: all of GAPS that are on record."""
    metrics: tuple[str, ...] = ()
    """Only these; empty: all."""
    text: bool = True
    """False leaves out the columns in TEXTS."""

    def has(self, step: int) -> bool:
        """True if the step is part of it."""
        return self.steps is None or step in self.steps


@dataclass(frozen=True)
class ColumnSource:
    """One column of the exported table, and the column of the probe that its formula is recognised by."""

    type: pl.DataType
    of_probe: str | None
    """None for a recorded column, which no formula makes."""


def columns(run: "Run", part: ExportedPart) -> dict[str, ColumnSource]:
    """The columns of the table, in order. They depend on what is on record, and not on the steps that are asked for."""
    every = {"step": _metric_columns, "sequence": _sequence_columns, "token": _token_columns}[part.level](run, part)
    return {name: source for name, source in every.items() if part.text or name not in TEXTS}


def steps_with_rows(run: "Run", part: ExportedPart) -> list[int]:
    """The steps that the table has rows of. ConfigError if --steps selects none, SourceError if none has token rows."""
    chosen = [step for step in run.steps if part.has(step)]
    if run.steps and not chosen:
        raise ConfigError(f"no step of --steps is on record; the run has steps {run.steps[0]} to {run.steps[-1]}")
    if part.level == "step":
        return chosen
    with_rows = run.rows_on_disk
    chosen = [step for step in chosen if step in with_rows]
    if not chosen:
        if reason := run.no_tokens:
            raise SourceError(f"--level {part.level} is not available, because {reason}; try: --level step")
        raise SourceError(
            f"--level {part.level} needs token rows, and the run {run.name} has none of these steps on record (a budget may have "
            "left them to the statistics); try: --level step"
        )
    return chosen


def frames(run: "Run", part: ExportedPart, steps: Sequence[int]) -> Iterator[tuple[int, pl.DataFrame]]:
    """(number of steps that are done, their rows), in the order of the steps, each frame with exactly the columns above."""
    wanted = columns(run, part)
    read = {"step": _metrics, "sequence": _sequences, "token": _tokens}[part.level]
    at_once = STEPS_AT_ONCE if part.level == "step" else 1
    for first in range(0, len(steps), at_once):
        block = steps[first : first + at_once]
        frame = read(run, part, block, list(wanted))
        yield (
            first + len(block),
            frame.select(
                (pl.col(name) if name in frame.columns else pl.lit(None)).cast(source.type).alias(name)
                for name, source in wanted.items()
            ),
        )


def _metrics(run: "Run", part: ExportedPart, steps: Sequence[int], wanted: Sequence[str]) -> pl.DataFrame:
    metrics = run.metrics(
        steps=range(steps[0], steps[-1] + 1), names=list(part.metrics) if part.metrics else None, gap=part.gap
    )
    return metrics.filter(pl.col("step").is_in(steps)) if "step" in metrics.columns else metrics


def _sequences(run: "Run", part: ExportedPart, steps: Sequence[int], wanted: Sequence[str]) -> pl.DataFrame:
    return run.sequences(steps[0], gap=part.gap)


def _tokens(run: "Run", part: ExportedPart, steps: Sequence[int], wanted: Sequence[str]) -> pl.DataFrame:
    return run.tokens(steps, wanted).collect()


def _metric_columns(run: "Run", part: ExportedPart) -> dict[str, ColumnSource]:
    sources = {"step": ColumnSource(pl.Int64(), None)}
    for gap in run.gaps if part.gap is None else (part.gap,):
        for metric in (m for m in METRICS if m.is_of(gap) and (not part.metrics or m.name in part.metrics)):
            names = [metric.name, f"{metric.name}_se"] if metric.error else [metric.name]
            sources |= {f"{gap}/{name}": ColumnSource(pl.Float64(), f"{kin(gap)}/{name}") for name in names}
    return sources


def _sequence_columns(run: "Run", part: ExportedPart) -> dict[str, ColumnSource]:
    """Recorded facts, and the columns of each gap that has both sides in token rows."""
    table = probe_table("sequence")
    facts = {name: kind for name, kind in table.schema.items() if "/" not in name}
    computed = ("length", "lag", "advantage")
    sources = {name: ColumnSource(kind, name if name in computed else None) for name, kind in facts.items()}
    present = [gap for gap in GAPS if set(sides(gap)) <= set(run.policies)]
    for gap in present if part.gap is None else (part.gap,):
        like = f"{kin(gap)}/"
        for name, kind in ((name, kind) for name, kind in table.schema.items() if name.startswith(like)):
            if not part.metrics or ((metric := of_column(name)) is not None and metric.name in part.metrics):
                sources[name.replace(like, f"{gap}/", 1)] = ColumnSource(kind, name)
    return sources


def _token_columns(run: "Run", part: ExportedPart) -> dict[str, ColumnSource]:
    """Recorded columns, log-ratios and weights; with a gap of readings their log-probs, too."""
    if part.metrics:
        raise ConfigError(
            "--metric: a token has log-ratios and weights and no metrics; wanted --level step or sequence"
        )
    schema = token_schema()
    own = [f"{gap}{end}" for gap in GAPS for end in ("", "_weight")]
    if part.gap is not None:
        mine = [part.gap, f"{part.gap}_weight"]
        read = [f"{side}_logprob" for side in sides(part.gap) if BETWEEN in part.gap and side not in POLICIES]
        schema = token_schema((*read, *mine) if BETWEEN in part.gap else ())
        schema = pl.Schema({name: kind for name, kind in schema.items() if name in mine or name not in own})
    computed = [name for name in schema if name in own or BETWEEN in name]
    return {name: ColumnSource(kind, _like(name) if name in computed else None) for name, kind in schema.items()}


def _like(name: str) -> str:
    gap = name.removesuffix("_weight")
    return f"{kin(gap)}{name[len(gap) :]}"
