"""Cache keys of what is computed from recorded files: digests of the digests in their commits.

They name recorded files. A merged file counts as those that it replaces, so that `compact` changes no key.
"""

import hashlib
from collections.abc import Iterable

from ..commits.entries import TokenFile
from ..commits.visible_files import VisibleFiles
from ..files.parquet_files import ParquetFiles
from .readings import Pair


def run_digest(visible: VisibleFiles) -> str:
    """The key of results computed from all that is shown."""
    recorded = [pair for files in visible.token_files.values() for file in files for pair in file.recorded]
    recorded += [pair for segment in (*visible.segments, *visible.scalars) for pair in segment.recorded]
    return _digest(recorded)


def row_digest(token_files: Iterable[TokenFile], files: ParquetFiles, pair: Pair | None, step: int) -> str:
    """The key of results computed from the token files of a step and, with `pair`, from its readings.

    A file without a known digest counts with its signature.
    """
    recorded = [entry for file in token_files for entry in file.recorded]
    named = [(path, sha256 or str(files.signature(path))) for path, sha256 in recorded]
    return _digest([*named, *((digest, "") for digest in (pair.digests(step) if pair else ()))])


def reading_digest(pair: Pair, steps: Iterable[int]) -> str:
    """The key of results computed from the readings of these steps."""
    return _digest((digest, "") for step in steps for digest in pair.digests(step))


def _digest(recorded: Iterable[tuple[str, str | None]]) -> str:
    lines = sorted(f"{path} {sha256}" for path, sha256 in recorded)
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
