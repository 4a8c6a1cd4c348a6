"""Whether a writer says of its newest statistics segment, which it replaces in place, that it wrote these very bytes."""

import os
from pathlib import Path

from ratioscope.errors import SourceError
from ratioscope.inside import open_regular
from ratioscope.layout import ANNOUNCED, CLOSE, COMMIT, chain_of, commit_file, decode_line, writer_of

_HEAD, _TAIL = 1 << 14, 1 << 20


def is_vouched_for(root: Path, path: str, sha256: str) -> bool:
    """Whether the last megabyte of the writer's log, as it is on disk, announces or commits the segment with this digest. A log
    of before there were announcements vouches for any, until it is closed."""
    try:
        with open_regular(root, commit_file(writer_of(path)).as_posix()) as log:
            first = log.readline(_HEAD)
            log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL))
            lines = [line for line in log.read(_TAIL).split(b"\n") if line]
    except (OSError, SourceError):
        return False
    if chain_of(first) is None:
        last = decode_line(lines[-1]) if lines else None
        return bool(lines) and (last is None or last.get("kind") != CLOSE)
    likely = (line for line in reversed(lines) if sha256.encode() in line)
    return any(_says(line, path, sha256) for line in likely)


def _says(line: bytes, path: str, sha256: str) -> bool:
    entry = decode_line(line)
    if entry is None or entry.get("kind") not in (ANNOUNCED, COMMIT):
        return False
    return (entry.get("file"), entry.get("sha256")) == (path, sha256)
