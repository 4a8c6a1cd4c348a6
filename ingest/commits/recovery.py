"""Describes files that no commit names, because their log is missing or torn, by their Parquet footers.

A writer renames a file only when it is complete, so the footer holds what the commit held, except two things: the digest, and
whether the statistics of the step were written after the file. The sequences counted by the statistics answer the second.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq

from ratioscope.errors import RatioscopeError, SourceError
from ratioscope.flat_json import loaded
from ratioscope.layout import COMMIT_COPY, SCALARS, is_offline, writer_of
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.record import GAPS, POLICIES, SLICED_BY

from ..files.columns import demand_columns, demand_scalars, demand_segment
from ..files.footers import recorded_columns
from ..files.parquet_files import Opened, ParquetFiles, read
from ..files.quarantine import SetAside, faults_set_aside
from ..remote.store import Unreachable
from .entries import Segment, TokenFile, committed

COUNTS = ("sequences", "sequences_set_aside", "empty_sequences")
"""Statistics whose sum is the number of all sequences of a gap."""

_AttemptStep = tuple[str, int, int]
"""(writer, attempt, step)."""


def recovered_token_file(files: ParquetFiles, path: str) -> TokenFile:
    """The token file as its footer and keys describe it. SourceError if it is no token file."""
    with files.opened(path, None, None) as parquet:
        demand_columns(parquet.schema_arrow)
        keys = read(parquet, ("step", "attempt"))
        steps, attempts = (pc.unique(keys[name]).to_pylist() for name in ("step", "attempt"))
        if len(steps) != 1 or len(attempts) != 1 or None in (*steps, *attempts):
            raise SourceError(
                f"no commit names it, and it holds rows of steps {steps[:3]}, attempts {attempts[:3]}; wanted one of each"
            )
        if not path.startswith(f"tokens/step={steps[0]:09d}/"):
            raise SourceError(f"no commit names it, and its rows are of step {steps[0]}, not of its folder")
        columns = recorded_columns(parquet.metadata)
        policies = frozenset(policy for policy in POLICIES if f"{policy}_logprobs" in columns)
        return TokenFile(
            path,
            writer_of(path),
            attempts[0],
            steps[0],
            rows=parquet.metadata.num_rows,
            tokens=_tokens(parquet, policies),
            bytes=0,
            sha256=None,
            policies=policies,
            gaps=frozenset(gap for gap, sides in GAPS.items() if policies >= set(sides)),
            recovered=True,
            slice_columns=frozenset(columns) & frozenset(SLICED_BY),
            slices=parquet.metadata.num_rows if "positions" in columns else 0,
        )


def recovered_segment(files: ParquetFiles, path: str) -> Segment:
    """The statistics segment, or file of scalars, as its footer and keys describe it. SourceError if it is neither."""
    demand = demand_scalars if path.startswith(f"{SCALARS}/") else demand_segment
    with files.opened(path, None, None) as parquet:
        demand(parquet.schema_arrow)
        keys = read(parquet, ("attempt", "step"))
        attempts = pc.unique(keys["attempt"]).to_pylist()
        if len(attempts) != 1:
            raise SourceError(f"no commit names it, and it holds rows of attempts {attempts[:3]}; wanted one")
        return Segment(path, writer_of(path), attempts[0], frozenset(pc.unique(keys["step"]).to_pylist()), 0, None)


def recovered(files: ParquetFiles, path: str, set_aside: SetAside) -> TokenFile | Segment | None:
    """The file as a commit would have described it. A file that is not ours is set aside, and the result is None."""
    with faults_set_aside(path, set_aside):
        if is_offline(writer_of(path)):
            return _recovered_merge(files, path)
        return recovered_token_file(files, path) if path.startswith("tokens/") else recovered_segment(files, path)
    return None


def uncounted(
    files: ParquetFiles, recovered: Collection[TokenFile], others: Collection[TokenFile], segments: Collection[Segment]
) -> set[str]:
    """Paths of recovered files whose rows the statistics on record do not count.

    The writer ended after it had written the file and before it wrote the statistics: the statistics of the step count fewer
    sequences than the step has rows.
    """
    suspects = {_part(file) for file in recovered if not file.replaces}
    every = {file.path: file for file in (*others, *recovered) if _part(file) in suspects}
    rows: Counter[_AttemptStep] = Counter()
    for file in every.values():
        rows[_part(file)] += file.rows + file.left_out
    counted: Counter[_AttemptStep] = Counter()
    for segment in segments:
        steps = {step for step in segment.steps if (segment.writer, segment.attempt, step) in suspects}
        for step, sequences in _sequences(files, segment).items() if steps else ():
            counted[segment.writer, segment.attempt, step] += sequences
    return {file.path for file in recovered if 0 < counted[_part(file)] < rows[_part(file)]}


def _part(file: TokenFile) -> _AttemptStep:
    return file.writer, file.attempt, file.step


def _sequences(files: ParquetFiles, segment: Segment) -> dict[int, int]:
    """step -> number of sequences, of the gap with the most. Empty where the segment cannot be read."""
    try:
        with files.opened(segment.path, None, None) as parquet:
            table = read(parquet, ("step", "slice", *COUNTS))
    except Unreachable:
        raise
    except RatioscopeError:
        return {}
    table = table.filter(pc.equal(table["slice"], "all"))
    steps: dict[int, int] = {}
    for row in table.to_pylist():
        steps[row["step"]] = max(steps.get(row["step"], 0), int(sum(row[name] or 0 for name in COUNTS)))
    return steps


def commit_in_footer(files: ParquetFiles, path: str) -> dict[str, Any] | None:
    """The copy of its commit line in the footer of a file; None if there is none of this path."""
    with files.opened(path, None, None) as parquet:
        stored = (parquet.metadata.metadata or {}).get(COMMIT_COPY.encode())
    try:
        entry = loaded(stored or b"")
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and entry.get("file") == path else None


def _recovered_merge(files: ParquetFiles, path: str) -> TokenFile | Segment:
    """A merged file, read from the copy of its commit in its footer. The copy names the files it replaces, which must not be
    counted beside it."""
    entry = commit_in_footer(files, path)
    if entry is None:
        raise SourceError("no commit names it, and its footer does not say what it replaces")
    item = committed({**entry, "bytes": 0, "sha256": ""}, writer_of(path), 0)
    return replace(item, sha256=None, recovered=True) if isinstance(item, TokenFile) else replace(item, sha256=None)


def _tokens(parquet: Opened, policies: frozenset[str]) -> int:
    """Number of values in the longest log-prob column. Null lists count as none."""
    schema = parquet.metadata.schema
    paths = [schema.column(index).path for index in range(parquet.metadata.num_columns)]
    columns = [index for index, path in enumerate(paths) if path.split("_logprobs.")[0] in policies]
    groups = [parquet.metadata.row_group(group) for group in range(parquet.metadata.num_row_groups)]
    totals = (sum(_present(group.column(column)) for group in groups) for column in columns)
    return max(totals, default=0)


def _present(chunk: pq.ColumnChunkMetaData) -> int:
    nulls = chunk.statistics.null_count if chunk.statistics is not None else 0
    return int(chunk.num_values - (nulls or 0))
