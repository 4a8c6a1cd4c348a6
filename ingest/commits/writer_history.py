"""The content of one writer's commit log, as far as it was read: files, events, dropped sequences, and the writer's state.

Totals over the token files of one writer, kept current file by file: a look at a long run adds nothing up again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from ratioscope.layout import is_offline
from ratioscope.process import Process

from ..files.quarantine import printable
from .commit_log import CommitLog
from .entries import Segment, TokenFile
from .reading_files import ReadingFile
from .short_form import OmittedFiles, ShortForm
from .weight_entries import TensorTable, WeightDigests

_NewestCounts = tuple[int, int, int]
"""(sequences offered, step, sequences dropped) of a commit."""


@dataclass(frozen=True)
class FileTotals:
    """Numbers of sequences of some token files."""

    rows: int = 0
    """Sequences whose token rows the files hold."""
    left_out: int = 0
    """Sequences that a budget left out of them."""
    newest: _NewestCounts | None = None
    """The counts of the commit with most sequences offered; None without a file."""
    last_step: int | None = None

    def plus(self, file: TokenFile) -> "FileTotals":
        """The totals with one more file."""
        counts = file.offered or 0, file.step, file.dropped or 0
        return FileTotals(
            self.rows + file.rows,
            self.left_out + file.left_out,
            counts if self.newest is None else max(self.newest, counts),
            file.step if self.last_step is None else max(self.last_step, file.step),
        )


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
    sequences: int
    tokens: int
    """Their tokens; 0 where nobody counted them."""
    reason: str
    writer: str


NEWEST = 9
"""Steps from which the usual pause of a writer is told."""


def usual_pause(times: Iterable[float]) -> float:
    """The median of the seconds between these times; 0 where there are not two."""
    return median([max(0.0, after - before) for before, after in pairwise(sorted(times))] or [0.0])


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
    """Earlier writers of the same rank whose work this writer does again: what both recorded is shown once."""
    continues: frozenset[str] = frozenset()
    """Earlier writers of the same collector, which had ended."""
    opened: float | None = None
    """When the log was opened. This and the next two are seconds since 1970."""
    taken: tuple[int, int] | None = None
    """(sequences that the writer had taken, newest step of them), by its last line that says so before their rows are written."""
    last_commit: float | None = None
    """When the newest file was committed."""
    closed: float | None = None
    """When the writer ended in order; None while it may still write."""
    totals: Mapping[str, int | None] | None = None
    """The writer's own counts, from the line that closes the log."""
    token_files: dict[str, TokenFile] = field(default_factory=dict, compare=False)
    segments: dict[str, Segment] = field(default_factory=dict, compare=False)
    """path -> statistics segment, by its newest commit."""
    readings: dict[str, ReadingFile] = field(default_factory=dict)
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
    short_form_parts: list[Mapping[str, Any]] = field(default_factory=list, compare=False)
    """The entries of a short form that is not complete yet."""
    _totals: FileTotals | None = field(default=FileTotals(), compare=False)
    """Totals over `token_files`; None after a file was committed again, until they are asked for."""

    @property
    def pause(self) -> float:
        """The usual seconds between two of its newest steps; 0 where there are not two."""
        return usual_pause(self.times[step] for step in sorted(self.times)[-NEWEST:])

    @property
    def succeeds(self) -> frozenset[str]:
        """Writers that had ended when this one began."""
        return self.takes_over | self.continues

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

    def add(self, file: TokenFile) -> None:
        """Takes a committed token file into the files and their totals."""
        is_new = file.path not in self.token_files
        self._totals = self._totals.plus(file) if is_new and self._totals is not None else None
        self.token_files[file.path] = file


def file_totals(files: Iterable[TokenFile]) -> FileTotals:
    """The totals of these files."""
    totals = FileTotals()
    for file in files:
        totals = totals.plus(file)
    return totals
