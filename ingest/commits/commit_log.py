"""One writer's commit log, read as it grows: each byte once, torn and altered lines counted, never fatal."""

import hashlib
import os
import re
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.inside import open_regular
from ratioscope.layout import STATISTICS, commit_file, decode_line, is_unaltered

from .chain import Chain, Link

_CHUNK = 1 << 22
_MOST_BYTES = 1 << 32
_LONGEST_LINE = 1 << 20
_MOST_TRIES = 8
_SEGMENT_LINE = re.compile(
    rb'\{"bytes": \d+, (?:"chain": "[0-9a-f]*", )?"file": ("'
    + STATISTICS.encode()
    + rb'/[^"\\]*"), "kind": "(announced|commit)", '
)
"""How the line begins that commits a statistics segment, or announces that it will be replaced."""


@dataclass
class CommitLog:
    """The place reached in RUN/commits/<writer>.jsonl.

    `altered` counts whole lines whose checksum does not hold; `tail` is what follows the last newline: a line that is
    being written, or one that a crash cut; `chain` tells of lines that were removed, moved or replaced. Each means that commits
    may be missing from what was read.
    """

    root: Path
    writer: str
    altered: int = 0
    tail: bytes = b""
    chain: Chain = field(default_factory=Chain)
    _offset: int = 0
    _identity: tuple[int, int] | None = field(default=None, repr=False)

    @property
    def file(self) -> str:
        return commit_file(self.writer).as_posix()

    @property
    def torn(self) -> bool:
        return bool(self.altered or self.tail or self.chain.breaks)

    @property
    def faults(self) -> tuple[int, int, int]:
        """Altered lines, bytes of an unfinished one, and breaks of the chain."""
        return self.altered, len(self.tail), self.chain.breaks

    def skip(self, nbytes: int, sha256: str, link: Link) -> bool:
        """Goes on behind the first bytes of the log, if they have this digest; reads them without parsing a line. link: where its
        chain is there."""
        digest, left = hashlib.sha256(), nbytes
        with open_regular(self.root, self.file) as file:
            while left and (chunk := file.read(min(left, _CHUNK))):
                digest.update(chunk)
                left -= len(chunk)
            found = os.fstat(file.fileno())
        if left or digest.hexdigest() != sha256:
            return False
        self._identity, self._offset = (found.st_dev, found.st_ino), nbytes
        self.chain = Chain(link)
        return True

    @property
    def reached(self) -> int:
        """Bytes of it that were read."""
        return self._offset

    def advance(self) -> list[dict[str, Any]] | None:
        """The entries appended since the last call; None if the log was replaced or cut and must be read afresh.

        A segment is committed again with every step; what a later line of what was appended says anew is left out.
        """
        with open_regular(self.root, self.file) as file:
            found = os.fstat(file.fileno())
            identity = (found.st_dev, found.st_ino)
            if self._identity not in (None, identity) or found.st_size < self._offset:
                return None
            if found.st_size > _MOST_BYTES:
                raise SourceError(f"it has {found.st_size} bytes; at most {_MOST_BYTES} of a log are read")
            self._identity = identity
            file.seek(self._offset)
            entries: list[dict[str, Any]] = []
            while chunk := file.read(_CHUNK):
                self._offset += len(chunk)
                entries += self._entries(chunk)
        return entries

    def _entries(self, chunk: bytes) -> list[dict[str, Any]]:
        *lines, self.tail = (self.tail + chunk).split(b"\n")
        if (
            len(self.tail) > _LONGEST_LINE
        ):  # no line of ours is that long: what follows is read from its next newline on
            self.tail = self.tail[:1]
        for line in lines:
            self.chain.take(line)
        return self._newest(lines)

    def _newest(self, lines: list[bytes]) -> list[dict[str, Any]]:
        """Entries of the lines, in order, those left out whose segment a later one commits again: half of a log, and the longer
        half."""
        entries: list[dict[str, Any]] = []
        committed: set[bytes] = set()
        for line in reversed(lines):
            segment = _SEGMENT_LINE.match(line)
            if not line or (segment and segment[1] in committed and is_unaltered(line)):
                continue
            decoded = self._decoded(line)
            if segment and decoded and segment[2] == b"commit":
                committed.add(segment[1])
            entries += decoded
        return entries[::-1]

    def _decoded(self, line: bytes) -> list[dict[str, Any]]:
        entry = decode_line(line)
        if entry is not None:
            return [{name: value for name, value in entry.items() if name not in ("line", "chain")}]
        self.altered += 1
        glued = glued_entry(line)
        return [] if glued is None else [glued]


def glued_entry(line: bytes) -> dict[str, Any] | None:
    """The whole entry behind a torn one on the same line: a writer went on after a crash without a newline."""
    starts = islice(re.finditer(rb'\{"', line), 1, _MOST_TRIES)
    return next((entry for match in starts if (entry := decode_line(line[match.start() :])) is not None), None)
