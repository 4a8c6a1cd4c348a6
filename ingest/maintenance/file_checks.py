"""Checks one file of a run against its commit: size, digest and footer, and (deep) every page and the rows themselves.

For files of readings it also finds what `repair` can do, and those that go with pruned rows.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.errors import RatioscopeError, SourceError
from ratioscope.inside import open_regular
from ratioscope.layout import READINGS
from ratioscope.metrics.engines.agreement import RELATIVE
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.merging import KEYS, LONE
from ratioscope.record import POLICIES, TOKEN_FIELDS
from ratioscope.topk import TOPK

from ..commits.catalog import Catalog
from ..commits.entries import OverallFile, Segment, TokenFile
from ..commits.reading_files import ReadingFile, committed_reading
from ..commits.recovery import commit_in_footer
from ..commits.visible_files import unnamed_readings
from ..files.columns import SCHEMA, demand_scalars
from ..files.parquet_files import Opened, ParquetFiles, read
from ..files.quarantine import faults_set_aside, printable
from ..remote.store import Unreachable
from ..rows.reading_rows import Fit, demanded_rows
from ..rows.record_rows import committed_size, demand_footer, demand_keys, demand_token_file
from ..run import open_run
from ..statistics.statistics_files import OverallRows, demand_known_segment, opened_segment, segment_rows

_OWN_LENGTH = ("advantages",)  # a list of length 1 is one value for the sequence


class RowsDisagree(SourceError):
    """The file is as it was written and can be read, but its rows contradict its commit or each other."""


@dataclass(frozen=True, order=True)
class Trouble:
    """One thing that is wrong with a run."""

    file: str
    found: str
    """The fault, in words."""
    wanted: str
    """The expected state, in words."""
    advice: str
    """The action to take, in words."""

    def __post_init__(self) -> None:
        for name in ("file", "found"):
            object.__setattr__(self, name, printable(getattr(self, name)))


def demand_rows(files: ParquetFiles, file: TokenFile, *, deep: bool) -> None:
    """SourceError unless the digest and footer of the token file fit its commit; deep: also every page and the rows."""
    if not deep and file.sha256 is not None:
        footer = files.footer(file.path, committed_size(file), file.sha256)
        demand_footer(footer, file)
        if _says_its_keys(footer, file):
            return
    with files.opened(file.path, committed_size(file), file.sha256) as parquet:
        demand_token_file(parquet, file)
        names = parquet.schema_arrow.names if deep else ["step", "attempt", "sequence_id"]
        table = read(parquet, names)
        demand_keys(table, file)
        if deep:
            _demand_alike(table, file)


def _says_its_keys(footer: pq.FileMetaData, file: TokenFile) -> bool:
    """True if the footer's bounds show that all rows have this step and attempt, and a sequence_id.

    The footer can be trusted: it was written with the rows, and the digest was checked.
    """
    wanted = {"step": file.step, "attempt": file.attempt, "sequence_id": None}
    names = [footer.schema.column(place).path for place in range(footer.num_columns)]
    for place in (names.index(name) for name in wanted if name in names):
        for group in range(footer.num_row_groups):
            # Any: the stubs lack has_null_count, and allow None as a bound in spite of has_min_max
            bounds: Any = footer.row_group(group).column(place).statistics
            value = wanted[names[place]]
            if bounds is None or not bounds.has_null_count or bounds.null_count:
                return False
            if value is not None and not (bounds.has_min_max and bounds.min == bounds.max == value):
                return False
    return True


def demand_file(files: ParquetFiles, item: TokenFile | Segment, *, deep: bool) -> None:
    """An error unless the file can be read and agrees with its commit. deep: every page of it."""
    if isinstance(item, TokenFile):
        demand_rows(files, item, deep=deep)
    else:
        demand_segment_file(files, item, deep=deep)


def demand_segment_file(files: ParquetFiles, segment: Segment, *, deep: bool) -> None:
    """SourceError unless the segment has the steps of its commit; more steps are right where its writer replaced it since."""
    with opened_segment(files, segment) as (parquet, is_newer):
        _demand_steps(parquet, segment, deep or is_newer, more=is_newer)


def demand_overall(files: ParquetFiles, file: OverallFile, segments: Sequence[Segment], *, deep: bool) -> None:
    """SourceError unless the file of overall statistics is as committed. deep: its rows are those of its segments, too."""
    if not deep:
        files.footer(file.path, file.bytes, file.sha256)
        return
    names = (*(name for name in SCHEMA.names if name not in KEYS), *LONE)
    repeated = OverallRows(files).of(file, segments, names)
    for segment, rows in zip(segments, repeated, strict=True):
        one, other = (pl.DataFrame(each) for each in (rows, segment_rows(files, segment, [(("all",), names)])[0]))
        if not one.drop(LONE).equals(other.drop(LONE)) or not _shapes_agree(one, other):
            raise SourceError(f"its rows are not those of {segment.path}")


def _shapes_agree(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """True if the shapes of tails differ by no more than rounding: their writer's machine may round otherwise."""
    found, wanted = (frame.select(pl.col(LONE).fill_null(float("nan"))).to_numpy() for frame in (one, other))
    return np.allclose(found, wanted, rtol=RELATIVE, atol=RELATIVE, equal_nan=True)


def _demand_steps(parquet: Opened, segment: Segment, deep: bool, *, more: bool) -> None:
    if segment.is_scalars:
        demand_scalars(parquet.schema_arrow)
    else:
        demand_known_segment(parquet.metadata)
    table = read(parquet, parquet.schema_arrow.names if deep else ["attempt", "step"])
    steps = set(pc.unique(table["step"]).to_pylist())
    if not (steps >= segment.steps if more else steps == segment.steps):
        odd = sorted(map(str, steps ^ segment.steps))[:3]
        raise SourceError(f"its rows are not of the steps of its commit: {', '.join(odd)} only in one of the two")
    attempts = pc.unique(table["attempt"]).to_pylist()
    if attempts != [segment.attempt] and len(table):
        raise SourceError(f"its rows have attempts {attempts[:3]}, its writer is of attempt {segment.attempt}")


def _demand_alike(table: pa.Table, file: TokenFile) -> None:
    """RowsDisagree unless all lists of a row have one length, and the rows have the committed policies and number of tokens."""
    lengths = {
        name: _lengths(table, name) for name in TOKEN_FIELDS if name in table.column_names and name not in _OWN_LENGTH
    }
    longest = np.maximum.reduce(list(lengths.values())) if lengths else np.zeros(len(table), np.int64)
    for name, own in lengths.items():
        odd = np.flatnonzero((own >= 0) & (own != longest))
        if len(odd):
            row = int(odd[0])
            raise RowsDisagree(
                f"row {row} has {own[row]} {name} and {longest[row]} tokens: {len(odd)} rows are like that"
            )
    policies = {policy for policy in POLICIES if (lengths.get(f"{policy}_logprobs", np.array([-1])) >= 0).any()}
    if policies != file.policies:
        raise RowsDisagree(
            f"its rows hold {', '.join(sorted(policies))}, its commit states {', '.join(sorted(file.policies))}"
        )
    columns = [lengths[f"{policy}_logprobs"] for policy in policies]
    tokens = int(np.maximum(np.maximum.reduce(columns), 0).sum()) if columns else 0
    if tokens != file.tokens and not file.recovered:
        raise RowsDisagree(f"its rows have {tokens} tokens, its commit states {file.tokens}")


def _lengths(table: pa.Table, name: str) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Length of each row's list; -1 where the list is null."""
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        pc.fill_null(pc.list_value_length(table[name]), -1).cast(pa.int64()).to_numpy()
    )
    return lengths


_WANTED_FIT = "readings of the sequences that are on record, as long as these"
_MISFIT = "no reader uses them; record the reading again, with the attempt, step and sequence_id that `Run.rows` gives"
_DAMAGED = "the tokens stand; record the reading again. `ratioscope repair RUN` moves the file to RUN/quarantine"
_DAMAGED_TOPK = "the tokens stand, without top-k. `ratioscope repair RUN` moves the file to RUN/quarantine"
_NO_COMMIT = "`ratioscope repair RUN` commits it, once its writer has ended"


def reading_troubles(catalog: Catalog) -> Iterator[Trouble]:
    """Files of readings and of top-k that are not as committed, or that no line names."""
    for file in sorted(catalog.readings(), key=lambda file: file.path):
        if (damage := damage_of(catalog, file)) is not None:
            wanted = f"{file.rows} rows of step {file.step}, {file.bytes} bytes, sha256 {file.sha256[:12]}"
            yield Trouble(file.path, damage, wanted, _DAMAGED_TOPK if file.reading == TOPK else _DAMAGED)
    for path in unnamed_readings(catalog):
        yield Trouble(path, "no commit names it, so that it is not read", "a commit line", _NO_COMMIT)


def misfits(root: Path) -> Iterator[Trouble]:
    """Readings of sequences that are not on record, or of another length. This reads the rows."""
    for name, fit in open_run(root).reading_fits().items():
        if words := misfit_words(fit):
            yield Trouble(f"{READINGS}/{name}", words, _WANTED_FIT, _MISFIT)


def misfit_words(fit: Fit) -> str:
    """The number of rows of a reading that do not fit, and why; "" where all do."""
    parts = [
        f"{fit.unknown} of its rows are of sequences that are not on record" if fit.unknown else "",
        f"{fit.mismatched} are of another length than their sequence" if fit.mismatched else "",
    ]
    return ", and ".join(part for part in parts if part)


def damage_of(catalog: Catalog, file: ReadingFile) -> str | None:
    """Why the file cannot be read; None where it is as committed."""
    try:
        demanded_rows(catalog.files, file)
    except Unreachable:
        raise
    except RatioscopeError as error:
        return str(error)
    return None


def unnamed_commits(catalog: Catalog) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, its commit line) of complete files of readings and top-k that no line names. Others are set aside."""
    for path in unnamed_readings(catalog):
        with faults_set_aside(path, catalog.quarantine):
            entry = commit_in_footer(catalog.files, path)
            if entry is None:
                raise SourceError("no commit names it, and its footer does not say what it is a reading of")
            with open_regular(catalog.root, path) as content:
                data = content.read()
            entry = {**entry, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            demanded_rows(catalog.files, committed_reading(entry, "", 0))
            yield path, entry


def readings_of(catalog: Catalog, attempt: int, steps: Iterable[int]) -> tuple[str, ...]:
    """Files of readings and of top-k of these steps: without the rows that they are of they mean nothing."""
    chosen = set(steps)
    return tuple(file.path for file in catalog.readings() if file.attempt == attempt and file.step in chosen)
