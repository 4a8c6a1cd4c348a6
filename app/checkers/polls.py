"""One poll: what running engines hold now, compared with each other, a checkpoint, kept answers and the record; and its lines.

The comparison is that of digests on record (ingest/analysis/weight_arrivals.py), so a poll that is recorded and `diagnose` agree.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from ratioscope import layout
from ratioscope.collectors.writing.offline import OfflineWriter
from ratioscope.collectors.writing.writer_thread import WeightLines
from ratioscope.errors import SourceError, not_writable
from ratioscope.ingest.analysis.on_record import SYNC
from ratioscope.ingest.analysis.weight_arrivals import Arrival, arrivals
from ratioscope.ingest.commits.weight_entries import TensorTable, WeightDigests, name_table, weight_digests

from .answers import Checker, Held, read_all
from .checkpoint import Checkpoint
from .references import Kept, Reference, of_checkpoint, of_kept

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

NO_BYTES = "tensors without a byte"
_MOST_TIMES = 32  # replicas whose times an event lists


@dataclass(frozen=True)
class Moment:
    """The weights that the engines should hold."""

    step: int
    version: int
    """The version of the weights."""
    attempt: int = 0


@dataclass(frozen=True)
class Known:
    """All that a poll is compared with, but for other replicas."""

    checkpoint: Checkpoint | None = None
    """The weights that the replicas should hold."""
    kept: Sequence[Kept] = ()
    run: "Run | None" = None
    """The run with earlier polls."""


@dataclass(frozen=True)
class Split:
    """Replicas of one maker no majority of which holds the same weights, where no reference shows which are wrong."""

    replicas: tuple[str, ...]
    odd: Mapping[str, tuple[str, ...]]
    """Replica -> tensors that differ from those of most replicas."""
    names: tuple[str, ...]
    """Tensors of which no majority is equal."""


@dataclass(frozen=True)
class Poll:
    """The weights that the replicas hold, and how they compare."""

    at: Moment
    """The weights that the replicas should hold."""
    held: tuple[Held, ...]
    references: tuple[Reference, ...]
    """The weights that they should hold, for each maker of checksums that a reference has."""
    found: tuple[Arrival, ...]
    """One for each replica."""
    splits: tuple[Split, ...]
    steps: Mapping[int, int] = field(default_factory=dict)
    """Version -> its step, of all that was compared."""
    entries: tuple[dict[str, Any], ...] = ()
    """The lines that record the poll."""

    @property
    def has_findings(self) -> bool:
        return bool(self.splits) or any(one.state == "differs" for one in self.found)


def newest_sync(run: "Run", until: int | None = None) -> Moment | None:
    """The last weight sync on record in time, among those up to this step; None without one."""
    events = run.events.filter(pl.col("event") == SYNC).drop_nulls("step").sort("time", maintain_order=True)
    events = events if until is None else events.filter(pl.col("step") <= until)
    if events.is_empty():
        return None
    step, version = events["step"][-1], str(events["note"][-1]).removeprefix("version ")
    return Moment(step, int(version) if version.isdecimal() and len(version) < 19 else step, _attempt(run))


def moment(known: Known, step: int | None) -> Moment:
    """The newest sync on record, else the newest step; for a step that is given, the weights of that one."""
    if known.run is None:
        newest = max((one.step for one in known.kept), default=0)
        return Moment(newest if step is None else step, newest if step is None else step)
    synced = newest_sync(known.run, step)
    if synced is not None and step is None:
        return synced
    at = max(known.run.steps, default=0) if step is None else step
    return Moment(at, at if synced is None or synced.step != at else synced.version, _attempt(known.run))


def _attempt(run: "Run") -> int:
    return max(run.attempts, default=0)


def poll(asked: Sequence[Checker], known: Known, step: int | None = None) -> Poll:
    """Reads all replicas, and a second time where they differ. SourceError if weights changed meanwhile, or cannot be read."""
    at = moment(known, step)
    synced = None if known.run is None else newest_sync(known.run)
    held = read_all(asked)
    if any(len({_whole(one) for one in own}) > 1 for own in by_maker(held)):
        again = read_all(asked)
        if list(map(_whole, held)) != list(map(_whole, again)):
            raise SourceError(
                "the engines' weights changed while they were read; wanted a moment without a sync. Try again"
            )
    if known.run is not None and known.run.refresh() and newest_sync(known.run) != synced:
        raise SourceError("a weight sync was recorded while the engines were read; nothing is compared. Try again")
    return compared(held, known, at)


def _whole(one: Held) -> tuple[str, tuple[tuple[str, str], ...]]:
    return one.by, tuple(sorted(one.checksums.items()))


def by_maker(held: Iterable[Held]) -> list[list[Held]]:
    """The replicas in groups that can be compared."""
    groups: dict[str, list[Held]] = {}
    for one in held:
        groups.setdefault(one.by, []).append(one)
    return list(groups.values())


def compared(held: Sequence[Held], known: Known, at: Moment) -> Poll:
    """The replicas against the references, the record and each other."""
    before, tables = _on_record(known, at)
    references, lines = list[Reference](), WeightLines()
    own = list[tuple[int, int, str | None, Mapping[str, str], str]]()
    for group in by_maker(held):
        sent = of_kept(known.kept, group)
        if known.checkpoint is not None:
            trainers = (line for line in before if line.replica is None and line.by == group[0].by)
            equalled = [name for line in trainers for name, _ in tables.get(line.names, ())]
            sent[at.step] = of_checkpoint(known.checkpoint, group, equalled)
        for step, one in sorted(sent.items()):
            if one.checksums:
                version = at.version if step == at.step else moment(known, step).version
                own.append((step, version, None, one.checksums, one.by))
        references += [sent[at.step]] if at.step in sent else []
    own += [(at.step, at.version, one.replica, {**one.checksums, **_empty(one)}, one.by) for one in held]
    made = (lines.of(step, version, replica, sums, by=by) for step, version, replica, sums, by in own)
    entries = [entry for each in made for entry in each]
    entries = [entry | ({"attempt": at.attempt} if entry["kind"] == layout.WEIGHTS else {}) for entry in entries]
    now = [weight_digests(entry, 0) for entry in entries if entry["kind"] == layout.WEIGHTS]
    tables = tables | dict(name_table(entry) for entry in entries if entry["kind"] == layout.WEIGHT_NAMES)
    mine = {one.replica for one in held}
    found = tuple(one.newest for one in arrivals([*before, *now], tables) if one.newest.replica in mine)
    steps = {line.version: line.step for line in [*before, *now]}
    return Poll(at, tuple(held), tuple(references), found, tuple(_splits(held, references)), steps, tuple(entries))


def _empty(one: Held) -> dict[str, str]:
    """An entry that no reference has, for tensors without a byte: a replica that has some never equals a reference as a whole."""
    return {f"{len(one.empty)} {NO_BYTES}": ""} if one.empty else {}


def _on_record(known: Known, at: Moment) -> tuple[list[WeightDigests], dict[str, TensorTable]]:
    if known.run is None:
        return [], {}
    lines, tables = known.run.weights
    return [line for line in lines if (line.attempt, line.version) <= (at.attempt, at.version)], tables


def _splits(held: Sequence[Held], references: Sequence[Reference]) -> Iterator[Split]:
    settled = {one.by: one.checksums for one in references}
    for group in by_maker(held):
        (_, most), *_ = Counter(map(_whole, group)).most_common(1)
        if 2 * most > len(group):
            continue
        names = dict.fromkeys(name for one in group for name in one.checksums if name not in settled.get(one.by, {}))
        odd: dict[str, tuple[str, ...]] = {}
        undecided = []
        for name in names:
            own = {one.replica: one.checksums[name] for one in group if name in one.checksums}
            (value, times), *_ = Counter(own.values()).most_common(1)
            if 2 * times <= len(own) > 1:
                undecided.append(name)
            else:
                odd |= {replica: (*odd.get(replica, ()), name) for replica, each in own.items() if each != value}
        if odd or undecided:
            yield Split(tuple(one.replica for one in group), odd, tuple(undecided))


@dataclass
class Recorder:
    """Writes polls into a run, beside whatever else is being written there. One log for all of them."""

    run: "Run"
    _writer: OfflineWriter | None = None
    _tables: set[str] = field(default_factory=set)
    """Keys of the tables of names that the log has."""

    def record(self, poll: Poll) -> str:
        """Writes the lines of the poll; the log, relative to the run. SourceError if the run cannot be written."""
        times = (
            f"{one.replica}: {len(one.checksums)} tensors in {one.seconds:.3g} s" for one in poll.held[:_MOST_TIMES]
        )
        told = {"kind": layout.EVENT, "event": layout.WEIGHTS_READ, "step": poll.at.step, "note": "; ".join(times)}
        new = [
            entry
            for entry in poll.entries
            if entry["kind"] != layout.WEIGHT_NAMES or entry["names"] not in self._tables
        ]
        try:
            self._writer = self._writer or OfflineWriter(self.run.path, "weights")
            self._writer.say(*new, told)
        except OSError as error:
            raise not_writable(self.run.path, error) from error
        self._tables |= {entry["names"] for entry in new if entry["kind"] == layout.WEIGHT_NAMES}
        return layout.commit_file(self._writer.writer).as_posix()
