"""What one writer's commit log says so far: its files, events, drops and how it stands."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.layout import (
    CLOSE,
    COMMIT,
    CONDENSED,
    EVENT,
    GAP,
    MOVED,
    NOTED,
    OFFLINE,
    OPEN,
    PRUNED,
    STATE,
    is_offline,
)
from ratioscope.process import Process

from ..files.quarantine import printable
from .commit_log import CommitLog
from .entries import Segment, TokenFile, committed, names, optional_count, seconds, step_spans, text, whole_number
from .short_form import OmittedFiles, ShortForm, short_form_of_lines


@dataclass(frozen=True)
class Event:
    """Something that happened in the run, at a step."""

    step: int
    event: str
    note: str
    time: float | None
    writer: str


@dataclass(frozen=True)
class Drop:
    """What was offered to a writer and not written."""

    step: int | None
    sequences: int
    tokens: int
    reason: str
    writer: str


@dataclass
class WriterHistory:
    """The state a commit log has reached. `takes_over`: writers of its rank whose work it goes on with. `closed`: when the
    writer ended, None while it may still write; `totals`: its own final counts. `state`: what it could write when it last
    said so, and `state_note` why. `run`: the id of the run that it is of, `says`: the writer; `beside`: other logs that it
    saw. `unmeasured`: token files without whose rows the statistics of their steps are. `pruned`: files that were deleted,
    `pruned_steps`: (first, last) of those whose token rows went with them. `moved`: files that a repair moved away, and why;
    `noted`: the faults of logs that a repair has seen. `times`: step -> when something of it was first committed. `left`:
    files that it does not name, because it was begun from a short form; `condensed`: the short forms of other logs that this
    one says.
    """

    log: CommitLog
    state: str = "ok"
    state_note: str = ""
    rank: int | None = None
    run: str | None = None
    says: str | None = None
    beside: set[str] = field(default_factory=set)
    host: str | None = None
    process: Process = Process()
    attempt: int = 0
    launch: str | None = None
    takes_over: frozenset[str] = frozenset()
    opened: float | None = None
    last_commit: float | None = None
    closed: float | None = None
    totals: Mapping[str, int | None] | None = None
    token_files: dict[str, TokenFile] = field(default_factory=dict)
    segments: dict[str, Segment] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    unmeasured: set[str] = field(default_factory=set)
    pruned: set[str] = field(default_factory=set)
    pruned_steps: set[tuple[int, int]] = field(default_factory=set)
    moved: dict[str, str] = field(default_factory=dict)
    noted: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)
    omitted: OmittedFiles = OmittedFiles()
    short_forms: dict[str, ShortForm] = field(default_factory=dict)
    _parts: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def is_headless(self) -> bool:
        """Whether no line says whose log it is: it was emptied, or its first line is lost."""
        return self.opened is None and self.rank is None and not self.is_offline

    @property
    def is_whole(self) -> bool:
        """Whether nothing says that lines of it are missing."""
        return not (self.log.torn or self.is_headless or self.is_of_another)

    @property
    def is_of_another(self) -> bool:
        """Whether it says that it is another writer's log: it lies where the one of this name was."""
        return self.says is not None and self.says != self.log.writer

    @property
    def doubt(self) -> str:
        """What makes it not whole, in words."""
        log = self.log
        found = (
            [f"has {log.altered} altered lines"] if log.altered else ["has an unfinished last line"] if log.tail else []
        )
        found += [f"does not hold together: {log.chain.said}"] if log.chain.breaks else []
        found += [f"says that it is the log of {printable(self.says or '')[:200]}"] if self.is_of_another else []
        return ", ".join(found) or "has no line that says whose it is: it was emptied, or cut at its beginning"

    @property
    def is_unaccounted(self) -> bool:
        """Whether it is whole, but its last word says of other sequences than its commits."""
        if self.totals is None or not self.is_whole or self.is_offline:
            return False
        return self.totals.get("written") not in (None, self.rows)

    @property
    def rows(self) -> int:
        """Sequences whose token rows it committed."""
        return self.omitted.rows + sum(file.rows for file in self.token_files.values())

    @property
    def is_offline(self) -> bool:
        """Whether a verb wrote it, and not a process that recorded."""
        return is_offline(self.log.writer)

    def advance(self) -> bool:
        """Reads what was appended; True if anything was. A log that was replaced is read from its start."""
        before = self.log.faults
        entries = self.log.advance()
        if entries is None:
            fresh = WriterHistory(CommitLog(self.log.root, self.log.writer))
            fresh.advance()
            self.__dict__.update(fresh.__dict__)
            return True
        for entry in entries:
            self._take(entry)
        return bool(entries) or before != self.log.faults

    def begin(self, short: ShortForm) -> bool:
        """Takes what the first bytes of the log say from their short form; False, and nothing is taken, where they are others."""
        try:
            if not self.log.skip(short.bytes, short.sha256, short.link):
                return False
        except (OSError, SourceError):
            return False
        self.times = dict(short.times)
        for entry in short.entries:
            self._take(entry)
        self.omitted, self.last_commit = short.omitted, short.omitted.last_commit
        return True

    def _take(self, entry: Mapping[str, Any]) -> None:
        taker = {
            OPEN: self._open, OFFLINE: self._open, COMMIT: self._commit, EVENT: self._event, GAP: self._gap,
            PRUNED: self._prune, MOVED: self._move, NOTED: self._note, CLOSE: self._close, CONDENSED: self._condense,
        }  # fmt: skip
        take = taker.get(str(entry.get("kind")))
        if take is None:  # a kind of a later version: what it says is no part of this schema
            return
        try:
            take(entry)
        except SourceError as error:
            self.refused[str(entry.get("file", self.log.file))[:200]] = str(error)

    def _open(self, entry: Mapping[str, Any]) -> None:
        self.rank = optional_count(entry, "rank")
        self.host = None if entry.get("host") is None else printable(str(entry["host"]))
        self.process = Process(
            self.host, optional_count(entry, "pid"), _said(entry, "started"), _said(entry, "namespace")
        )
        self.attempt = optional_count(entry, "attempt") or 0
        self.launch = _said(entry, "launch")
        self.takes_over |= names(entry.get("takes_over"))
        self.run, self.says = _said(entry, "run"), _said(entry, "writer")
        self._see(entry)
        self.opened = seconds(entry)
        self.closed, self.totals = None, None

    def _commit(self, entry: Mapping[str, Any]) -> None:
        item = committed(entry, self.log.writer, self.attempt)
        self.refused.pop(item.path, None)
        if isinstance(item, TokenFile):
            self._tell_time(item.step, item.time)
            self.token_files[item.path] = item
            self.unmeasured |= {item.path} if item.unmeasured else set()
        else:  # it is committed again with every step, so that its time is that of its last one
            self._tell_time(max(item.steps, default=None), item.time)
            self.segments[item.path] = item
            self._settle(item)
        self.last_commit = item.time or self.last_commit

    def _tell_time(self, step: int | None, time: float | None) -> None:
        if step is not None and time is not None and not self.is_offline:
            self.times.setdefault(step, time)

    def _settle(self, segment: Segment) -> None:
        """What waited in memory is in the next segment that holds its step."""
        for path in [path for path in self.unmeasured if self.token_files[path].step in segment.steps]:
            self.token_files[path] = replace(self.token_files[path], unmeasured=False)
            self.unmeasured.remove(path)

    def _event(self, entry: Mapping[str, Any]) -> None:
        note = entry.get("note")
        if entry.get("event") == STATE and "state" in entry:
            self.state, self.state_note = printable(str(entry["state"])), printable(str(note))
        self.events.append(
            Event(
                whole_number(entry, "step"),
                printable(str(entry.get("event"))),
                "" if note is None else printable(str(note)),
                seconds(entry),
                self.log.writer,
            )
        )

    def _gap(self, entry: Mapping[str, Any]) -> None:
        step = None if entry.get("step") is None else whole_number(entry, "step")
        sequences, tokens = optional_count(entry, "sequences") or 0, optional_count(entry, "tokens") or 0
        self.drops.append(Drop(step, sequences, tokens, printable(str(entry.get("reason", ""))), self.log.writer))

    def _prune(self, entry: Mapping[str, Any]) -> None:
        files = entry.get("files")
        if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
            raise SourceError(f"it prunes {str(files)[:60]!r}; wanted a list of files")
        self.pruned_steps |= set(step_spans(entry))
        self.pruned |= set(files)

    def _move(self, entry: Mapping[str, Any]) -> None:
        self.moved[text(entry, "file")] = f"moved to {printable(text(entry, 'to'))}: {printable(text(entry, 'reason'))}"

    def _note(self, entry: Mapping[str, Any]) -> None:
        found = whole_number(entry, "altered"), whole_number(entry, "tail"), optional_count(entry, "breaks") or 0
        self.noted[text(entry, "log")] = found

    def _condense(self, entry: Mapping[str, Any]) -> None:
        if entry.get("part") == 0:
            self._parts = []
        self._parts.append(entry)
        if (
            entry.get("part") == whole_number(entry, "parts", least=1) - 1
            and (found := short_form_of_lines(self._parts)) is not None
        ):
            self.short_forms[found.log] = found
            self._parts = []

    def _close(self, entry: Mapping[str, Any]) -> None:
        self.closed = seconds(entry)
        self._see(entry)
        self.totals = {name: optional_count(entry, name) for name in ("offered", "written", "left_out", "dropped")}

    def _see(self, entry: Mapping[str, Any]) -> None:
        found = entry.get("beside")
        self.beside |= {name for name in found if isinstance(name, str)} if isinstance(found, list) else set()


def _said(entry: Mapping[str, Any], name: str) -> str | None:
    value = entry.get(name)
    return value if isinstance(value, str) else None
