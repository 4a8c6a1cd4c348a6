"""One writer's commit log, read as it grows. Each byte is read once. Damaged lines are counted and never raise.

Checks that the lines of a commit log are those that its writer wrote, in order.

Each line has a number and a digest of all lines before it. A digest is no signature: somebody who rewrites a log from some
line to its end leaves no trace. A log that lost its last lines looks like the log of a writer that was killed.
"""

import hashlib
import os
import re
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.inside import open_regular
from ratioscope.layout import STATISTICS, chain_of, chained_line, commit_file, decode_line, follows, is_unaltered

_CHUNK = 1 << 22
_MOST_BYTES = 1 << 32
_LONGEST_LINE = 1 << 20
_MOST_TRIES = 8
_SEGMENT_LINE = re.compile(
    rb'\{"bytes": \d+, (?:"chain": "[0-9a-f]*", )?"file": ("'
    + STATISTICS.encode()
    + rb'/[^"\\]*"), "kind": "(announced|commit)", '
)
"""Beginning of a line that commits a statistics segment, or announces that the segment will be replaced."""

_MOST_DESCRIBED = 3


@dataclass(frozen=True)
class Link:
    """State of the chain between two lines."""

    number: int = 0
    """Number of the next line."""
    chain: str | None = ""
    """Digest of all lines so far; None where it is unknown."""
    is_numbered: bool | None = None
    """True if the lines have numbers; None before the first line."""


@dataclass
class Chain:
    """The check of one log, line by line."""

    link: Link = Link()
    """State behind the last line."""
    breaks: int = 0
    """Number of lines that do not follow the line before them."""
    descriptions: list[str] = field(default_factory=list)
    """The first breaks in words."""

    def take(self, line: bytes) -> None:
        """Checks the next line of the log, without its newline. An altered line is no break: CommitLog counts it."""
        if not line:
            return
        link = self.link
        if link.chain is not None and (own := follows(line, link.chain)) is not None:
            self.link = Link(link.number + 1, own, True)
        elif (own := chain_of(line)) is None and link.is_numbered is False:
            return
        elif (entry := decode_line(line)) is None:
            self.link = Link(link.number + 1, None, link.is_numbered)
        elif own is not None:
            self._take_other(entry, own)
        elif link.is_numbered is None and not link.number:
            self.link = UNNUMBERED
        else:
            self._break(f"a line without a number stands before line {link.number}")

    def _take_other(self, entry: dict[str, object], own: str) -> None:
        """Takes a sound line that does not have the expected number or digest."""
        expected, number = self.link.number, entry.get("line")
        if self.link.is_numbered is False:
            self._break("lines without a number stand before those that have one")
        elif type(number) is not int or number < 0:
            self._break(f"line {expected} has no number")
        elif number > expected:
            last = number - 1
            self._break(f"line {last} is missing" if last == expected else f"lines {expected} to {last} are missing")
        elif number < expected:
            self._break(f"line {number} stands again, or moved, where line {expected} should")
        elif self.link.chain is not None and _rewritten(entry, self.link.chain) != own:
            self._break(f"line {number} is not the one that was written there")
        self.link = Link(number + 1 if type(number) is int else expected + 1, own, True)

    def _break(self, description: str) -> None:
        self.breaks += 1
        if self.breaks <= _MOST_DESCRIBED:
            self.descriptions.append(description)

    @property
    def description(self) -> str:
        """All breaks in words."""
        more = self.breaks - len(self.descriptions)
        return "; ".join([*self.descriptions, *([f"{more} more like these"] if more > 0 else [])])


@dataclass
class CommitLog:
    """The position up to which RUN/commits/<writer>.jsonl was read, and the damage found: commits may be missing."""

    root: Path
    """The folder of the run."""
    writer: str
    altered: int = 0
    """Complete lines whose checksum is wrong."""
    tail: bytes = b""
    """The bytes after the last newline: a line that is being written, or that a crash cut off."""
    chain: Chain = field(default_factory=Chain)
    """Finds lines that were removed, moved or replaced."""
    reached: int = 0
    """Bytes read so far."""
    _entries: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """Entries that were read and not returned yet, because the store failed behind them."""
    _identity: tuple[int, int] | None = field(default=None, repr=False)
    """Device and inode of the file that was read."""

    @property
    def file(self) -> str:
        return commit_file(self.writer).as_posix()

    @property
    def torn(self) -> bool:
        return bool(self.altered or self.tail or self.chain.breaks)

    @property
    def faults(self) -> tuple[int, int, int]:
        """Number of altered lines, bytes of an unfinished last line, and breaks of the chain."""
        return self.altered, len(self.tail), self.chain.breaks

    def skip(self, nbytes: int, sha256: str, link: Link) -> bool:
        """Skips the first bytes of the log without parsing them, if they have this digest. link: the chain behind them."""
        digest, left = hashlib.sha256(), nbytes
        with open_regular(self.root, self.file) as file:
            while left and (chunk := file.read(min(left, _CHUNK))):
                digest.update(chunk)
                left -= len(chunk)
            file_status = os.fstat(file.fileno())
        if left or digest.hexdigest() != sha256:
            return False
        self._identity, self.reached = (file_status.st_dev, file_status.st_ino), nbytes
        self.chain = Chain(link)
        return True

    def advance(self) -> list[dict[str, Any]] | None:
        """The entries appended since the last call; None if the log was replaced or cut and must be read from its start.

        A writer commits its newest segment again with every step. Only the last of these commits is returned.
        """
        with open_regular(self.root, self.file) as file:
            file_status = os.fstat(file.fileno())
            identity = (file_status.st_dev, file_status.st_ino)
            if self._identity not in (None, identity) or file_status.st_size < self.reached:
                return None
            if file_status.st_size > _MOST_BYTES:
                raise SourceError(f"it has {file_status.st_size} bytes; at most {_MOST_BYTES} of a log are read")
            self._identity = identity
            file.seek(self.reached)
            while chunk := file.read(_CHUNK):
                self.reached += len(chunk)
                *lines, self.tail = (self.tail + chunk).split(b"\n")
                if len(self.tail) > _LONGEST_LINE:
                    # no writer of ours writes such a line: forget its bytes, and go on at the next newline
                    self.tail = self.tail[:1]
                for line in lines:
                    self.chain.take(line)
                self._entries += self._newest(lines)
        entries, self._entries = self._entries, []
        return entries

    def _newest(self, lines: list[bytes]) -> list[dict[str, Any]]:
        """Entries of the lines, in order, without commits of segments that a later line commits again.

        Commits of segments are half of the lines of a log, and its longer half.
        """
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
    """The complete entry behind a torn one on the same line, where a writer went on after a crash without a newline."""
    starts = islice(re.finditer(rb'\{"', line), 1, _MOST_TRIES)
    return next((entry for match in starts if (entry := decode_line(line[match.start() :])) is not None), None)


UNNUMBERED = Link(0, None, False)
"""State at any place of a log by an old ratioscope, whose lines have no numbers."""


def _rewritten(entry: dict[str, object], before: str) -> str:
    """The digest that the entry would have behind the digest `before`, whatever spacing its line was written with."""
    own = {name: value for name, value in entry.items() if name not in ("line", "chain")}
    number = entry["line"]
    assert isinstance(number, int)
    return chained_line(own, number, before)[1]
