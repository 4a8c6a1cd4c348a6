"""Writes the rows of a scalar log into a new run that holds numbers by step, and no tokens."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from ratioscope.collectors.writing.offline import ScalarLog
from ratioscope.collectors.writing.run_file import run_info
from ratioscope.errors import SourceError
from ratioscope.ingest.importers.samples import Rejected
from ratioscope.ingest.importers.scalars.agreement import LoggedMetrics, likely_trainer
from ratioscope.ingest.importers.scalars.attempts import Attempts
from ratioscope.ingest.importers.scalars.number_row import LogChoices, Logged
from ratioscope.ingest.importers.scalars.sources import ScalarSource
from ratioscope.kept_settings import DEPTH
from ratioscope.layout import REJECTED
from ratioscope.record import scalar_schema

from .rejected_rows import RejectedRows, Written

LOOKED_AT = 256
"""Rows whose names say which trainer wrote the log."""
_VALUES = 1 << 17
"""Values of one file of the run."""


@dataclass
class ScalarsWritten:
    """The outcome of writing a scalar log."""

    values: int = 0
    """Numbers that were written."""
    not_finite: int = 0
    """Numbers among them that are NaN or infinite."""
    steps: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    attempts: Attempts = field(default_factory=Attempts)
    listed: Written = field(default_factory=Written)
    """The rows that were rejected."""
    dialect_unknown: str | None = None
    """Why no trainer is known to have written it."""


def write_scalars(
    staged: Path,
    rows: Iterable[Logged | Rejected],
    names: LoggedMetrics,
    *,
    name: str,
    source: ScalarSource,
    origin: str,
    strict: bool,
    choice: LogChoices,
) -> ScalarsWritten:
    """Writes all rows, an attempt for each start of the job, and lists the rejected ones. names: its dialect is filled in."""
    done = ScalarsWritten()
    with RejectedRows(staged / REJECTED, done.listed, strict) as listing:
        own = _listed(rows, listing)
        first = list(islice(own, LOOKED_AT))
        if names.dialect is None:
            names.dialect, done.dialect_unknown = likely_trainer(name for row in first for name in row.values)
        trainer = names.dialect if names.dialect != "ratioscope" else None
        said = {"format": source.name, "dialect": names.dialect, "version": names.version, "step": choice.step}
        info = {**run_info(name, trainer, {**_nested(choice.config), "imported_from": origin}), "scalar_log": said}
        log: ScalarLog | None = None
        waiting, attempt = _Waiting(names), 0
        for number, row in done.attempts.of(chain(first, own)):
            if log is None or number != attempt:
                _end(log, waiting)
                log, attempt = ScalarLog(staged, info, number), number
            waiting.add(row, done)
            if len(waiting.steps) >= _VALUES:
                log.write(waiting.table())
        _end(log, waiting)
    if not done.values:
        why = done.listed.first_rejected
        raise SourceError(f"nothing of {origin} can be imported: {why[0].reason if why else 'it holds no number'}")
    return done


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Names that are joined by dots as objects in each other, as a trainer's config has them. A name in the way stays as it is.

    >>> _nested({"actor.lr": 1, "actor.clip": 2, "seed": 3, "seed.a": 4})
    {'actor': {'lr': 1, 'clip': 2}, 'seed': 3, 'seed.a': 4}
    """
    nested: dict[str, Any] = {}
    for name, value in settings.items():
        *outer, last = name.split(".") if name.count(".") < DEPTH else [name]
        place: Any = nested
        for part in outer:
            place = place.setdefault(part, {}) if isinstance(place, dict) else None
        is_free = isinstance(place, dict) and last not in place
        (place if is_free else nested)[last if is_free else name] = value
    return nested


def _listed(rows: Iterable[Logged | Rejected], listing: RejectedRows) -> Iterator[Logged]:
    for row in rows:
        if isinstance(row, Rejected):
            listing.add(row)
        else:
            yield row


def _end(log: ScalarLog | None, waiting: "_Waiting") -> None:
    if log is None:
        return
    if waiting.steps:
        log.write(waiting.table())
    log.close()


@dataclass
class _Waiting:
    """Values that are not written yet."""

    names: LoggedMetrics
    steps: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """The trainer's name of each value."""
    values: list[float] = field(default_factory=list)
    """One per step in `steps`."""
    metrics: list[str | None] = field(default_factory=list)

    def add(self, row: Logged, done: ScalarsWritten) -> None:
        for name, value in row.values.items():
            self.steps.append(row.step)
            self.keys.append(name)
            self.values.append(value)
            self.metrics.append(self.names.metric(name))
            done.not_finite += value - value != 0
        done.values += len(row.values)
        done.steps.add(row.step)
        done.names.update(row.values)

    def table(self) -> pa.Table:
        """The values, which no longer wait."""
        schema = scalar_schema()
        columns: dict[str, Any] = {"step": self.steps, "name": self.keys, "value": self.values, "metric": self.metrics}
        table = pa.table({name: pa.array(values, schema.field(name).type) for name, values in columns.items()})
        self.steps, self.keys, self.values, self.metrics = [], [], [], []
        return table
