"""Writes samples into a new run as a collector would, in units that a later import can go on behind."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.collectors.batch.given_numbers import SequenceNumbers
from ratioscope.collectors.batch.text_policy import Text
from ratioscope.collectors.collector import Collector
from ratioscope.collectors.process.ranks import label
from ratioscope.errors import SourceError
from ratioscope.ingest.importers.samples import EITHER, OF_TOKENS, PER_TOKEN, RecordedRow, Rejected
from ratioscope.ingest.importers.topk import topk_arguments
from ratioscope.layout import REJECTED

from . import import_units
from .import_units import ImportChanged, RowDigest, Units
from .rejected_rows import RejectedRows, Written, unique

MOST_ROWS, MOST_TOKENS = 512, 1 << 18
"""The most rows and tokens of one call of `log`; a row may have more."""
_QUEUE_BYTES = 1 << 26
_PER_SEQUENCE = (
    "sequence_ids", "group_ids", "rewards", "finish_reasons", "prompt_texts", "generation_step", "trainer_version", "replica",
    "extra", "prompt_tokens", "cached_tokens",
)  # fmt: skip


def write(
    staged: Path,
    rows: Iterable[RecordedRow | Rejected],
    *,
    name: str,
    trainer: str | None,
    config: Any,
    strict: bool,
    resolution: Mapping[str, float] | None = None,
    text: Text = "full",
) -> Written:
    """Writes all samples that no whole unit holds, and lists the rejected rows in a file of the run.

    strict: raises at the first rejected row. resolution: policy -> the largest error of its log-probs, as for Collector. text:
    the texts that are kept, as for Collector; the reasons of rejected rows quote no value either, unless all are.
    ImportChanged if the rows are not those that the whole units were made of.
    """
    done, numbers = Written(), SequenceNumbers(label(None, None))
    run = {"name": name, "trainer": trainer, "config": config, "resolution": resolution or None, "text": text}
    units, written = Units(staged, run), None
    with RejectedRows(staged / REJECTED, done, strict, quotes=text == "full") as listing:
        for unit in _units(_batches(unique(rows, listing))):
            if units.kept:
                units.check(_taken(unit, None, numbers, done))
                continue
            if written is not None:  # the last unit is not listed: after it the run is whole
                units.add(written)
            with _collector(staged, run) as collector:
                written = _taken(unit, collector, numbers, done)
    if units.kept:
        raise ImportChanged("the source has fewer rows than when the import was interrupted")
    return done


def _taken(
    unit: Iterable[list[RecordedRow]], collector: Collector | None, numbers: SequenceNumbers, done: Written
) -> RowDigest:
    """The digest of a unit's rows, which are written unless they are kept."""
    digest = RowDigest()
    for batch in unit:
        step, minibatch, ids = batch[0].step or 0, batch[0].values.get("minibatch"), _missing_ids(batch, numbers)
        if collector is not None:
            collector.log(step=step, minibatch=minibatch, **arguments(batch), **ids)
        digest.add(batch)
        done.rows += len(batch)
        done.tokens += sum(map(_tokens, batch))
        done.steps.add(step)
    return digest


def _missing_ids(batch: list[RecordedRow], numbers: SequenceNumbers) -> dict[str, Any]:
    """Ids of rows that have none: they are numbered over all units, as one collector numbers them."""
    if "sequence_ids" in batch[0].values:
        return {}
    step = batch[0].step or 0
    begin, first = numbers.take(step, batch[0].values.get("minibatch"), len(batch))
    return {"sequence_ids": [f"{step}-{begin}-{index}" for index in range(first, first + len(batch))]}


@contextmanager
def _collector(staged: Path, run: Mapping[str, Any]) -> Iterator[Collector]:
    """A collector of which every row is on disk at the end, or SourceError is raised."""
    with Collector(
        staged, **run, attempt=0, writer="thread", when_full="wait", queue_bytes=_QUEUE_BYTES, strict=True
    ) as made:
        yield made
        if not made.flush(timeout=None):
            raise SourceError(f"not all rows reached the disk: {made.counts.losses}; check the disk and import again")
        made.close(timeout=None)


def _units(batches: Iterable[list[RecordedRow]]) -> Iterator[Iterator[list[RecordedRow]]]:
    """The batches in units of about TOKENS tokens. No step begins in one unit and goes on in the next one."""
    number, tokens, step = 0, 0, None

    def unit_of(batch: list[RecordedRow]) -> int:
        nonlocal number, tokens, step
        if tokens >= import_units.TOKENS and batch[0].step != step:
            number, tokens = number + 1, 0
        tokens, step = tokens + sum(map(_tokens, batch)), batch[0].step
        return number

    return (unit for _, unit in groupby(batches, unit_of))


def _batches(rows: Iterable[RecordedRow]) -> Iterator[list[RecordedRow]]:
    """Rows of one step and minibatch that are written together, with or without ids alike."""
    batch: list[RecordedRow] = []
    tokens = 0
    for row in rows:
        if batch and (_kind(row) != _kind(batch[0]) or len(batch) >= MOST_ROWS or tokens >= MOST_TOKENS):
            yield batch
            batch, tokens = [], 0
        batch.append(row)
        tokens += _tokens(row)
    if batch:
        yield batch


def _kind(row: RecordedRow) -> tuple[Any, ...]:
    return row.step, row.values.get("minibatch"), "sequence_ids" in row.values


def _tokens(row: RecordedRow) -> int:
    return next(len(row.values[name]) for name in PER_TOKEN if isinstance(row.values.get(name), np.ndarray))


def arguments(batch: list[RecordedRow]) -> dict[str, Any]:
    """The arguments of `Collector.log` for rows of one step."""
    present = {name for row in batch for name in row.values}
    given: dict[str, Any] = {
        name: [row.values.get(name) for row in batch]
        for name in (*OF_TOKENS, *_PER_SEQUENCE, "prompt_ids")
        if name in present
    }
    for name in EITHER:
        if name in present:
            given[name] = _either([row.values.get(name) for row in batch], batch)
    bounds = {which: [row.values.get(f"rollout_version_{which}") for row in batch] for which in ("min", "max")}
    if "rollout_versions" not in given and any(v is not None for column in bounds.values() for v in column):
        given["rollout_versions"] = bounds
    return given | topk_arguments((row.values, _tokens(row)) for row in batch)


def _either(values: list[Any], batch: list[RecordedRow]) -> list[Any]:
    """One value per sequence; where any row has one per token, one per token of every row."""
    if not any(isinstance(value, np.ndarray) for value in values):
        return values
    return [
        value if value is None or isinstance(value, np.ndarray) else np.full(_tokens(row), value)
        for value, row in zip(values, batch, strict=True)
    ]
