"""The Parquet files of one writer in a run folder: token files and segments of statistics, each with its commit line."""

import errno
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa

from ratioscope import layout
from ratioscope.inside import content
from ratioscope.metrics.digits import size_on_disk
from ratioscope.record import GAPS, POLICIES, SCHEMA_VERSION, SLICED_BY

from ..batch.records import tokens_of
from ..process.counts import Tally, reason_of
from .durable_file import is_taken, make_folder, make_folders, sync_folder, write_whole
from .parquet_file import ReadingPart, commit_entry, parquet_bytes, written_part

_MOST_KNOWN = 64  # folders
_MOST_SEGMENT = 1 << 28  # bytes


class RunFiles:
    """Writes the files of `writer`. announce: writes a line to the commit log before a segment is replaced."""

    def __init__(self, root: Path, writer: str, announce: Callable[[Mapping[str, Any]], None]) -> None:
        self._root, self._writer, self._announce = root, writer, announce
        self._newest_segment: tuple[Path | None, str] = (None, "")  # and its digest
        self._durable = set[PurePath]()  # folders whose names are on disk for good

    def make_folders(self) -> None:
        """The folders of a run, in a run folder that was just made."""
        self._durable.clear()
        for folder in (layout.TOKENS, layout.STATISTICS, layout.COMMITS):
            self._make_folder(PurePath(folder))

    def make_step_folders(self, steps: Sequence[int]) -> None:
        """The folders of the token files of these steps, for which the disk is asked once."""
        paths = [layout.token_file(step, self._writer, 0).parent for step in steps]
        make_folders(self._root, layout.TOKENS, [path.name for path in paths])
        self._remember(*paths)

    def write_tokens(
        self, step: int, rows: pa.Table, *, left_out: int, tally: Tally, disk_reserve: int
    ) -> dict[str, Any]:
        """Writes a token file and returns its commit line.

        left_out: rows of the step that the budget did not keep. tally: counts of sequences so far. disk_reserve: bytes of the
        disk that must stay free; OSError if fewer would.
        """
        policies = [policy for policy in POLICIES if rows[f"{policy}_logprobs"].null_count < len(rows)]
        data = parquet_bytes(rows, {"ratioscope.writer": self._writer, "ratioscope.schema": str(SCHEMA_VERSION)})
        _demand_free(self._root, len(data), disk_reserve)
        self._make_folder(layout.token_file(step, self._writer, 0).parent)
        part = 0
        while is_taken(self._root, file := layout.token_file(step, self._writer, part)):
            part += 1
        write_whole(self._root, file, data)
        return {
            **commit_entry(file, data),
            "step": step,
            "rows": len(rows),
            "tokens": tokens_of(rows),
            "left_out": left_out,
            "schema": SCHEMA_VERSION,
            "gaps": [gap for gap, sides in GAPS.items() if set(sides) <= set(policies)],
            "policies": policies,
            "facts": [name for name in SLICED_BY if rows[name].null_count < len(rows)],
            "slices": len(rows) - rows["positions"].null_count,
            "offered": tally.offered,
            "dropped": tally.dropped,
        }

    def write_reading(self, part: ReadingPart, rows: pa.Table, *, disk_reserve: int) -> dict[str, Any]:
        """Writes a file of a reading and returns the line that commits it."""
        written = written_part(self._root, self._writer, part, rows)
        _demand_free(self._root, len(written.data), disk_reserve)
        for folder in written.folders:
            self._make_folder(folder)
        write_whole(self._root, written.file, written.data)
        return written.entry

    def write_segment(self, number: int, rows: pa.Table, steps: list[int]) -> dict[str, Any]:
        """Writes the segment of this number, or replaces it, and returns its commit line. steps: those that `rows` are of."""
        data = parquet_bytes(rows, {}, codec="lz4")
        file = layout.statistics_file(self._writer, number)
        self._make_folder(file.parent)
        commit = commit_entry(file, data)
        newest, its_sha256 = self._newest_segment
        replaced = its_sha256 if newest == file else None
        if replaced is not None:
            self._announce({"kind": layout.ANNOUNCED, **{name: commit[name] for name in ("file", "bytes", "sha256")}})
        try:
            write_whole(self._root, file, data)
        except OSError as error:
            if replaced is None:
                raise
            self._settle(file, commit["sha256"], replaced, error)
        self._newest_segment = (file, commit["sha256"])
        return {**commit, "steps": steps}

    def write_overall(self, number: int, rows: pa.Table, segments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Writes a file of overall statistics and returns the line that commits it. segments: the commit lines of its sources."""
        data = parquet_bytes(rows, {}, codec="lz4")
        file = layout.overall_file(self._writer, number)
        self._make_folder(file.parent)
        write_whole(self._root, file, data)
        sources = [{name: segment[name] for name in ("file", "sha256")} for segment in segments]
        return {**commit_entry(file, data), "kind": layout.OVERALL, "segments": sources}

    def _make_folder(self, path: PurePath) -> None:
        make_folder(self._root, path, is_known=path in self._durable)
        self._remember(path)

    def _remember(self, *paths: PurePath) -> None:
        if len(self._durable) >= _MOST_KNOWN:
            self._durable.clear()
        self._durable.update(paths)

    def _settle(self, file: Path, written: str, replaced: str, error: OSError) -> None:
        """Finds out which segment is on disk after an error, and returns if it is the new one.

        Raises the error if the old one is still there. If neither can be read, raises another error, one that does not ask for
        smaller files: these would count some rows twice. written, replaced: the digests of the new segment and of the old one.
        """
        try:
            on_disk = hashlib.sha256(content(self._root, file, _MOST_SEGMENT)).hexdigest()
            if on_disk == written:
                sync_folder(self._root, file.parent)
                return
        except OSError:
            on_disk = ""
        if on_disk != replaced:
            raise OSError(errno.EIO, f"{file.name} may have been replaced or not: {reason_of(error)}") from error
        raise error


def _demand_free(root: Path, nbytes: int, reserve: int) -> None:
    disk = os.statvfs(root)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and free < nbytes + reserve:  # a FUSE file system that does not know its size has 0 blocks
        raise OSError(
            errno.ENOSPC,
            f"{size_on_disk(free)} are free on the disk, of which {size_on_disk(reserve)} are to stay free",
        )
