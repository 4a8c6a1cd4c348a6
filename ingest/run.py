"""Run: an opened run folder, which may still grow. Analyses, report, pages and the command line read a run only through it."""

import os
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import polars as pl
import pyarrow as pa

from ratioscope.errors import MissingExtra, SourceError
from ratioscope.metrics.distribution import Level
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.frame import unavailable
from ratioscope.metrics.grading.run_rules import RunRules
from ratioscope.record import GAPS, POLICIES, sides

from .commits.attempts import Cutoffs, Shadow
from .commits.catalog import Catalog
from .commits.conservation import Conservation, conservation, endings
from .commits.entries import TokenFile
from .commits.history_frames import drops_frame, events_frame, last_settled_step, times_frame, writers_frame
from .commits.liveness import SILENT_SECONDS
from .commits.reading_files import ReadingFile
from .commits.visible_files import VisibleFiles, uncommitted_files
from .commits.weight_entries import TensorTable, WeightDigests
from .files.cache import Cache
from .files.cache_folder import cache_folder
from .files.folder import run_folder
from .files.parquet_files import ParquetFiles
from .files.progress import OnProgress
from .files.quarantine import CountedSetAside, Quarantined
from .files.run_file import rules_of_folder, run_file
from .remote.opening import local_run, mirror_at
from .rows.claims import Claims, ClaimsOfRun
from .rows.reading_rows import Fit, ReadingRows
from .rows.readings import Pair, Reading, Readings, fits_of, reading_digest, row_digest, run_digest
from .rows.record_rows import RecordRows
from .rows.record_scan import record_scan, token_rows
from .rows.sequences import READ, sequence_table
from .rows.token_frame import token_schema
from .rows.windows import Span, row_of_sequence, span_frame
from .statistics.kept_tables import KeptTables
from .statistics.logged_scalars import SCALAR_LOG, LoggedScalars, note_on
from .statistics.merged_statistics import MergedStatistics
from .statistics.metric_columns import ChosenSteps, columns_of_gap, distribution_frame
from .statistics.row_statistics import RowStatistics, RowWork
from .statistics.run_metrics import RunMetrics
from .statistics.run_statistics import RunStatistics
from .statistics.segment_tables import SegmentTables
from .statistics.statistics_files import OverallRows

if TYPE_CHECKING:
    import pandas as pd


NOTEBOOK = "ratioscope.app.documents.notebook"
"""The module that draws a run for a notebook. It is loaded by name when a notebook asks, because no room imports a face."""

ANSWERS = "ratioscope.app.cli.in_python"
"""The module that answers as the verbs do, loaded by name for the same reason."""


@dataclass(frozen=True)
class Size:
    """Size of the part of a run that is on record and shown."""

    rows: int
    """Token rows; a sequence has one per minibatch."""
    tokens: int
    """Response tokens in these rows."""
    bytes: int
    """Bytes of the token files, statistics segments and files of scalars."""


def open_run(path: str | os.PathLike[str], *, rules: RunRules | None = None, attempt: int | None = None) -> "Run":
    """The run in this folder, or at this URL; SourceError if there is none, or if a newer ratioscope wrote it.

    Damaged files are no error. A URL may be of any store that fsspec knows, such as s3://bucket/runs/a: its commit logs are
    copied into the user's cache now and at each `refresh`, and its other files as they are needed.
    rules: those by which it is graded; None: those of ratioscope.toml in its folder, or the usual ones.
    attempt: only what this start of the job recorded, also where a later start recorded it again; None: the run as it went on.
    """
    return Run(run_folder(local_run(path)), rules=rules, attempt=attempt)


Made = TypeVar("Made")


class Run:
    """An opened run. `refresh` follows a run that is being written; `revision` grows whenever it finds something new.

    Several threads may share a Run and the frames it returns: frames are never changed in place.
    """

    def __init__(
        self, path: Path | str, cache: Cache | None = None, rules: RunRules | None = None, attempt: int | None = None
    ) -> None:
        self.path = path = Path(path)
        self._mirror = mirror_at(path)
        self.revision = 0
        self._lock = threading.RLock()
        self._run_file = run_file(path)
        self._given_rules = rules
        self._rules = rules_of_folder(path) if rules is None else rules
        files = ParquetFiles(path)
        self._catalog = Catalog(path, files, use_short_forms=True, attempt=attempt)
        aside = CountedSetAside(self._catalog.quarantine)
        self._rows = RecordRows(files, aside)
        self._reading_rows = ReadingRows(files, aside)
        self._known_readings: tuple[int, Readings] | None = None
        self._cache = cache = Cache(cache_folder()) if cache is None else cache
        of_rows, kept = RowStatistics(self._rows, cache, aside), KeptTables(cache, path)
        self._statistics = RunStatistics(
            SegmentTables(files, self._catalog.quarantine, kept, OverallRows(files)), of_rows
        )
        self._metrics = RunMetrics(
            self._catalog,
            self._statistics,
            of_rows,
            kept,
            MergedStatistics(self._statistics, kept),
            LoggedScalars(files, self._catalog.quarantine),
        )
        self._claims = ClaimsOfRun(self._rows)
        self._hidden: tuple[int, tuple[tuple[Shadow, ...], int]] | None = None
        self._once: tuple[tuple[int, int], dict[tuple[object, ...], Any]] = ((-1, 0), {})
        self._catalog.refresh()
        self._catalog.demand_attempt()

    def __repr__(self) -> str:
        return f"<Run {self.name!r}: {len(self.steps)} steps, {', '.join(self.gaps) or 'no gap'} at {self.place!r}>"

    def _repr_html_(self) -> str | None:
        """The display in a notebook: verdict and sparkline. None where that cannot be drawn: the notebook then shows the text."""
        try:
            return str(import_module(NOTEBOOK).notebook_html(self))
        except Exception:  # whatever a damaged run or a missing part raises: showing a run never ends a cell
            return None

    def diagnose(self, gap: str | None = None, steps: Sequence[int] | None = None) -> Any:
        """The answer of `ratioscope diagnose`: it prints as sentences, and its `plain` is the verb's JSON.

        gap: None for the one that the verdict is on. steps: only these. SourceError where nothing can be diagnosed.
        """
        return import_module(ANSWERS).diagnosis(self, gap, steps)

    def compare(self, other: "Run", gap: str | None = None) -> Any:
        """The answer of `ratioscope diff`: did the change from this run to the other one help? `plain` is the verb's JSON."""
        return import_module(ANSWERS).comparison(self, other, gap)

    def report(self, *, text: bool = True) -> Any:
        """The report of `ratioscope report`: `html()`, `markdown()`, `json()`, and `save(path)` by the ending of the path.

        text: False leaves prompts and token texts out.
        """
        return import_module(ANSWERS).Report(self, text)

    def refresh(self) -> bool:
        """Reads what was committed since the last call, and changed rules; True if there is any.

        A store is asked every two seconds at most. If it does not answer, the run stays as it is known, and `notes` says why.
        """
        if self._mirror is not None:
            self._mirror.follow()
        with self._lock:
            rules = rules_of_folder(self.path) if self._given_rules is None else self._given_rules
            changed = self._catalog.refresh()
            if changed or not self._run_file.info:
                before, self._run_file = self._run_file, run_file(self.path)
                changed |= before != self._run_file
            changed |= rules != self._rules
            self._rules = rules
            self.revision += changed
            return changed

    def once(self, make: Callable[..., Made], *arguments: Hashable) -> Made:
        """make(run, *arguments), made once as long as the run is the same. Nobody may change it."""
        with self._lock:
            state = self.revision, len(self._catalog.set_aside)
            if self._once[0] != state:
                self._once = state, {}
            known, key = self._once[1], (make, *arguments)
            if key not in known:
                known[key] = make(self, *arguments)
            return cast(Made, known[key])

    @property
    def is_replaced(self) -> bool:
        """True if another run was recorded in the folder since this one was opened. It has to be opened again."""
        return self._catalog.replaced

    @property
    def info(self) -> dict[str, Any]:
        """The content of run.json, as the first start whose steps are shown described itself; empty where it cannot be read."""
        return self._run_file.of_attempt(self._told_by)

    @property
    def _told_by(self) -> int:
        if self._catalog.attempt is not None or not self._run_file.has_attempts:
            return self._catalog.attempt or 0
        cutoffs = self._visible.cutoffs.attempts
        begins = self.attempts.items()
        return min((own for own, first in begins if own not in cutoffs or cutoffs[own].step > first), default=0)

    @property
    def name(self) -> str:
        """The run's name in run.json; where it has none, the name of its folder."""
        return self._run_file.name(self.path)

    @property
    def place(self) -> str:
        """The place of the run, for people: its folder, or its URL without secrets."""
        return str(self.path) if self._mirror is None else self._mirror.store.address.shown

    @property
    def is_remote(self) -> bool:
        """True if the run is on a store, and its files are fetched as they are needed."""
        return self._mirror is not None

    def bytes_to_fetch(self, steps: Iterable[int]) -> int:
        """Bytes of the token files of these steps that only the store of the run has; 0 for a run in a folder."""
        with self._lock:
            files = (file for step in steps for file in self._visible.token_files.get(step, ()))
            return sum(file.bytes for file in files if not self._rows.files.is_here(file.path))

    @property
    def behind(self) -> str:
        """Why a run on a store is known as it was earlier, or in part; empty while the store answers, and for any other run."""
        return "" if self._mirror is None else self._mirror.note

    @property
    def rules(self) -> RunRules:
        """The rules by which the run is graded."""
        return self._rules

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about how the run was read: what is missing, recovered, or computed from token rows."""
        own = [self._run_file.note] if self._run_file.note else []
        own = [f"{self.place}: {self.behind}", *own] if self.behind else own
        if (asked := self._catalog.attempt) is not None:
            own = [f"only what start {asked} of the job recorded is shown (--attempt {asked})", *own]
        extra = sorted(self._rows.extra)
        own += (
            [f"token files have columns that no Record has, and that are not read: {', '.join(extra)}"] if extra else []
        )
        own += [self.claims.note] if self.claims.note else []
        own += [note_on(self.logged)] if self.no_tokens else []
        return (*own, *self._catalog.notes, *self._statistics.notes)

    @property
    def unkept(self) -> str:
        """Why results of this run are computed again each time, and what to do; empty where the cache keeps them."""
        return f"results are computed again each time: {self._cache.refusal}" if self._cache.refusal else ""

    @property
    def claims(self) -> Claims:
        """Rows that two writers recorded under one key. Some steps are checked; `verify` checks all."""
        with self._lock:
            return self._claims.of(self._visible.token_files)

    @property
    def no_tokens(self) -> str:
        """Why the run can have no tokens, to follow "because": it was made of a scalar log. Empty for any other run."""
        with self._lock:
            return SCALAR_LOG if self._metrics.is_scalar_log else ""

    @property
    def logged(self) -> pl.DataFrame:
        """Every number that a trainer logged, as it was logged; empty but for a run that was made of a scalar log.

        Columns: attempt, step, name (the trainer's), value, metric (ours of the same definition, `<gap>/<metric>`, else null).
        """
        with self._lock:
            return self._metrics.logged.table(self._visible)

    @property
    def steps(self) -> list[int]:
        """Steps on record, ascending."""
        return list(self._visible.steps)

    @property
    def steps_with_rows(self) -> list[int]:
        """Steps with token rows, ascending; a budget of 0 leaves the others with statistics alone."""
        return sorted(self._visible.token_files)

    @property
    def policies(self) -> tuple[str, ...]:
        """Policies with log-probs in any token row of the run, or in the statistics of rows that are gone."""
        counted = () if self.no_tokens else self.gaps
        recorded = frozenset(policy for gap in counted for policy in GAPS[gap]).union(
            *{file.policies for files in self._visible.token_files.values() for file in files}
        )
        return tuple(policy for policy in POLICIES if policy in recorded)

    @property
    def gaps(self) -> tuple[str, ...]:
        """Gaps with both sides on record at some step, in token rows or in statistics."""
        with self._lock:
            recorded = self._metrics.gaps
        return tuple(gap for gap in GAPS if gap in recorded)

    @property
    def columns(self) -> frozenset[str]:
        """Columns of the Record with a value at the newest step that has token rows."""
        files = self._visible.token_files
        return frozenset(self.filled(max(files))) if files else frozenset()

    def filled(self, step: int) -> Mapping[str, int]:
        """Column of the Record -> the number of rows of the step with a value in it. Reads the footers of its files."""
        return self._rows.columns(self._files_of(step))

    @property
    def size(self) -> Size:
        """The size of the part of the run that is on record and shown."""
        files = [file for files in self._visible.token_files.values() for file in files]
        others = (*self._visible.segments, *self._visible.scalars)
        stored = sum(file.bytes for file in files) + sum(segment.bytes for segment in others)
        return Size(sum(file.rows for file in files), sum(file.tokens for file in files), stored)

    @property
    def rows_on_disk(self) -> dict[int, int]:
        """step -> its token rows. Steps without token rows are left out."""
        return {step: sum(file.rows for file in files) for step, files in self._visible.token_files.items()}

    @property
    def pruned_rows(self) -> dict[int, int]:
        """step -> the token rows that `prune` deleted, those that a budget had left out included."""
        found: dict[int, int] = {}
        for file in self._catalog.pruned_files():
            if not file.slices and not any(
                first <= file.step for later, first in self.attempts.items() if later > file.attempt
            ):
                found[file.step] = found.get(file.step, 0) + file.rows + file.left_out
        return found

    @property
    def rows_left_out(self) -> dict[int, int]:
        """step -> its token rows, on disk and left out by a budget, of each step with rows that were left out."""
        files = self._visible.token_files.items()
        return {
            step: sum(file.rows + file.left_out for file in own if not file.slices)
            for step, own in files
            if any(file.left_out for file in own)
        }

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """Files that are not read, with reasons. A damaged file is noticed when it is first needed."""
        return tuple(sorted(Quarantined(path, reason) for path, reason in self._catalog.set_aside.items()))

    @property
    def uncommitted(self) -> list[str]:
        """Files that no commit names, and that are not read: the last step of a writer that was killed or is still writing."""
        with self._lock:
            return uncommitted_files(self._catalog)

    @property
    def unsettled(self) -> list[int]:
        """Steps that may still grow: those after the last step that every open writer has committed."""
        with self._lock:
            settled = last_settled_step(self._catalog.writers)
            return [] if settled is None else [step for step in self._visible.steps if step > settled]

    @property
    def shadowed(self) -> tuple[Shadow, ...]:
        """Steps of older attempts that are not shown, because a later start recorded them again or began before them."""
        return self._not_shown[0]

    @property
    def attempts(self) -> dict[int, int]:
        """attempt -> its first step on record, in order. A resumed run has several attempts."""
        with self._lock:
            steps_of = self._catalog.steps_of_attempts()
            return {attempt: min(steps) for attempt, steps in sorted(steps_of.items()) if steps}

    @property
    def events(self) -> pl.DataFrame:
        """The events that writers and people noted, by step. Columns: step, event, note, time, writer."""
        with self._lock:
            return events_frame(self._catalog.told())

    @property
    def weights(self) -> tuple[list[WeightDigests], dict[str, TensorTable]]:
        """(digests of weights on record in the order of time, key -> table of names of tensors)."""
        with self._lock:
            histories = self._catalog.told()
        lines = sorted((line for history in histories for line in history.weights), key=lambda line: line.time or 0.0)
        return lines, {key: table for history in histories for key, table in history.weight_tables.items()}

    @property
    def drops(self) -> pl.DataFrame:
        """Sequences that were offered and not written. Columns: step, sequences, tokens, reason, writer."""
        with self._lock:
            return drops_frame(self._catalog.writers)

    @property
    def dropped(self) -> dict[str, int | None]:
        """Number of sequences and tokens dropped by all writers. tokens is None where some were never counted."""
        counts = self.conservation
        return {"sequences": counts.dropped, "tokens": counts.dropped_tokens}

    @property
    def conservation(self) -> Conservation:
        """The fate of every sequence that was offered, over all writers and attempts, up to now."""
        with self._lock:
            writers = self._catalog.writers
            shadowed, set_aside = self._not_shown
            ended, heard = endings(writers), endings(writers, silence=SILENT_SECONDS)
            return conservation(writers, ended, heard, sum(shadow.rows for shadow in shadowed), set_aside)

    @property
    def states(self) -> dict[str, str]:
        """writer -> why it is degraded or paused, for open writers that cannot write everything."""
        with self._lock:
            troubled = (h for h in self._catalog.writers if h.state != "ok" and h.closed is None)
            return {history.log.writer: history.state_note for history in troubled}

    @property
    def writers(self) -> pl.DataFrame:
        """One row per writer: rank, host, attempt, when it opened, last committed and closed, and its counts."""
        with self._lock:
            histories = self._catalog.writers
            return writers_frame(histories, endings(histories), endings(histories, silence=SILENT_SECONDS))

    @property
    def times(self) -> pl.DataFrame:
        """step, time: when a step was first committed. Steps without token rows have one if they end a segment."""
        with self._lock:
            return times_frame(self._catalog.writers)

    @property
    def digest(self) -> str:
        """A cache key for results computed from the run. Two runs of the same recorded files have the same key; `compact`, which
        merges files, does not change it."""
        return run_digest(self._visible)

    def row_digests(self, steps: Iterable[int] | None = None, gap: str = "") -> dict[int, str]:
        """step -> a cache key for results computed from its token rows. Steps without token rows are left out.

        gap: of readings; then the keys cover its readings, and steps that it cannot be measured at are left out.
        """
        files = self._visible.token_files
        chosen = files if steps is None else [step for step in steps if step in files]
        pair = self._pair(gap) if gap else None
        recorded = {step: files[step] for step in chosen if pair is None or pair.has(step)}
        return {step: row_digest(own, self._rows.files, pair, step) for step, own in recorded.items()}

    def statistics(self, slice: str = "all", *, gap: str | None = None) -> pl.DataFrame:
        """Statistics of a slice, merged over writers: one row per (attempt, step, gap, key), histograms for `all`.

        gap: of this one, which may be between any two of policies and readings; None: of all of GAPS.
        """
        with self._lock:
            if gap is not None and (pair := self._pair(gap)):
                found = self._metrics.pair_statistics(pair, slice).frame
                return found.filter(slice=slice)  # written slices are computed together
            found = self._metrics.statistics(slice)
            return found if gap is None else found.filter(gap=gap)

    def metrics(
        self,
        by: str | Sequence[str] = ("step",),
        *,
        steps: ChosenSteps | None = None,
        names: Sequence[str] | None = None,
        progress: OnProgress | None = None,
        gap: str | None = None,
    ) -> pl.DataFrame:
        """One row per group, with columns `<gap>/<metric>` and, where there is one, its standard error `<gap>/<metric>_se`.

        by: step, attempt, or both, and at most one slice; () is the whole run. A slice is a written one (replica, lag, position,
        probability, turn), or one computed from token rows (see rows/slices.py). progress: called while token rows are read, and
        while a slice is merged over many steps.
        steps: only these, such as range(100, 200), or a frozenset of any; all unless given. names: only these metrics, so that
        less is read.
        gap: only this one, which may be between any two of policies and readings, such as rollout:referee; None: all of GAPS.
        """
        with self._lock:
            keys = (by,) if isinstance(by, str) else tuple(by)
            if gap is not None and (pair := self._pair(gap)):
                return self._metrics.pair_frame(pair, keys, progress, steps, names)
            frame = self._metrics.frame(keys, progress, steps, names)
            return frame if gap is None else frame.select(columns_of_gap(frame, gap))

    def metrics_pandas(
        self, by: str | Sequence[str] = ("step",), *, steps: range | None = None, progress: OnProgress | None = None
    ) -> "pd.DataFrame":
        """`metrics` for pandas."""
        if find_spec("pandas") is None:
            raise MissingExtra("metrics_pandas", "dashboard")
        return self.metrics(by, steps=steps, progress=progress).to_pandas()

    def row_work(self, slice: str = "all") -> RowWork:
        """The statistics of a slice that are computed from token rows, see `ratioscope index`."""
        with self._lock:
            return self._metrics.row_work(slice)

    @property
    def unavailable(self) -> dict[str, str]:
        """`<gap>/<metric>` -> "because ..." for each metric that has no value over the whole run."""
        with self._lock:
            return self._metrics.unavailable()

    def unavailable_of(self, gap: str) -> dict[str, str]:
        """The same for the metrics of one gap, which may be between any two of policies and readings."""
        if gap in GAPS:
            return {name: reason for name, reason in self.unavailable.items() if name.startswith(f"{gap}/")}
        return unavailable(self.statistics(gap=gap), (gap,))

    @property
    def readings(self) -> dict[str, Reading]:
        """name -> further log-probs of recorded tokens, see rows/readings.py. Most runs have none."""
        with self._lock:
            return self._readings.facts()

    @property
    def reading_gaps(self) -> tuple[str, ...]:
        """The gaps that readings add, such as rollout:referee. `gaps` does not name them: nobody recorded their statistics."""
        with self._lock:
            return self._readings.gaps(self.policies) if self._readings.files else ()

    @property
    def topk_steps(self) -> list[int]:
        """Steps with top-k on record, ascending. Most runs have none."""
        with self._lock:
            return list(self._readings.topk)

    @property
    def topk_size(self) -> Size:
        """The size of top-k on record, which `size` does not count."""
        with self._lock:
            files = [file for own in self._readings.topk.values() for file in own]
        return Size(*(sum(getattr(file, name) for file in files) for name in ("rows", "tokens", "bytes")))

    def topk(self, step: int) -> pa.Table:
        """Rows of top-k of a step as they were written, read in this call: see ratioscope/topk.py and analysis/support.py."""
        with self._lock:
            files = self._readings.topk.get(step, ())
        return self._reading_rows.topk(files)

    def read_by(self, name: str, made_of: str) -> dict[int, frozenset[str]]:
        """step -> the sequences whose reading was made so. made_of: as JSON with sorted keys."""
        with self._lock:
            return self._readings.read_by(name, made_of)

    def reading_began(self, name: str) -> float | None:
        """When the oldest file of a reading was committed, in seconds since 1970; None if no file has a time."""
        with self._lock:
            files = (file for own in self._readings.files.get(name, {}).values() for file in own)
            return min((file.time for file in files if file.time is not None), default=None)

    def demand_gap(self, gap: str) -> None:
        """SourceError or SchemaError unless the gap is one of GAPS, or between policies and readings of this run."""
        self._pair(gap)

    def reading_fits(self, steps: Iterable[int] | None = None) -> dict[str, Fit]:
        """reading -> how many of its rows fit the sequences of these steps (None: all), and how many do not, and why.

        This reads the rows. Only rows that fit are used.
        """
        return fits_of(self._readings, self._rows, self._visible.token_files, steps)

    def exact(self, slice: str = "all") -> bool:
        """True if values of this slice count every recorded token. False where a budget kept rows by chance."""
        with self._lock:
            return self._metrics.exact(slice)

    def distribution(self, level: Level, gap: str) -> pl.DataFrame:
        """The histogram of log-ratios by step, without empty buckets.

        Columns: step, bucket, low, high (log-ratio, nats), count, log_sum_weight, log_sum_square_weight.
        level: token (x), sequence (the sum S over a sequence) or geometric (the mean m over a sequence).
        """
        with self._lock:
            return self.distributions((level,), gap)[level]

    def distributions(self, levels: Sequence[Level], gap: str) -> dict[Level, pl.DataFrame]:
        """`distribution` of several levels, in one pass over the statistics of a long run."""
        with self._lock:
            if gap in GAPS:
                return self._metrics.distributions(levels, gap)
            own = self.statistics(gap=gap)
            return {level: distribution_frame(own, level, gap) for level in levels}

    def sequences(self, step: int | None = None, *, gap: str | None = None) -> pl.DataFrame:
        """One row per sequence and minibatch, of one step or of all, with its metrics per gap: see rows/sequences.py.

        gap: of this one, which may be between any two of policies and readings; None: of those of GAPS.
        """
        steps = self.steps if step is None else [step]
        pair = None if gap is None else self._pair(gap)
        read, gaps = (*READ, *(pair.columns if pair else ())), tuple(GAPS) if gap is None else (gap,)
        every = ((each, joined(self._rows.table(self._files_of(each), read))) for each in steps)
        tables = [sequence_table(pair.beside(rows, each) if pair else rows, gaps) for each, rows in every]
        return pl.concat(tables or [sequence_table(self._rows.table((), READ))], how="diagonal_relaxed")

    def sequences_to_pair(self, step: int, *, gap: str | None = None) -> pl.DataFrame:
        """`sequences` with the prompts that were recorded, also where the run is shown without texts: only digests of them are
        kept, and the pairs are the same with and without texts."""
        return self.sequences(step, gap=gap)

    def sequence(self, step: int, sequence_id: str, minibatch: int | None = None) -> pl.DataFrame:
        """One row per token of a sequence, see rows/token_frame.py. minibatch None: the row without one, else the first.

        Each reading of the sequence adds a column, such as referee_logprob, and a gap of each policy with it.
        """
        return self.spans(step, [Span(sequence_id, minibatch)])[0]

    def spans(self, step: int, wanted: Sequence[Span]) -> list[pl.DataFrame]:
        """The frames of `sequence` for some tokens of some sequences of a step, whose rows are read once."""
        rows = self._rows.table(self._files_of(step))
        own = pa.concat_tables(row_of_sequence(rows, step, span.sequence_id, span.minibatch) for span in wanted)
        names = [name for name, reading in self.readings.items() if step in reading.steps]
        own = self._readings.beside(own, step, names)
        return [self._span(own.slice(at, 1), span, names) for at, span in enumerate(wanted)]

    def _span(self, own: pa.Table, span: Span, names: Sequence[str]) -> pl.DataFrame:
        read = [name for name in names if own[f"{name}_logprobs"].null_count == 0]
        gaps = [gap for gap in self.reading_gaps if set(sides(gap)) <= {*self.policies, *read}]
        further = [*(f"{name}_logprob" for name in read), *(f"{gap}{end}" for gap in gaps for end in ("", "_weight"))]
        return span_frame(own, span, [*token_schema(), *further] if further else None)

    def prompt_ids(self, step: int, sequence_id: str) -> list[int] | None:
        """The tokens of a sequence's prompt; None if they are not on record."""
        rows = self._rows.table(self._files_of(step), ("prompt_ids",))
        known = rows.filter(pc.and_(pc.equal(rows["sequence_id"], sequence_id), pc.is_valid(rows["prompt_ids"])))
        return known["prompt_ids"][0].as_py() if len(known) else None

    def tokens(self, steps: Sequence[int] | None = None, columns: Sequence[str] | None = None) -> pl.LazyFrame:
        """One row per token of these steps, with these columns; the column `<gap>` is the log-ratio x. This call reads the rows.

        Columns of readings and of their gaps, such as referee_logprob and rollout:referee, are there if they are asked for.
        Read a long run some steps and columns at a time: each column of 100 million tokens takes up to 800 MB.
        """
        chosen = self.steps if steps is None else steps
        return token_rows(self._rows, {step: self._files_of(step) for step in chosen}, columns, self._readings)

    def rows(self, step: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Record rows of a step with these columns and its keys (None: all), as an Arrow table, read in this call.

        A file that cannot be read is set aside with its name.
        """
        return self._rows.table(self._files_of(step), columns)

    def reading_digest(self, gap: str) -> str:
        """A cache key for the readings that are sides of the gap; "" for one of GAPS. `digest` does not cover them."""
        pair = self._pair(gap)
        return reading_digest(pair, self.steps) if pair else ""

    def beside(self, records: pa.Table, step: int, gap: str) -> pa.Table:
        """Joined Records of a step with a column `<name>_logprobs` for each side of the gap that is a reading."""
        pair = self._pair(gap)
        return pair.beside(records, step) if pair else records

    def records(self, steps: Sequence[int] | None = None) -> pl.LazyFrame:
        """Record rows as they were written. The digests of their files are checked in this call, and their rows are read later.

        A file with the committed digest may still hold pages that cannot be decoded, if a stranger made it: then `collect` raises
        whatever polars raises. `rows` sets such a file aside.
        """
        chosen = self.steps if steps is None else steps
        return record_scan(self.path, self._rows, [file for step in chosen for file in self._files_of(step)])

    @property
    def _readings(self) -> Readings:
        """The readings of the visible steps, as the logs name them now."""
        with self._lock:
            if self._known_readings is None or self._known_readings[0] != self._catalog.version:
                cutoffs = self._visible.cutoffs
                files = (file for file in self._catalog.readings() if _is_shown(file, cutoffs))
                self._known_readings = self._catalog.version, Readings.of(self._reading_rows, files)
            return self._known_readings[1]

    def _pair(self, gap: str) -> Pair | None:
        """The gap between policies and readings; None for one of GAPS. SourceError where a side is not on record."""
        return None if gap in GAPS else self._readings.pair(gap)

    @property
    def _not_shown(self) -> tuple[tuple[Shadow, ...], int]:
        """(steps that were recorded again, number of token rows in files that are not read)."""
        with self._lock:
            if self._hidden is None or self._hidden[0] != self._catalog.version:
                self._hidden = self._catalog.version, (self._catalog.shadows(), self._catalog.rows_set_aside())
            return self._hidden[1]

    @property
    def _visible(self) -> VisibleFiles:
        with self._lock:
            return self._metrics.visible

    def _files_of(self, step: int) -> tuple[TokenFile, ...]:
        """Token files of a step; empty where only its statistics are on record. SourceError for a step that is not on record."""
        visible = self._visible
        if step not in visible.token_files and step not in visible.steps:
            present = f"steps {visible.steps[0]} to {visible.steps[-1]}" if visible.steps else "no steps"
            raise SourceError(f"step {step} is not on record; the run {self.name} has {present}")
        return visible.token_files.get(step, ())


def _is_shown(file: ReadingFile, cutoffs: Cutoffs) -> bool:
    """True unless a later start recorded the step again."""
    cutoff = cutoffs.of(file.attempt, (file.writer,))
    return cutoff is None or file.step < cutoff.step
