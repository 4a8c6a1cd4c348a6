"""The files that a run consists of: all commit logs together with what lies on disk, kept current by `refresh`."""

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TypeVar

from ratioscope.errors import SourceError, Unread
from ratioscope.layout import COMMITS, commit_file, is_offline, writer_of

from ..files.listing import Listing, listing, logs
from ..files.parquet_files import ParquetFiles
from ..files.run_file import stated_id
from .attempts import Cutoffs, Shadow, cutoffs_of, shadows_of
from .catalog_growth import CatalogGrowth, fresh_files
from .catalog_notes import disagreements, notes_on_logs, notes_on_lost_parts
from .commit_log import CommitLog
from .entries import OverallFile, Segment, TokenFile
from .file_parts import steps_of, unreplaced
from .files_set_aside import RESTS, FilesSetAside, StoreFailures
from .history_lines import advance
from .reading_files import ReadingFile
from .recovery import recovered, uncounted
from .short_forms_of_run import begun_from_short_form, lacking_wanted_files
from .writer_history import WriterHistory

T = TypeVar("T")

_MANY = 1000
"""A comparison of so many entries is followed by a rest: a run with damaged logs may be long, and its store far."""


@dataclass
class Catalog:
    """The run at `root` as far as `refresh` has read it."""

    root: Path
    files: ParquetFiles
    use_short_forms: bool = False
    """True to use the short form of a log that `compact` condensed, unless a file omitted there is needed."""
    attempt: int | None = None
    """The only start of the job whose files and writers count; None: all."""
    lists_store: bool = False
    """True to list all files of a run on a store. Else a committed file is missed when it is needed, and files without a commit
    are looked for where a log is damaged."""
    histories: dict[str, WriterHistory] = field(default_factory=dict)
    """writer -> the content of its log; the logs of verbs are among them."""
    version: int = 0
    """Grows with every change, also when a file is set aside."""
    replaced: bool = False
    """True if a log that was read is gone while other logs exist: another run was recorded in this folder."""
    _growth: CatalogGrowth = field(default_factory=CatalogGrowth)
    _notes: tuple[str, ...] = ()
    recovered_files: dict[str, TokenFile | Segment] = field(default_factory=dict)
    """path -> file that no commit names, as its footer describes it."""
    _is_compared: bool = False
    """True if the logs were compared with the folders after the last change of a file that was set aside."""
    _compare_again: float = 0.0
    """Time from which on a run with damaged logs is compared with its folders again."""
    _was_doubtful: bool = False
    """True if the logs were doubtful at the last comparison."""
    _run_id: str | None = None
    """The id in run.json; None where it has none."""
    _aside: FilesSetAside = field(init=False)
    """Files that are not read, without those that verbs moved and logs refuse."""

    def __post_init__(self) -> None:
        self._aside = FilesSetAside(self.files, self._digest)

    @property
    def failures(self) -> StoreFailures:
        """The parts of the run that the store failed to read."""
        return self._aside.failures

    def refresh(self) -> bool:
        """Reads what was appended to the commit logs since the last call; True if it changed anything."""
        paths, failure = logs(self.root)
        is_news = failure is not None or COMMITS in self.failures.logs
        changed = is_news and self._aside.say(COMMITS, failure, by_store=True)
        unlisted = {history.log.file for history in self.histories.values()} - paths
        self.replaced |= bool(paths) and any(map(self.files.is_missing, unlisted))
        for file in sorted(paths, key=lambda file: (not is_offline(PurePosixPath(file).stem), file)):
            changed |= self._advance(file)
        is_more = self._aside.take_back_changed()  # more has changed than that files were committed
        changed |= is_more
        self._is_compared &= not is_more
        if not self._is_compared or self._is_to_be_compared_again():
            is_more |= self._compare_with_folders()
            changed |= is_more
            self._is_compared = True
        elif changed:
            self._notes = tuple(notes_on_logs(self.histories, self._run_id, self.recovered_files))
        if changed:
            self._read_needed_logs_in_full()
        self.version += changed
        fresh = self._take_fresh()
        if changed:
            self._growth.add(self.version, None if is_more else fresh)
        return changed

    def committed_since(self, version: int) -> list[TokenFile | Segment] | None:
        """The files that were committed since this version, in order; None if more has changed, or if that is too long ago."""
        return self._growth.since(version, self.version)

    def _take_fresh(self) -> tuple[TokenFile | Segment, ...] | None:
        """The files that all logs committed since the last call; None if lines changed more of what the run consists of."""
        fresh = fresh_files(self.histories.values())
        return fresh if fresh is not None and self._are_of_writers_alone({item.path for item in fresh}) else None

    def _are_of_writers_alone(self, paths: set[str]) -> bool:
        """True if no verb and no damage has to do with these files."""
        known = [
            self.recovered_files.keys(),
            self.set_aside.keys(),
            *(history.pruned for history in self.histories.values()),
        ]
        verbs = [history for history in self.histories.values() if history.is_offline]
        return not any(verb.token_files or verb.segments for verb in verbs) and all(map(paths.isdisjoint, known))

    @property
    def set_aside(self) -> dict[str, str]:
        """path -> why it is not read."""
        refused = (history.refused for history in self.histories.values())
        return {
            **{path: reason for path, reason in self._aside.reasons.items() if not self._is_pruned(path)},
            **{path: reason for part in refused for path, reason in part.items()},
            **self.moved(),
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about how the run was read: what is missing, damaged or recovered."""
        set_aside = self.set_aside
        unreadable = [*(item for item in self.items() if item.path in set_aside), *self._moved_items()]
        lost = [item for item in unreadable if isinstance(item, Segment)]
        if not lost:
            return self._notes
        return (*self._notes, *notes_on_lost_parts(lost, self.token_files(), self.segments()))

    def while_read(self, acts: Iterable[T]) -> Iterator[T]:
        """The acts. Unread instead of the first that was proposed while the store failed to read a part of the run."""
        for act in acts:
            self.demand_read()
            yield act
        self.demand_read()

    def demand_read(self) -> None:
        """Unread if the store failed to read a part of the run: a verb that changes a run must not act on the rest alone."""
        self._aside.demand_read(self.root)

    def _is_pruned(self, path: str) -> bool:
        return any(path in history.pruned for history in self.histories.values())

    def moved(self) -> dict[str, str]:
        """path -> why `repair` moved the file away, without files that were copied back since."""
        reasons = {path: why for history in self.histories.values() for path, why in history.moved.items()}
        return {path: why for path, why in reasons.items() if self.files.signature(path) is None}

    def noted(self, log: str) -> tuple[int, int, int] | None:
        """The faults of the log that `repair` noted; None where it noted none."""
        return next((h.noted[log] for h in reversed(self.histories.values()) if log in h.noted), None)

    def quarantine(self, path: str, reason: str) -> None:
        """Sets a file aside until the file or its commit changes."""
        self.version += self._aside.add(path, reason)
        item = self._described(path)
        if item is not None and item.replaces:  # the files it replaced are needed again
            self._read_needed_logs_in_full()

    def gone(self) -> set[str]:
        """Files that are no part of the run any more: a merged file holds their rows, or they were pruned."""
        set_aside = self.set_aside
        merged = (item for item in self.items() if item.replaces and item.path not in set_aside)
        return {origin.path for item in merged for origin in item.replaces} | self.pruned_paths()

    def _read_needed_logs_in_full(self, writer: str | None = None) -> bool:
        """Reads logs whose short forms omit a needed file, or (writer) the log of one writer. True if there were any."""
        short = [history for history in self.histories.values() if history.omitted.files]
        if not short:
            return False
        own = [history for history in short if history.log.writer == writer]
        incomplete = lacking_wanted_files(self.histories.values(), self.gone()) if writer is None else own
        read = [history for history in incomplete if self._is_read_in_full(history)]
        self.version += bool(read)
        return bool(read)

    def _is_read_in_full(self, history: WriterHistory) -> bool:
        """Reads the log instead of its short form. False, and the log is set aside, where it cannot be read."""
        fresh = WriterHistory(CommitLog(self.root, history.log.writer))
        try:
            advance(fresh)
        except (OSError, SourceError) as error:
            self.version += self._aside.say(
                history.log.file, f"it cannot be read: {error}", by_store=_is_by_store(error)
            )
            return False
        history.__dict__.update(fresh.__dict__)
        return True

    def token_files(self) -> list[TokenFile]:
        """Every token file on record that was not set aside, of every attempt."""
        set_aside = self.set_aside
        return [item for item in self._asked() if isinstance(item, TokenFile) and item.path not in set_aside]

    def segments(self) -> list[Segment]:
        """Every statistics segment on record that was not set aside."""
        return [item for item in self._segments() if not item.is_scalars]

    def scalars(self) -> list[Segment]:
        """Every file of scalars on record that was not set aside."""
        return [item for item in self._segments() if item.is_scalars]

    def by_path(self) -> list[TokenFile | Segment]:
        """All of these files, in the order of their paths."""
        return sorted([*self.token_files(), *self._segments()], key=lambda item: item.path)

    def _segments(self) -> list[Segment]:
        set_aside = self.set_aside
        return [item for item in self._asked() if isinstance(item, Segment) and item.path not in set_aside]

    def readings(self) -> list[ReadingFile]:
        """Every file of a reading on record that was not set aside."""
        gone = {*self.set_aside, *self.pruned_paths()}
        every = (file for history in self._histories() for file in history.readings.values())
        return [file for file in every if file.path not in gone and self._is_asked(file.attempt)]

    def steps_of_attempts(self) -> dict[int, set[int]]:
        """attempt -> the steps it committed, also those in files that were set aside."""
        steps: dict[int, set[int]] = {}
        for item in self.recorded():
            steps.setdefault(item.attempt, set()).update(steps_of(item))
        return steps

    def recorded(self) -> Iterator[TokenFile | Segment]:
        """Every file of the attempts that are asked for, also those that were set aside or moved away."""
        yield from self._asked()
        yield from (item for item in self._moved_items() if self._is_asked(item.attempt))

    def _asked(self) -> Iterator[TokenFile | Segment]:
        yield from (item for item in self.items() if self._is_asked(item.attempt))

    def cutoffs(self) -> Cutoffs:
        """From which steps on attempts and single writers are replaced by later ones."""
        return cutoffs_of(list(self.recorded()), self.histories)

    def shadows(self) -> tuple[Shadow, ...]:
        """The steps that are not shown because of a later start."""
        recorded = list(self.recorded())
        return shadows_of(recorded, self.histories, cutoffs_of(recorded, self.histories))

    def rows_set_aside(self) -> int:
        """Token rows in files that are not read. Rows of a merged file do not count where the files it replaced are read."""
        described = (self._described(path) for path in self.set_aside)
        files = [item for item in described if isinstance(item, TokenFile) and self._is_asked(item.attempt)]
        read = {item.path: item.rows for item in self.token_files()} if any(item.replaces for item in files) else {}
        return sum(max(0, item.rows - sum(read.get(origin.path, 0) for origin in item.replaces)) for item in files)

    def _moved_items(self) -> list[TokenFile | Segment]:
        return [item for path in self.moved() if (item := self._described(path)) is not None]

    @property
    def writers(self) -> list[WriterHistory]:
        """The logs of the processes that recorded, without the logs of verbs such as `compact`."""
        return [history for history in self.told() if not history.is_offline]

    def told(self) -> list[WriterHistory]:
        """The logs of the attempt that is asked for, and those of verbs."""
        return [each for each in self.histories.values() if each.is_offline or self._is_asked(each.attempt)]

    def demand_attempt(self) -> None:
        """SourceError unless there was such a start, if one is asked for."""
        known = sorted({history.attempt for history in self.histories.values() if not history.is_offline})
        known = known or sorted({item.attempt for item in self.items()})
        if self.attempt is not None and self.attempt not in known:
            raise SourceError(
                f"attempt {self.attempt} is not on record; {self.root} has {', '.join(map(str, known)) or 'none'}"
            )

    def _is_asked(self, attempt: int) -> bool:
        return self.attempt is None or attempt == self.attempt

    def is_asked_of(self, path: str) -> bool:
        """False for a file that a commit of another start names than the one that is asked for."""
        item = None if self.attempt is None else self._described(path)
        return item is None or self._is_asked(item.attempt)

    def committed(self, path: str) -> TokenFile | Segment:
        """The file as its commit describes it, whether or not it is part of the run. SourceError where no commit names it."""
        if (item := self._described(path)) is None:
            raise SourceError(f"no commit names {path}")
        return item

    def _described(self, path: str) -> TokenFile | Segment | None:
        for history in self._histories():
            if (item := history.token_files.get(path) or history.segments.get(path)) is not None:
                return item
        return self._described(path) if self._read_needed_logs_in_full(writer_of(path)) else None

    def _histories(self) -> list[WriterHistory]:
        """All logs, those of verbs first: a commit by `repair` counts more than the writer's own."""
        return sorted(self.histories.values(), key=lambda history: not history.is_offline)

    def overall(self) -> dict[OverallFile, list[Segment]]:
        """The files of overall statistics -> the segments whose rows they repeat, of those that the run consists of."""
        files: dict[OverallFile, list[Segment]] = {}
        for segment in self.segments():
            if segment.overall is not None:
                files.setdefault(segment.overall, []).append(segment)
        return files

    def committed_paths(self) -> set[str]:
        """Paths of the token files and segments that any log names."""
        return {path for history in self.histories.values() for path in (*history.token_files, *history.segments)}

    def pruned_paths(self) -> set[str]:
        """Paths of the files that `prune` deleted."""
        return {path for history in self.histories.values() for path in history.pruned}

    def pruned_files(self) -> list[TokenFile]:
        """The token files that `prune` deleted, without those that a merged one of them replaced."""
        found = [item for path in self.pruned_paths() if isinstance(item := self._described(path), TokenFile)]
        replaced = {origin.path for item in found for origin in item.replaces}
        return [item for item in found if item.path not in replaced]

    def items(self) -> Iterator[TokenFile | Segment]:
        """The files of the run. A file is left out as long as a merged file replaces it and can be read."""
        every: dict[str, TokenFile | Segment] = dict(self.recovered_files)
        for history in reversed(self._histories()):
            every.update(history.token_files)
            every.update(history.segments)
        for pruned in (history.pruned for history in self.histories.values() if history.pruned):
            for path in every.keys() & pruned:
                del every[path]
        for path in self.moved():
            every.pop(path, None)
        yield from unreplaced(every, self.set_aside)

    def _advance(self, file: str) -> bool:
        writer = PurePosixPath(file).stem
        if commit_file(writer).as_posix() != file:
            return False
        verbs = self.histories.values() if self.use_short_forms else ()
        history = self.histories.get(writer) or begun_from_short_form(CommitLog(self.root, writer), verbs)
        try:
            changed = advance(history)
        except (OSError, SourceError) as error:
            return self._aside.say(file, f"it cannot be read: {error}", by_store=_is_by_store(error))
        self.histories[writer] = history
        return self._aside.say(file, None) or changed

    def _is_to_be_compared_again(self) -> bool:
        """True if files may have come that no commit names, or if the logs stopped to be doubtful since the last comparison."""
        is_doubtful = self._is_doubtful()
        return is_doubtful != self._was_doubtful or (is_doubtful and time.monotonic() >= self._compare_again)

    def _is_doubtful(self) -> bool:
        damaged = any(not history.is_whole for history in self.histories.values())
        unknown = self.recovered_files or self.failures.folders or disagreements(self.histories, self._run_id)
        return damaged or bool(unknown)

    def _compare_with_folders(self) -> bool:
        """Compares the logs with the files on disk: sets aside foreign and missing files, recovers files without a commit."""
        is_whole = bool(self.histories) and all(history.is_whole for history in self.histories.values())
        began = time.monotonic()
        on_disk = listing(self.root, whole=self.lists_store or not is_whole)
        self._run_id = stated_id(self.root)
        before = (dict(self.recovered_files), dict(self._aside.reasons))
        self._aside.take_back_listed(on_disk.unlisted)
        for path, reason in on_disk.foreign.items():
            self.quarantine(path, reason)
        self._set_missing_aside(on_disk)
        self._recover(on_disk)
        self._notes = tuple(notes_on_logs(self.histories, self._run_id, self.recovered_files))
        self._was_doubtful = self._is_doubtful()
        ended = time.monotonic()
        self._compare_again = ended + (RESTS * (ended - began) if on_disk.entries > _MANY else 0.0)
        return before != (self.recovered_files, self._aside.reasons)

    def _set_missing_aside(self, on_disk: Listing) -> None:
        """Sets aside committed files that are not on disk."""
        known = on_disk.parquet_files | self._aside.reasons.keys()
        if on_disk.is_partial:
            return
        absent = [item for item in self.items() if item.path not in known]
        missing = [item for item in absent if self.failures.is_missing(item.path)]
        for item in missing:
            self.quarantine(item.path, "a commit names it, but it is not there: deleted, or not yet copied")
        if any(item.replaces for item in missing):
            # the files they replaced belong to the run again, and may be missing too
            self._set_missing_aside(on_disk)

    def _recover(self, on_disk: Listing) -> None:
        """Describes files without a commit by their footers, where the log of their writer is missing or damaged."""
        whole_logs = {writer for writer, history in self.histories.items() if history.is_whole}
        unnamed = on_disk.parquet_files - self.committed_paths() - self.pruned_paths()
        paths = {path for path in unnamed if writer_of(path) not in whole_logs}
        self.recovered_files = {path: item for path, item in self.recovered_files.items() if path in paths}
        fresh = sorted(paths - set(self.recovered_files) - set(self._aside.reasons))
        items = [item for path in fresh if (item := recovered(self.files, path, self.quarantine)) is not None]
        self.recovered_files |= {item.path: item for item in items}
        # the earlier ones were judged when they were new
        token_files = [item for item in items if isinstance(item, TokenFile)]
        uncounted = self.uncounted(token_files)
        self.recovered_files |= {
            item.path: replace(item, unmeasured=True) for item in token_files if item.path in uncounted
        }

    def uncounted(self, recovered: Collection[TokenFile]) -> set[str]:
        """Paths of the recovered files whose rows the statistics of their step do not count, see recovery.uncounted."""
        return uncounted(self.files, recovered, self.token_files(), self.segments()) if recovered else set()

    def _digest(self, path: str) -> str | None:
        item = self._described(path)
        return None if item is None else item.sha256


def _is_by_store(error: OSError | SourceError) -> bool:
    return isinstance(error, Unread) or not isinstance(error, SourceError)
