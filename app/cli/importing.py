"""Writes samples into a new run as a collector would: in a folder beside it, which gets the run's name once it is whole."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from ratioscope.collectors.batch.sequence_numbers import SequenceNumbers
from ratioscope.collectors.collector import Collector
from ratioscope.collectors.process.ranks import label
from ratioscope.errors import ConfigError, SourceError
from ratioscope.ingest.importers.samples import EITHER, PER_TOKEN, RecordedRow, Rejected

from ..export.whole_file import place_error
from ..presentation.digits import count
from . import import_units
from .import_units import UNITS, ImportChanged, RowDigest, Units, roll_back
from .interruption import ended_in_order
from .terminal import note

MOST_ROWS, MOST_TOKENS = 512, 1 << 18
"""The most rows and tokens of one call of `log`; a row may have more."""
_QUEUE_BYTES = 1 << 26
_PLACE = "a new run in a folder"
REJECTED = "import/rejected.jsonl"
SHOWN = 20
_PER_SEQUENCE = (
    "sequence_ids", "group_ids", "rewards", "finish_reasons", "prompt_texts", "generation_step", "trainer_version", "replica",
    "extra", "prompt_tokens", "cached_tokens",
)  # fmt: skip


@dataclass
class Written:
    """The rows and files of a source that were written."""

    rows: int = 0
    tokens: int = 0
    steps: set[int] = field(default_factory=set)
    rejected: int = 0
    first_rejected: list[Rejected] = field(default_factory=list)


@contextmanager
def new_run(run: Path) -> Iterator[Path]:
    """A folder that becomes the run if nothing is raised. Otherwise its whole units are kept, and it is removed if it has none.

    An import that was killed leaves a folder `.NAME.importing` behind. The next one says so, and goes on behind its last whole
    unit. ConfigError while another import writes it.
    """
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise ConfigError(f"{run} exists already; give the name of a new run with -o")
    with place_error(run, _PLACE):
        run.parent.mkdir(parents=True, exist_ok=True)
    staged = run.parent / f".{run.name}.importing"
    if staged.is_symlink() or (staged.exists() and not staged.is_dir()):
        raise ConfigError(f"{staged} is in the way; remove it")
    was_there = staged.exists()
    with _locked(run, staged), ended_in_order():
        try:
            if was_there:
                _take_up(run, staged)
            yield staged
            if run.is_dir():
                run.rmdir()
            os.replace(staged, run)
        except BaseException as error:
            _leave(run, staged, keeps=not isinstance(error, ImportChanged))
            raise
    (run / UNITS).unlink(missing_ok=True)


def _take_up(run: Path, staged: Path) -> None:
    """Rolls back what an interrupted import left unfinished, and says what is kept of it."""
    begins = f"an import into {run} was interrupted"
    if rows := roll_back(staged):
        note(
            f"{begins}: {count(rows, 'row')} of it are kept if the source still has them, and the import goes on behind them"
        )
    else:
        note(f"{begins}, and what it had written is removed; the import begins anew")


def _leave(run: Path, staged: Path, *, keeps: bool) -> None:
    if keeps and (rows := roll_back(staged)):
        note(f"{count(rows, 'row')} are kept in {staged}: the same import into {run} goes on behind them")
    else:
        shutil.rmtree(staged, ignore_errors=True)


@contextmanager
def _locked(run: Path, staged: Path) -> Iterator[None]:
    """Holds the lock of the folder, which ends with the process. ConfigError where another import holds it."""
    taken = ConfigError(f"another import writes {run} now; wait for it, or give another name with -o")
    with place_error(run, _PLACE):
        staged.mkdir(mode=0o700, exist_ok=True)
    folder = os.open(staged, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise taken from None
        if not staged.exists() or not os.path.samestat(os.fstat(folder), os.stat(staged)):
            raise taken
        yield
    finally:
        os.close(folder)


def write(
    staged: Path,
    rows: Iterable[RecordedRow | Rejected],
    *,
    name: str,
    trainer: str | None,
    config: Any,
    strict: bool,
    resolution: Mapping[str, float] | None = None,
) -> Written:
    """Writes all samples that no whole unit holds, and lists the rejected rows in a file of the run.

    strict: raises at the first rejected row. resolution: policy -> the largest error of its log-probs, as for Collector.
    Changed if the rows are not those that the whole units were made of.
    """
    done, numbers = Written(), SequenceNumbers(label(None, None))
    run = {"name": name, "trainer": trainer, "config": config, "resolution": resolution or None}
    units, written = Units(staged, run), None
    with RejectedRows(staged / REJECTED, done, strict) as listing:
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


class RejectedRows:
    """The file of rejected rows; made with the first."""

    def __init__(self, path: Path, done: Written, strict: bool) -> None:
        self._path, self._done, self._strict = path, done, strict
        self._file: Any = None

    def __enter__(self) -> "RejectedRows":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, rejected: Rejected) -> None:
        """Lists a row. With strict it raises SourceError instead."""
        if self._strict:
            raise SourceError(
                f"{rejection_words(rejected)}; without --strict, this row is listed and the others are imported"
            )
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w", encoding="utf-8")
        self._file.write(json.dumps(asdict(rejected)) + "\n")
        self._done.rejected += 1
        if len(self._done.first_rejected) < SHOWN:
            self._done.first_rejected.append(rejected)


def rejection_words(rejected: Rejected) -> str:
    """A rejected row in words."""
    row = "" if rejected.row is None else f", row {rejected.row}"
    column = "" if rejected.field is None else f", {rejected.field}"
    return f"{rejected.file}{row}{column}: {rejected.reason}"


def unique(rows: Iterable[RecordedRow | Rejected], listing: RejectedRows) -> Iterator[RecordedRow]:
    """The samples; one whose id the step has already is listed as a duplicate. Ids of the newest steps are known."""
    known: dict[int, dict[tuple[Any, Any], RecordedRow]] = {}
    for row in rows:
        if isinstance(row, Rejected):
            listing.add(row)
            continue
        step = row.step or 0
        if step not in known:
            while len(known) >= 16:
                known.pop(next(iter(known)))
            known[step] = {}
        key = row.values.get("sequence_ids"), row.values.get("minibatch")
        if key[0] is not None and key in known[step]:
            first = known[step][key]
            listing.add(Rejected(row.file, row.row, "sequence_ids", _twice(row, first)))
            continue
        if key[0] is not None:
            known[step][key] = RecordedRow(row.step, {}, {}, row.file, row.row)
        yield row


def _twice(row: RecordedRow, first: RecordedRow) -> str:
    """Why a second sequence of one id is not imported: it is the same, or of another run."""
    id_ = str(row.values["sequence_ids"])[:80]
    reason = f"step {row.step or 0} has the sequence {id_} already, as row {first.row} of {first.file}"
    apart = PurePath(row.file).parent != PurePath(first.file).parent
    return f"{reason}; if the folders are of two runs, import each by itself" if apart else reason


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
        for name in (*PER_TOKEN, *_PER_SEQUENCE, "prompt_ids")
        if name in present
    }
    for name in EITHER:
        if name in present:
            given[name] = _either([row.values.get(name) for row in batch], batch)
    bounds = {which: [row.values.get(f"rollout_version_{which}") for row in batch] for which in ("min", "max")}
    if "rollout_versions" not in given and any(v is not None for column in bounds.values() for v in column):
        given["rollout_versions"] = bounds
    return given


def _either(values: list[Any], batch: list[RecordedRow]) -> list[Any]:
    """One value per sequence; where any row has one per token, one per token of every row."""
    if not any(isinstance(value, np.ndarray) for value in values):
        return values
    return [
        value if value is None or isinstance(value, np.ndarray) else np.full(_tokens(row), value)
        for value, row in zip(values, batch, strict=True)
    ]
