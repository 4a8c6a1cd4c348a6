"""The content of one writer's commit log, as far as it was read: files, events, dropped sequences, and the writer's state."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.layout import (
    CLOSE,
    COMMIT,
    CONDENSED,
    DROPPED,
    EVENT,
    MOVED,
    NOTED,
    OFFLINE,
    OPEN,
    OVERALL,
    PRUNED,
    READING,
    STATE,
    TAKEN,
    WEIGHT_NAMES,
    WEIGHTS,
    is_offline,
)
from ratioscope.process import Process

from ..files.quarantine import printable
from .commit_log import CommitLog
from .entries import Segment, TokenFile, committed
from .file_totals import FileTotals, file_totals
from .members import names, optional_count, seconds, step_spans, text, whole_number
from .overall_files import committed_overall
from .reading_files import ReadingFile, committed_reading
from .short_form import OmittedFiles, ShortForm, short_form_of_lines
from .weight_entries import TensorTable, WeightDigests, name_table, weight_digests

_MORE_THAN_FILES = frozenset((OPEN, OFFLINE, CLOSE, PRUNED, MOVED, CONDENSED))
"""Kinds of lines that change what a run consists of by more than a file."""


@dataclass(frozen=True)
class Event:
    """Something that happened in the run, at a step."""

    step: int
    event: str
    """Its kind, such as weight_sync."""
    note: str
    """A sentence by the writer; may be empty."""
    time: float | None
    """Seconds since 1970."""
    writer: str


@dataclass(frozen=True)
class Drop:
    """Sequences that were offered to a writer and that it did not write."""

    step: int | None
    """None where the writer does not know it."""
    sequences: int
    tokens: int
    """Their tokens; 0 where nobody counted them."""
    reason: str
    writer: str


@dataclass
class WriterHistory:
    """The content of the commit log of one writer, or of a verb such as `compact`, as far as it was read.

    A log and its short form have equal histories. Fields with compare=False may differ, or `difference` compares them itself.
    """

    log: CommitLog = field(compare=False)
    state: str = "ok"
    """State that the writer last reported: ok, degraded (it writes statistics only) or paused (it writes nothing)."""
    state_note: str = ""
    """Why the writer is in this state."""
    rank: int | None = None
    run: str | None = None
    """The id of the run that the log names."""
    named_writer: str | None = None
    """The writer that the log's open line names."""
    beside: set[str] = field(default_factory=set)
    """Other writers whose logs this writer saw."""
    host: str | None = None
    process: Process = Process()
    attempt: int = 0
    launch: str | None = None
    """The id that the processes of one start share."""
    takes_over: frozenset[str] = frozenset()
    """Earlier writers of the same rank whose work this writer continues."""
    opened: float | None = None
    """When the log was opened. This and the next two are seconds since 1970."""
    taken: tuple[int, int] | None = None
    """(sequences that the writer had taken, newest step of them), by its last line that says so before their rows are written."""
    last_commit: float | None = None
    closed: float | None = None
    """When the writer ended in order; None while it may still write."""
    totals: Mapping[str, int | None] | None = None
    """The writer's own counts, from the line that closes the log."""
    token_files: dict[str, TokenFile] = field(default_factory=dict, compare=False)
    """path -> token file."""
    segments: dict[str, Segment] = field(default_factory=dict, compare=False)
    """path -> statistics segment, by its newest commit."""
    readings: dict[str, ReadingFile] = field(default_factory=dict)
    """path -> file of a reading."""
    events: list[Event] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)
    weights: list[WeightDigests] = field(default_factory=list)
    weight_tables: dict[str, TensorTable] = field(default_factory=dict)
    """Key -> names of weights."""
    refused: dict[str, str] = field(default_factory=dict)
    """path -> why the file's commit is not believed."""
    unmeasured: set[str] = field(default_factory=set)
    """Token files whose rows no statistics segment counts yet."""
    pruned: set[str] = field(default_factory=set)
    """Files that `prune` deleted."""
    pruned_steps: set[tuple[int, int]] = field(default_factory=set)
    """(first, last) of the steps whose token rows `prune` deleted."""
    moved: dict[str, str] = field(default_factory=dict)
    """path -> where `repair` moved the file, and why."""
    noted: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """log -> its faults (see CommitLog.faults) when `repair` had restored what they hid."""
    times: dict[int, float] = field(default_factory=dict)
    """step -> when something of it was first committed, in seconds since 1970."""
    omitted: OmittedFiles = field(default=OmittedFiles(), compare=False)
    """Files that this history does not name, because it was begun from a short form."""
    short_forms: dict[str, ShortForm] = field(default_factory=dict, compare=False)
    """log -> its short form; only the logs of `compact` hold any."""
    fresh: list[TokenFile | Segment] | None = field(default=None, compare=False)
    """Files committed since this list was last emptied; None if lines changed more of what the run consists of."""
    _totals: FileTotals | None = field(default=FileTotals(), compare=False)
    """Totals over `token_files`; None after a file was committed again, until they are asked for."""
    _parts: list[Mapping[str, Any]] = field(default_factory=list, compare=False)
    """The entries of a short form that is not complete yet."""

    @property
    def is_headless(self) -> bool:
        """True if no line names the writer: the log was emptied, or its first line is lost."""
        return self.opened is None and self.rank is None and not self.is_offline

    @property
    def is_whole(self) -> bool:
        """True if there is no sign that lines of the log are missing."""
        return not (self.log.torn or self.is_headless or self.is_of_another)

    @property
    def is_of_another(self) -> bool:
        """True if the log names another writer than its file name does: somebody copied it over this writer's log."""
        return self.named_writer is not None and self.named_writer != self.log.writer

    @property
    def doubt(self) -> str:
        """Why the log is not whole, in words."""
        log = self.log
        reasons = (
            [f"has {log.altered} altered lines"] if log.altered else ["has an unfinished last line"] if log.tail else []
        )
        reasons += [f"does not hold together: {log.chain.description}"] if log.chain.breaks else []
        reasons += (
            [f"says that it is the log of {printable(self.named_writer or '')[:200]}"] if self.is_of_another else []
        )
        return ", ".join(reasons) or "has no line that says whose it is: it was emptied, or cut at its beginning"

    @property
    def is_unaccounted(self) -> bool:
        """True if the log looks whole, but its last line counts other sequences than its commits."""
        if self.totals is None or not self.is_whole or self.is_offline:
            return False
        return self.totals.get("written") not in (None, self.rows)

    @property
    def rows(self) -> int:
        """Sequences whose token rows the writer committed."""
        return self.omitted.rows + self.file_totals.rows

    @property
    def file_totals(self) -> FileTotals:
        """Totals over the token files that this history names."""
        if self._totals is None:
            self._totals = file_totals(self.token_files.values())
        return self._totals

    @property
    def is_offline(self) -> bool:
        """True if a verb such as `compact` wrote the log, and not a process that recorded."""
        return is_offline(self.log.writer)

    def advance(self) -> bool:
        """Reads the lines appended since the last call; True if there are any. A log that was replaced is read from its start."""
        before = self.log.faults
        entries = self.log.advance()
        if entries is None:
            fresh = WriterHistory(CommitLog(self.log.root, self.log.writer))
            fresh.advance()
            self.__dict__.update(fresh.__dict__)
            self.fresh = None
            return True
        for entry in entries:
            self._take(entry)
        return bool(entries) or before != self.log.faults

    def begin(self, short: ShortForm) -> bool:
        """Takes the first bytes of the log from their short form. False, and nothing is taken, if the log begins otherwise."""
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
        take = _TAKERS.get(str(entry.get("kind")))
        if take is None:  # a later version wrote this kind of line; it is no part of this schema
            return
        if entry["kind"] in _MORE_THAN_FILES:
            self.fresh = None
        try:
            take(self, entry)
        except SourceError as error:
            self.fresh = None
            self.refused[str(entry.get("file", self.log.file))[:200]] = str(error)

    def _open(self, entry: Mapping[str, Any]) -> None:
        self.rank = optional_count(entry, "rank")
        self.host = None if entry.get("host") is None else printable(str(entry["host"]))
        self.process = Process(
            self.host, optional_count(entry, "pid"), _text_or_none(entry, "started"), _text_or_none(entry, "namespace")
        )
        self.attempt = optional_count(entry, "attempt") or 0
        self.launch = _text_or_none(entry, "launch")
        self.takes_over |= names(entry.get("takes_over"))
        self.run, self.named_writer = _text_or_none(entry, "run"), _text_or_none(entry, "writer")
        self._see(entry)
        self.opened = seconds(entry)
        self.closed, self.totals = None, None

    def _commit(self, entry: Mapping[str, Any]) -> None:
        item = committed(entry, self.log.writer, self.attempt)
        self.refused.pop(item.path, None)
        if isinstance(item, TokenFile):
            self._tell_time(item.step, item.time)
            is_new = item.path not in self.token_files
            self._totals = self._totals.plus(item) if is_new and self._totals is not None else None
            self.token_files[item.path] = item
            self.unmeasured |= {item.path} if item.unmeasured else set()
        elif item.is_scalars:  # it was logged before it was imported, so the time of its commit is none of its steps
            self.segments[item.path] = item
        else:  # a segment is committed again with every step, so its time belongs to its last step
            self._tell_time(max(item.steps, default=None), item.time)
            self.segments[item.path] = item
            self._settle(item)
        self._tell_fresh(item)
        self.last_commit = item.time or self.last_commit

    def _repeat(self, entry: Mapping[str, Any]) -> None:
        """Notes the file of overall statistics at its segments, as far as they are as they were when it was written."""
        file = committed_overall(entry)
        for path, sha256 in file.segments:
            if (segment := self.segments.get(path)) is not None and segment.sha256 == sha256:
                self.segments[path] = replace(segment, overall=file)
                self._tell_fresh(self.segments[path])

    def _tell_fresh(self, item: TokenFile | Segment) -> None:
        if self.fresh is not None:
            self.fresh.append(item)

    def _hear_taken(self, entry: Mapping[str, Any]) -> None:
        self.taken = whole_number(entry, "offered"), whole_number(entry, "step")

    def _reading(self, entry: Mapping[str, Any]) -> None:
        item = committed_reading(entry, self.log.writer, self.attempt)
        self.refused.pop(item.path, None)
        self.readings[item.path] = item

    def _tell_time(self, step: int | None, time: float | None) -> None:
        if step is not None and time is not None and not self.is_offline:
            self.times.setdefault(step, time)

    def _settle(self, segment: Segment) -> None:
        """Clears `unmeasured` for token files whose step the new segment covers."""
        for path in [path for path in self.unmeasured if self.token_files[path].step in segment.steps]:
            self.token_files[path] = replace(self.token_files[path], unmeasured=False)
            self.unmeasured.remove(path)
            self._tell_fresh(self.token_files[path])

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

    def _weigh(self, entry: Mapping[str, Any]) -> None:
        self.weights.append(weight_digests(entry, self.attempt))

    def _name_weights(self, entry: Mapping[str, Any]) -> None:
        key, table = name_table(entry)
        self.weight_tables[key] = table

    def _drop(self, entry: Mapping[str, Any]) -> None:
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
        faults = whole_number(entry, "altered"), whole_number(entry, "tail"), optional_count(entry, "breaks") or 0
        self.noted[text(entry, "log")] = faults

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
        writers = entry.get("beside")
        self.beside |= {name for name in writers if isinstance(name, str)} if isinstance(writers, list) else set()


_TAKERS = {
    OPEN: WriterHistory._open, OFFLINE: WriterHistory._open, CLOSE: WriterHistory._close,
    COMMIT: WriterHistory._commit, READING: WriterHistory._reading, OVERALL: WriterHistory._repeat,
    EVENT: WriterHistory._event, TAKEN: WriterHistory._hear_taken, DROPPED: WriterHistory._drop,
    WEIGHTS: WriterHistory._weigh, WEIGHT_NAMES: WriterHistory._name_weights,
    PRUNED: WriterHistory._prune, MOVED: WriterHistory._move, NOTED: WriterHistory._note,
    CONDENSED: WriterHistory._condense,
}  # fmt: skip
"""Kind of line -> the function that takes it."""


def _text_or_none(entry: Mapping[str, Any], name: str) -> str | None:
    value = entry.get(name)
    return value if isinstance(value, str) else None
