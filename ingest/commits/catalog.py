"""What a run consists of: every writer's commits together, kept current, and what was recovered, uncommitted or set aside."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from ratioscope.errors import SourceError
from ratioscope.layout import TOKENS, commit_file, is_offline, writer_of

from ..files.listing import Listing, listing, logs
from ..files.parquet_files import ParquetFiles, Signature
from ..files.run_file import stated_id
from .attempts import Limit, Limits, Shadow, WriterSteps, limits, shadows
from .commit_log import CommitLog
from .entries import Segment, TokenFile
from .log_cross_checks import disagreements
from .recovery import recovered, uncounted
from .short_forms_of_run import begun_from_short_form, lacking_wanted_files
from .writer_history import WriterHistory


@dataclass
class Catalog:
    """The run at `root` as far as `refresh` has read it. version: grows with every change, files set aside included. in_short:
    logs that `compact` condensed are read by their short forms, as long as none of the files left out there is wanted. replaced:
    a log that was read is gone and others lie there, so that this is another run, which has to be opened anew."""

    root: Path
    files: ParquetFiles
    use_short_forms: bool = False
    histories: dict[str, WriterHistory] = field(default_factory=dict)
    version: int = 0
    replaced: bool = False
    _notes: tuple[str, ...] = ()
    _set_aside: dict[str, str] = field(default_factory=dict)
    _recovered: dict[str, TokenFile | Segment] = field(default_factory=dict)
    _seen: dict[str, tuple[Signature | None, str | None]] = field(default_factory=dict)
    _looked: bool = False
    _run_id: str | None = None

    def refresh(self) -> bool:
        """Reads what was appended to the commit logs since the last call; True if it changed anything."""
        changed, found = False, logs(self.root)
        self.replaced |= bool(found) and any(commit_file(writer).as_posix() not in found for writer in self.histories)
        for file in sorted(found, key=lambda file: (not is_offline(PurePosixPath(file).stem), file)):
            changed |= self._advance(file)
        changed |= self._retry()
        if not self._looked or self._notes or self._doubtful():
            changed |= self._look_around()
            self._looked = True
        if changed:
            self._spell_out()
        self.version += changed
        return changed

    @property
    def set_aside(self) -> dict[str, str]:
        """path -> why it is not read."""
        refused = (history.refused for history in self.histories.values())
        return {
            **{path: reason for path, reason in self._set_aside.items() if not self._is_pruned(path)},
            **{path: reason for part in refused for path, reason in part.items()},
            **self.moved(),
        }

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of how the run was read."""
        return (*self._notes, *self._lost())

    def _lost(self) -> Iterator[str]:
        """Writers whose part of a step is nowhere, though others' is: what is shown of the step looks whole."""
        set_aside = self.set_aside
        gone = [*(item for item in self._items() if item.path in set_aside), *self._moved_items()]
        measured = {pair for item in gone if isinstance(item, Segment) for pair in item.writers_and_steps}
        if not measured:
            return
        measured -= {pair for segment in self.segments() for pair in segment.writers_and_steps}
        measured -= {(writer, file.step) for file in self.token_files() for writer, _ in file.policies_by_writer}
        steps = sorted({step for _, step in measured})
        if steps:
            writers = sorted({writer for writer, _ in measured})
            who = writers[0] if len(writers) == 1 else f"{len(writers)} writers, such as {writers[0]},"
            when = f"step {steps[0]}" if len(steps) == 1 else f"{len(steps)} steps from {steps[0]} to {steps[-1]}"
            yield f"statistics and token rows of {who} at {when} are lost: what is shown of them is without these"

    def _is_pruned(self, path: str) -> bool:
        return any(path in history.pruned for history in self.histories.values())

    def moved(self) -> dict[str, str]:
        """path -> why a repair moved it away; one that was copied again is not among them."""
        told = {path: why for history in self.histories.values() for path, why in history.moved.items()}
        return {path: why for path, why in told.items() if self.files.signature(path) is None}

    def noted(self, log: str) -> tuple[int, int, int] | None:
        """The faults that a repair has seen in the log; None: no repair has."""
        return next((h.noted[log] for h in reversed(self.histories.values()) if log in h.noted), None)

    def quarantine(self, path: str, reason: str) -> None:
        """Sets a file aside until it changes, or is committed anew."""
        self.version += self._set_aside.get(path) != reason
        self._set_aside[path] = reason
        self._seen[path] = self._state(path)
        item = self._described(path)
        if item is not None and item.replaces:  # what it stood for is wanted after all
            self._spell_out()

    def gone(self) -> set[str]:
        """Files that are no part of the run, because others hold their rows or because they were pruned."""
        set_aside = self.set_aside
        standing = (item for item in self._items() if item.replaces and item.path not in set_aside)
        return {origin.path for item in standing for origin in item.replaces} | self._pruned()

    def _spell_out(self, writer: str | None = None) -> bool:
        """Reads the logs of which short forms leave out files that are wanted, or that of one writer; True if there are any."""
        short = [history for history in self.histories.values() if history.omitted.files]
        if not short:
            return False
        own = [history for history in short if history.log.writer == writer]
        wanted = lacking_wanted_files(self.histories.values(), self.gone()) if writer is None else own
        for history in wanted:
            fresh = WriterHistory(CommitLog(self.root, history.log.writer))
            fresh.advance()
            history.__dict__.update(fresh.__dict__)
        self.version += bool(wanted)
        return bool(wanted)

    def token_files(self) -> list[TokenFile]:
        """Every token file on record that was not set aside, of every attempt."""
        set_aside = self.set_aside
        return [item for item in self._items() if isinstance(item, TokenFile) and item.path not in set_aside]

    def segments(self) -> list[Segment]:
        """Every statistics segment on record that was not set aside."""
        set_aside = self.set_aside
        return [item for item in self._items() if isinstance(item, Segment) and item.path not in set_aside]

    def steps_of_attempts(self) -> dict[int, set[int]]:
        """attempt -> the steps it committed, files that were set aside included."""
        found: dict[int, set[int]] = {}
        for item in self.recorded():
            found.setdefault(item.attempt, set()).update(steps_of(item))
        return found

    def recorded(self) -> Iterator[TokenFile | Segment]:
        """What the run consists of, files that were set aside or moved included."""
        yield from self._items()
        yield from self._moved_items()

    def limits(self) -> Limits:
        """From which steps on attempts, and single writers, are replaced by later ones."""
        again = any(history.takes_over for history in self.histories.values())
        if not again and len({item.attempt for item in self.recorded()}) < 2:  # as in most runs, of many files
            return Limits()
        steps: dict[tuple[int, str], set[int]] = {}
        policies: dict[str, frozenset[str]] = {}
        for item in self.recorded():
            for writer, held, own in held_of(item):
                steps.setdefault((item.attempt, writer), set()).update(own)
                policies[writer] = policies.get(writer, frozenset()) | held
        return limits([self._part(*key, own, policies[key[1]]) for key, own in steps.items()])

    def _part(self, attempt: int, writer: str, steps: set[int], policies: frozenset[str]) -> WriterSteps:
        history = self.histories.get(writer)
        if history is None or history.is_offline:
            return WriterSteps(writer, attempt, steps, policies)
        heard = [time for time in (history.last_commit, history.closed) if time is not None]
        job = history.launch if history.launch is not None and history.launch.startswith("job:") else None
        times = history.opened, max(heard, default=None)
        return WriterSteps(writer, attempt, steps, policies, history.rank, *times, job, history.takes_over)

    def rows_set_aside(self) -> int:
        """Token rows on record in files that are not read, but for those that the files still hold which such a one replaced."""
        found = [item for path in self.set_aside if isinstance(item := self._described(path), TokenFile)]
        read = {item.path: item.rows for item in self.token_files()} if any(item.replaces for item in found) else {}
        return sum(max(0, item.rows - sum(read.get(origin.path, 0) for origin in item.replaces)) for item in found)

    def _moved_items(self) -> list[TokenFile | Segment]:
        return [item for path in self.moved() if (item := self._described(path)) is not None]

    def shadows(self) -> tuple[Shadow, ...]:
        """What is not shown, because it was recorded again."""
        found, hidden = self.limits(), dict[tuple[int, Limit], tuple[set[int], int]]()
        for item in self.recorded() if found else ():
            limit = found.of(item.attempt, writers_of(item))
            steps = set() if limit is None else {step for step in steps_of(item) if step >= limit.step}
            if limit is not None and steps:
                known, rows = hidden.get((item.attempt, limit), (set[int](), 0))
                hidden[item.attempt, limit] = known | steps, rows + (item.rows if isinstance(item, TokenFile) else 0)
        return shadows(hidden)

    @property
    def writers(self) -> list[WriterHistory]:
        """The processes that recorded; verbs that worked on the run are none."""
        return [history for history in self.histories.values() if not history.is_offline]

    def uncommitted(self) -> list[str]:
        """Files that lie in the run and are not part of it: the last steps of a writer that was killed, or is at work."""
        return sorted(path for path in self._unnamed() if not is_offline(writer_of(path)))

    def committed(self, path: str) -> TokenFile | Segment:
        """The file as its commit describes it, whether or not it is part of the run; SourceError where none does."""
        if (item := self._described(path)) is None:
            raise SourceError(f"no commit names {path}")
        return item

    def _described(self, path: str) -> TokenFile | Segment | None:
        for history in self._histories():
            if (item := history.token_files.get(path) or history.segments.get(path)) is not None:
                return item
        return self._described(path) if self._spell_out(writer_of(path)) else None

    def _histories(self) -> list[WriterHistory]:
        """Repairs first: what they say of a file is the last word."""
        return sorted(self.histories.values(), key=lambda history: not history.is_offline)

    def leftovers(self) -> list[str]:
        """Files that lie in the run and that it can do without: other files hold their rows, or they were pruned."""
        found = listing(self.root)
        mine = {item.path for item in self._items()}
        superseded = (self._committed() | self.gone()) - mine - set(self.set_aside)
        unfinished = {path for path in self._unnamed() if is_offline(writer_of(path))}
        return sorted((found.token_files | found.segments) & superseded | unfinished)

    def _unnamed(self) -> set[str]:
        found = listing(self.root)
        known = self._committed() | set(self._recovered) | set(self.set_aside) | self.gone()
        return (found.token_files | found.segments) - known

    def _committed(self) -> set[str]:
        return {path for history in self.histories.values() for path in (*history.token_files, *history.segments)}

    def _pruned(self) -> set[str]:
        return {path for history in self.histories.values() for path in history.pruned}

    def _items(self) -> Iterator[TokenFile | Segment]:
        """What the run consists of. A file is left out as long as another one, that can be read, replaces it."""
        every: dict[str, TokenFile | Segment] = dict(self._recovered)
        for history in reversed(self._histories()):
            every.update(history.token_files)
            every.update(history.segments)
        for pruned in (history.pruned for history in self.histories.values() if history.pruned):
            for path in every.keys() & pruned:
                del every[path]
        for path in self.moved():
            every.pop(path, None)
        set_aside, replaced = self.set_aside, set[str]()
        merged = sorted(
            (item for item in every.values() if item.replaces), key=lambda item: (-len(item.replaces), item.path)
        )
        for item in merged:
            origins = {origin.path for origin in item.replaces}
            if item.path in set_aside or item.path in replaced:
                continue
            if origins & replaced:  # two merges of one file: the rows of one of them would count twice
                replaced.add(item.path)
            else:
                replaced |= origins
        yield from (item for path, item in every.items() if path not in replaced)

    def _advance(self, file: str) -> bool:
        writer = PurePosixPath(file).stem
        if commit_file(writer).as_posix() != file:
            return False
        known = self.histories.values() if self.use_short_forms else ()
        history = self.histories.get(writer) or begun_from_short_form(CommitLog(self.root, writer), known)
        try:
            changed = history.advance()
        except (OSError, SourceError) as error:
            self.quarantine(file, f"it cannot be read: {error}")
            return False
        self.histories[writer] = history
        return changed

    def _doubtful(self) -> bool:
        return any(not history.is_whole for history in self.histories.values()) or bool(self._strange())

    def _look_around(self) -> bool:
        """Compares the logs with what lies in the folders: sets aside what is foreign or missing, recovers what can be."""
        found = listing(self.root)
        self._run_id = stated_id(self.root)
        before = (dict(self._recovered), dict(self._set_aside))
        for path, reason in found.foreign.items():
            self.quarantine(path, reason)
        self._set_missing_aside(found)
        self._recover(found)
        self._notes = tuple(self._told(found))
        return before != (self._recovered, self._set_aside)

    def _set_missing_aside(self, found: Listing) -> None:
        present = found.token_files | found.segments
        missing = [item for item in self._items() if item.path not in present and item.path not in self._set_aside]
        for item in missing:
            self.quarantine(item.path, "a commit names it, but it is not there: deleted, or not yet copied")
        if any(item.replaces for item in missing):  # what these replaced is wanted after all
            self._set_missing_aside(found)

    def _recover(self, found: Listing) -> None:
        sound = {writer for writer, history in self.histories.items() if history.is_whole}
        known = self._committed() | self._pruned()
        wanted = {path for path in found.token_files | found.segments if writer_of(path) not in sound} - known
        self._recovered = {path: item for path, item in self._recovered.items() if path in wanted}
        for path in sorted(wanted - set(self._recovered) - set(self._set_aside)):
            item = recovered(self.files, path, self.quarantine)
            if item is not None:
                self._recovered[path] = item
        tokens = [item for item in self._recovered.values() if isinstance(item, TokenFile)]
        uncounted = self.uncounted(tokens)
        self._recovered |= {item.path: replace(item, unmeasured=True) for item in tokens if item.path in uncounted}

    def uncounted(self, recovered: Collection[TokenFile]) -> set[str]:
        """Those of the files whose rows no statistics of their step count, although statistics of the step are on record."""
        return uncounted(self.files, recovered, self.token_files(), self.segments()) if recovered else set()

    def _told(self, found: Listing) -> Iterator[str]:
        pruned = _joined({pair for history in self.histories.values() for pair in history.pruned_steps})
        if pruned:
            number, first, last = sum(b - a + 1 for a, b in pruned), pruned[0][0], pruned[-1][1]
            steps = f"step {first}" if number == 1 else f"{number} steps from {first} to {last}"
            yield f"token rows of {steps} were pruned; their statistics are kept"
        torn = sorted(writer for writer, history in self.histories.items() if not history.is_whole)
        for writer in torn:
            yield f"{self.histories[writer].log.file} {self.histories[writer].doubt}; its other lines were read"
        yield from self._strange()
        if self._recovered:
            tokens = sum(path.startswith(f"{TOKENS}/") for path in self._recovered)
            yield (
                f"{tokens} token files and {len(self._recovered) - tokens} statistics segments are read without a"
                f" commit, because the log that would name them is {'torn' if torn else 'missing'}: their footers were read,"
                " their digests are unknown"
            )

    def _strange(self) -> tuple[str, ...]:
        """What logs say of each other, and of their run, that does not hold."""
        return disagreements(self.histories, self._run_id)

    def _retry(self) -> bool:
        """Gives files that were set aside another chance once they, or what their commits say, have changed."""
        again = [path for path, seen in self._seen.items() if self._state(path) != seen]
        for path in again:
            del self._seen[path]
            self._set_aside.pop(path, None)
        self._looked &= not again
        return bool(again)

    def _state(self, path: str) -> tuple[Signature | None, str | None]:
        """What tells whether a file is worth another look: itself, and the digest that was committed for it."""
        item = self._described(path)
        return self.files.signature(path), None if item is None else item.sha256


def writers_of(item: TokenFile | Segment) -> tuple[str, ...]:
    """All whose rows, or statistics, the file holds."""
    return (item.writer,) if not item.replaces else tuple(dict.fromkeys(writer for writer, _, _ in held_of(item)))


def held_of(item: TokenFile | Segment) -> Iterator[tuple[str, frozenset[str], frozenset[int]]]:
    """(writer, policies, steps) of each of them."""
    if isinstance(item, TokenFile):
        yield from ((writer, policies, steps_of(item)) for writer, policies in item.policies_by_writer)
    elif item.measured:
        yield from ((part.writer, frozenset[str](), part.steps) for part in item.measured)
    else:
        yield item.writer, frozenset(), item.steps


def steps_of(item: TokenFile | Segment) -> frozenset[int]:
    return frozenset((item.step,)) if isinstance(item, TokenFile) else item.steps


def _joined(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pairs of first and last, ascending, none of which reach into each other."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(pairs):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found


@dataclass(frozen=True)
class VisibleFiles:
    """The part of a catalog that is shown: what was recorded again is cut where that begins.

    steps: ascending, also those of which every file was set aside.
    """

    steps: tuple[int, ...]
    token_files: dict[int, tuple[TokenFile, ...]]
    segments: tuple[Segment, ...]
    limits: Limits

    def limit(self, item: TokenFile | Segment) -> Limit | None:
        """From which step on the file is not part of the run as it is shown."""
        return self.limits.of(item.attempt, writers_of(item))

    def shown(self, item: TokenFile | Segment) -> frozenset[int]:
        """The steps of a file that are."""
        limit = self.limit(item)
        return steps_of(item) if limit is None else frozenset(step for step in steps_of(item) if step < limit.step)


def visible_files(catalog: Catalog) -> VisibleFiles:
    """Visible token files by step, ascending, and the segments that hold a visible step."""
    bare = VisibleFiles((), {}, (), catalog.limits())
    by_step: dict[int, list[TokenFile]] = {}
    for file in catalog.token_files():
        if not bare.limits or bare.shown(file):
            by_step.setdefault(file.step, []).append(file)
    segments = (segment for segment in catalog.segments() if bare.shown(segment))
    ordered = {step: tuple(sorted(by_step[step], key=lambda file: file.path)) for step in sorted(by_step)}
    found = (bare.shown(i) for i in catalog.recorded()) if bare.limits else catalog.steps_of_attempts().values()
    steps = set[int]().union(*found)
    return VisibleFiles(tuple(sorted(steps)), ordered, tuple(sorted(segments, key=lambda s: s.path)), bare.limits)
