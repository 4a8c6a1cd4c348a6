"""Collector: records what a trainer logs, without blocking or breaking training.

* Making a collector and calling `log` touch memory only. A process of its own writes the rows
  (writing/writer_process.py), or a thread if no process can be started.
* `log` makes one copy and returns. It raises only with `strict=True`.
* A batch that comes while the queue is full is dropped and counted.
* What goes wrong is counted, noted in the commit log, and logged once through `logging`.
* `flush` and `close` may be called several times, and from a signal handler that has interrupted `log`.
* A forked child starts empty, and writes under its own name only what it logs itself.
* An exception of the trainer's own signal handlers that interrupt a call of ours reaches the trainer.
* There is no signal handler and no excepthook. A process has one exit handler, which takes as long as `close` may.
"""

import operator
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, Literal, Self, SupportsIndex

import pyarrow as pa

from ratioscope.errors import SchemaError, SourceError
from ratioscope.metrics.digits import size_on_disk
from ratioscope.process import process_start
from ratioscope.topk import ARGUMENTS

from .batch.batch import Batch, bytes_offered, sequences_offered
from .batch.batch_rows import MALFORMED, BatchRows
from .batch.given_numbers import SequenceNumbers, check_choices, option_number, resolution_of, step_if_any, step_number
from .batch.host_copy import HostCopies
from .batch.records import READING, rows_of
from .batch.snapshots import readable, snapshots
from .batch.text_policy import TEXTS, Text
from .batch.token_texts import Decode, TokenTexts
from .budget import Budget
from .process.counts import Counts, Dropped, Ledger, reason_of
from .process.end_and_forks import close_before_multiprocessing_exits, end_with_process, handle_end_and_forks
from .process.failures import is_of_a_handler, let_go
from .process.notice import warn
from .process.ranks import in_ray_worker, label, part_of, part_of_parent, rank_told
from .process.trainer_process import TrainerProcess
from .process.variables import tell_of_this_process
from .self_noise import Scorer, SecondForward, SelfNoise, self_noise_of
from .unfit_call import keeps_unfit_calls
from .writing.last_line import Logged, last_line, policies_in, recorded
from .writing.live_scalars import LiveScalars
from .writing.parquet_sink import writer_name
from .writing.queue_items import LEAST_BYTES, Backlog, BeginItem, DroppedItem, EventItem, Item, WeightsItem, void
from .writing.run_file import launch, run_info, start_run
from .writing.sink import Sink
from .writing.start_files import this_start
from .writing.starts import demand_none
from .writing.task import WriterTask
from .writing.writer import Writer
from .writing.writer_process import PROCESS, WriterProcess
from .writing.writer_thread import RowTarget, WriterThread

PerToken = Any
"""A padded `(B, T)` array, one list or array per sequence, or one flat array cut by `lengths`; of numpy, torch (any device,
dtype, with or without gradient) or plain lists. `Any`, because torch is no dependency."""
PerTokenTopK = Any
"""Values at the likeliest tokens of each place: a `(B, T, k)` array, one `(T, k)` array or list of lists per sequence, or one
`(tokens, k)` array."""
PerSequence = Any
"""One value per sequence: a list or a one-dimensional array."""

QUEUE_BYTES = 1 << 30
QUEUE_BATCHES = QUEUE_BYTES // LEAST_BYTES
"""Bytes bound the queue first, unless the user gives another number."""
WRITER = "RATIOSCOPE_WRITER"
"""The environment variable that says who writes if the argument `writer` does not: process (the default) or thread."""
MOST_OF_QUEUE = 0.5
"""The part of the queue that top-k may fill. Token rows are left to the statistics from three quarters on."""
QUEUE_FULL = "queue full"
NO_THREAD = "no thread can be started"
CLOSED = "closed"
LATE = "not finished in time"
_NO_COLUMNS = frozenset({"self", "step", "minibatch", "readings"})  # of the arguments of log: not columns of the batch
_MOST_PROCESSES = 3  # that end unasked, before a thread writes


class Collector:
    """Records the log-probs of all policies into a run folder. Each rank has one collector; ranks share the folder.

    trainer: name and version of the trainer, for run.json.
    config: settings worth keeping beside the data. Secrets are removed.
    name: of the run; the name of the folder if not given.
    rank: of this process; if not given, what torch.distributed, torchrun ($RANK), mpirun or srun say, else 0 (process/ranks.py).
    attempt: which start of the run this is; found from the folder if not given.
    existing: what happens if a run is in the folder: "resume" goes on in it, "new" begins a run beside it (NAME-2), "error"
    raises ConfigError. If not given, a start of the same trainer, script and settings resumes it, and any other one begins a new
    run. A warning says which of these happens. All processes of a start record into one folder: `run_dir`, once the
    first of them has settled it.
    text: "full" keeps token ids and texts, "ids" only ids, "none" neither.
    strict: raises what is otherwise counted and logged.
    decode: returns texts of token ids, for calls of `log` without `token_texts`. It is called on the writer's thread.
    queue_batches, queue_bytes: the queue holds at most so many calls of `log`, and about so many bytes, texts included. A tiny
    call counts for 64 KiB.
    versions: where the versions given to `log` come from, in words.
    scalars: makes metrics for the method `scalars`, under our names and under those of `dialect`, a trainer's.
    budget: how much disk token rows may take.
    sink: makes a sink of your own, which is called on a thread.
    writer: "process" or "thread".
    when_full: "drop" drops a batch if the queue is full. "wait" waits, which suits a program that converts a finished run.
    resolution: policy -> largest error of its log-probs as they are given, such as {"rollout": 5e-5} for four decimals.
    self_noise: how often `read_again` reads; True for SelfNoise().
    computed_apart: True says that the engine computed rollout's log-probs, and the trainer its own ones. If they are equal to
    the last bit, that is then a measurement; else a reader takes it for a copy.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        *,
        trainer: str | None = None,
        config: Mapping[str, Any] | None = None,
        name: str | None = None,
        rank: SupportsIndex | None = None,
        attempt: SupportsIndex | None = None,
        existing: Literal["resume", "new", "error"] | None = None,
        text: Text = "full",
        strict: bool = False,
        decode: Decode | None = None,
        queue_batches: int = QUEUE_BATCHES,
        queue_bytes: int = QUEUE_BYTES,
        versions: str | None = None,
        scalars: bool = False,
        dialect: str | None = None,
        budget: Budget | None = None,
        sink: Callable[[], Sink] | None = None,
        writer: Literal["process", "thread"] | None = None,
        when_full: Literal["drop", "wait"] = "drop",
        resolution: Mapping[str, float] | None = None,
        self_noise: SelfNoise | bool | None = None,
        computed_apart: bool = False,
    ) -> None:
        check_choices(text, queue_batches, when_full, writer, existing)
        known_rank = (
            rank_told() if rank is None else option_number("rank", rank, "the launcher's number of this process")
        )
        rank = known_rank or 0
        start = None if attempt is None else option_number("attempt", attempt, "one more than the attempt before it")
        self.run_dir = _absolute(Path(run_dir))
        self._strict, self._texts = strict, TEXTS[text]
        self._decode = decode if text == "full" else None
        self._live = LiveScalars(dialect) if scalars else None
        noise = self_noise_of(self_noise)
        self._second = None if noise is None else SecondForward(noise, self._say_of_noise, self.failed)
        self._info = run_info(name or self.run_dir.name, trainer, config)
        if resolution is not None:
            self._info["resolution"] = resolution_of(resolution)
        if computed_apart:
            self._info["computed_apart"] = True
        self._task = WriterTask(
            root=str(self.run_dir), info=self._info, rank=rank, attempt=start, versions=versions,
            budget=None if budget is None else asdict(budget), scalars=scalars, dialect=dialect,
            part_of=part_of(known_rank), queue_batches=queue_batches, queue_bytes=queue_bytes, waits=when_full == "wait",
            writer_bytes=queue_bytes // 4, existing=(existing or "auto") if start is None else None, token=token_hex(8),
        )  # fmt: skip
        self._sink = sink
        if existing == "error" and start is None:
            demand_none(self.run_dir, this_start(rank, self._task.token, self._task.part_of))
        wanted = writer or os.environ.get(WRITER, "process")
        self._has_process = sink is None and wanted != "thread" and sys.platform != "win32"
        self._raised = 0  # losses that were raised
        is_first = rank == 0 and self._task.part_of is None and not in_ray_worker()
        self._speaks = is_first and sink is None and when_full == "drop"
        self._by = "" if rank_told() is None else f"rank {rank}"
        self._inherited: object = None
        self._synced: int | None = None  # the newest version given to `sync`
        self._reset(label(known_rank, self._task.part_of))
        # pyarrow imports pandas, if it is installed, with its first array. That happens here rather than in the writer's
        # thread, where it would compete with training, and fail if the interpreter is about to exit.
        pa.array([0])
        end_with_process(self)
        if sink is None:
            tell_of_this_process()
            self._begin()

    @keeps_unfit_calls(lambda: None)
    def log(
        self,
        *,
        step: SupportsIndex,
        rollout_logprobs: PerToken | None = None,
        old_logprobs: PerToken | None = None,
        current_logprobs: PerToken | None = None,
        mask: PerToken | None = None,
        loss_mask: PerToken | None = None,
        lengths: PerSequence | None = None,
        sequence_ids: PerSequence | None = None,
        minibatch: SupportsIndex | None = None,
        token_ids: PerToken | None = None,
        token_texts: Sequence[Sequence[str]] | Sequence[str] | None = None,
        group_ids: PerSequence | None = None,
        rewards: PerSequence | None = None,
        advantages: PerSequence | PerToken | None = None,
        entropy: PerToken | None = None,
        rollout_versions: int | PerSequence | PerToken | None = None,
        trainer_version: int | PerSequence | None = None,
        replica: str | Sequence[str | None] | None = None,
        turns: PerToken | None = None,
        finish_reasons: Sequence[str | None] | None = None,
        reference_logprobs: PerToken | None = None,
        prompt_texts: Sequence[str | None] | None = None,
        prompt_ids: PerToken | None = None,
        prompt_mask: PerToken | None = None,
        generation_step: int | PerSequence | None = None,
        positions: PerToken | None = None,
        mask_reasons: PerToken | None = None,
        sampled_ids: PerToken | None = None,
        kv_versions: PerToken | None = None,
        router_agreement: PerToken | None = None,
        replayed: bool | PerSequence | None = None,
        prompt_tokens: PerSequence | None = None,
        cached_tokens: PerSequence | None = None,
        media: PerSequence | None = None,
        pack_index: PerSequence | None = None,
        pack_position: PerSequence | None = None,
        queue_seconds: PerSequence | None = None,
        generation_seconds: PerSequence | None = None,
        extra: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
        readings: Mapping[str, PerToken] | None = None,
        topk_ids: PerTokenTopK | None = None,
        rollout_topk_logprobs: PerTokenTopK | None = None,
        old_topk_logprobs: PerTokenTopK | None = None,
        current_topk_logprobs: PerTokenTopK | None = None,
    ) -> None:
        """Records the sequences of one step, or of one minibatch of it, as they are at this moment.

        The two sides of a gap may come in one call, or in two with equal ids. Padding is cut off; holes in the mask are kept.
        Values may be lists, arrays, tensors, buffers, columns of data frames, or sequences of these. An iterator or a set of
        log-probs, masks, lengths or positions is refused. Any other value that cannot be read is null, counted and told.

        step: the step under which the trainer logs.
        minibatch: the update of the step that `current_logprobs` belongs to; None for values known before the updates.
        lengths: tokens per sequence, or cumulative lengths.
        sequence_ids: step-rank-index, in the order of the calls, if not given.
        advantages, rollout_versions: per sequence or per token.
        prompt_ids: one list per sequence; or a padded array, with prompt_mask of the same shape, which is true at its tokens.
        mask_reasons: numbers of ratioscope.record.MASK_REASONS.
        positions: places of the tokens in the response, if this rank holds a slice of it. Readers join the slices of all ranks.
        readings: further log-probs of the same tokens under names of yours, such as trainer_again. They lie in files of their
        own; a reading that does not fit is counted, and loses no sequence.
        topk_ids: the likeliest tokens at each place, 256 at most, and *_topk_logprobs: the log-probs of a policy at these ids, of
        the same shape: (B, T, k), or (T, k) per sequence, or a list per token. Id -1 and log-prob NaN: absent. They have a budget
        of their own, and are not recorded with text="none". Top-k that does not fit is counted, and loses no sequence.
        """
        given = {name: value for name, value in locals().items() if name not in _NO_COLUMNS}
        offered, outer = 1, sys.exception()  # at least one, if the number cannot be found
        try:
            given |= {f"{READING}{name}": value for name, value in self._named(readings).items()}
            known = {n: value for n, value in given.items() if value is not None and n not in self._texts.left_out}
            values = readable(known)
            offered = sequences_offered(values)
            refused = self._take(step_number(step), minibatch, offered, values)
        except Exception as error:
            self._refuse(step, offered, MALFORMED, reason_of(error))
            if self._strict:
                self._raised += offered
            if self._strict or is_of_a_handler(error):
                raise
            let_go(error, outer)
        else:
            if refused is not None:
                self._refuse(step, offered, refused, "")

    @keeps_unfit_calls(dict[str, list[Any]])
    def read_again(
        self, step: SupportsIndex, sequences: int, score: Scorer, model: Any, ranks: int | None = None
    ) -> dict[str, list[Any]]:
        """Readings for `log`: the log-probs of a few of its sequences by a second forward, `trainer_again`; see `self_noise`.

        {} without the option, at most steps, and if the forward fails, which is counted. sequences: number of them in the call
        of `log`. score: takes places of sequences, returns the trainer's log-probs of each, (T_i,), in batches of another shape
        than the trainer's. model: the module that `score` runs; its state, gradients and all random states stay as they are.
        ranks: for a driver whose workers all join each forward: `score` gets one place for each at a time. model is () then.
        """
        if self._second is None:
            return {}
        number = step_if_any(step)
        return {} if number is None else self._second.read(number, sequences, score, model, ranks)

    def _say_of_noise(self, step: int, sentence: str) -> None:
        self.event("self_noise", step, sentence)
        warn("step %d: %s", step, sentence)

    @keeps_unfit_calls(dict[str, float])
    def scalars(self, step: int, known: Collection[str] = ()) -> dict[str, float]:
        """Metrics for the trainer's own logger: those of the newest step written here that is no later than `step`.

        The metrics of a step are returned once, with its number as `ratioscope/step`. Names in `known` are left out. {} if there
        are none yet, and always without `scalars=True`. Does not wait.
        """
        return {} if self._live is None else self._live.newest(step, known)

    @keeps_unfit_calls(lambda: None)
    def event(self, kind: str, step: SupportsIndex, note: str = "") -> None:
        """Notes an event in the commit log: weight_sync, resume, config_change, or a word of your own."""
        try:
            if not self._thread.put(EventItem(str(kind), step_number(step), str(note))):
                self._ledger.fail("events")
        except Exception as error:
            self.failed("events", error)

    @keeps_unfit_calls(lambda: None)
    def sync(
        self,
        version: SupportsIndex,
        *,
        replica: str | None = None,
        digests: Mapping[str, str] | None = None,
        step: SupportsIndex | None = None,
    ) -> None:
        """Notes that the engines, or one of them, were given the trainer's weights of this version.

        digests: one text per tensor, see `ratioscope.weights.digests`: those of the trainer, or with `replica` those that the
        engine holds now. Readers tell which weights arrived. step: at which this happened; the version if not given.
        """
        try:
            number = step_number(version)
            at = number if step is None else step_number(step)
            named = None if replica is None else self._texts.name(str(replica))
            items: list[Item] = []
            if number != self._synced:
                items.append(EventItem("weight_sync", at, f"version {number}"))
            if digests is not None:
                items.append(
                    WeightsItem(at, number, named, {self._texts.name(str(k)): str(v) for k, v in digests.items()})
                )
            self._synced = number
            for item in items:
                has_room = not isinstance(item, WeightsItem) or self._thread.has_room(item.bytes)
                if not has_room or not self._thread.put(item):
                    self._ledger.fail("events")
        except Exception as error:
            self.failed("events", error)

    def failed(self, what: str, error: Exception) -> None:
        """Counts a failure around the collector, in an adapter for example, and logs it the first time."""
        if self._ledger.fail(what):
            warn("%s: %s. Training goes on. More of this is only counted.", what, reason_of(error))
        if self._strict:
            self._raised += 1
        if self._strict or is_of_a_handler(error):
            raise error

    def count_failure(self, what: str) -> None:
        """Counts a failure that was logged elsewhere."""
        self._ledger.fail(what)

    @keeps_unfit_calls(bool)
    def flush(self, timeout: float | None = 60.0) -> bool:
        """Has everything written that was logged so far, also of a step that has not ended. True: all of it is durable.

        False: the writing took longer than `timeout` seconds (None: no limit, 0: no wait); or, since the last flush, sequences
        were dropped, only the statistics of some reached the disk, or some statistics are still in memory. `counts` says what
        was lost and why. Token rows
        that a budget left out do not matter here. With `strict=True`, losses that no earlier call raised are raised.
        """
        is_durable = self._thread.flush(timeout)
        self._raise_losses()
        return is_durable

    @keeps_unfit_calls(bool)
    def close(self, timeout: float | None = 10.0) -> bool:
        """Writes what is left and ends the writer. True if the writer ended; `counts` says what was lost.

        It waits as long as the writer makes progress. After `timeout` seconds without any it gives up: what is not written counts
        as dropped, and the result is False. A writer's process still writes what it has, if the disk answers again, and ends.
        """
        first = not self._thread.is_stopped
        finished = self._thread.stop(timeout)
        self._ledger.seal(LATE)
        if not finished:
            self._thread.abandon()
        if first and (self.counts.sequences.dropped or self.counts.failures):
            warn("%s: %s", self.run_dir, self.counts.losses)
        if first and self._speaks:
            warn("ratioscope: %s", self._last_line())
        self._raise_losses()
        return finished

    @property
    def counts(self) -> Counts:
        """Numbers of sequences and tokens offered, written and dropped so far. A forked child counts its own."""
        return self._ledger.counts

    def __repr__(self) -> str:
        told = (
            "no step yet"
            if self._logged.first is None
            else recorded(self._logged, self.counts.tokens.written, part=self._part, is_whole=False)
        )
        return f"<Collector of {self.run_dir}: {told}>"

    def _last_line(self) -> str:
        sequences, tokens = self.counts.sequences, self.counts.tokens.written
        why = f"none of {sequences.offered} sequences reached the disk" if sequences.offered else "log was not called"
        kept = self._logged if sequences.written + sequences.left_out else Logged()
        return last_line(self.run_dir, kept, tokens, by=self._by, because=why, part=self._part, is_whole=False)

    @property
    def _part(self) -> str:
        """The sequences that were recorded, if some were dropped: their steps may have none on disk."""
        counts = self.counts.sequences
        kept = counts.written + counts.left_out
        return f"{kept:,} of {counts.offered:,} sequences" if counts.dropped else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._strict = False  # the exception from the block says more than a loss would
        self.close()

    def _take(self, step: int, minibatch: SupportsIndex | None, offered: int, values: Mapping[str, Any]) -> str | None:
        """Copies and queues the values. Returns None, or why it did not."""
        values = self._with_room_for_topk(values)
        size = bytes_offered(values)
        index = None if minibatch is None else operator.index(minibatch)
        label, first_index = self._numbers.take(step, index, offered)
        if self._thread.is_stopped:
            return CLOSED
        if not self._has_room(size):
            return QUEUE_FULL
        taken, held = snapshots(values, self._copies)
        try:
            batch = Batch(step, index, self._task.rank, label, first_index, offered, size, taken, held)
            if self._strict and (fault := rows_of(batch, 0).first_fault) is not None:
                raise SchemaError(fault)  # on the caller's thread, what the writer would only count
            is_queued = self._thread.put(batch)
            self._logged.add(step, policies_in(values))
            close_before_multiprocessing_exits()
        except BaseException:
            self._copies.release_all(held)
            raise
        return None if is_queued else CLOSED if self._thread.is_stopped else NO_THREAD

    def _named(self, readings: object) -> Mapping[str, Any]:
        """The readings by name; empty, and counted, if they are anything else: that loses no sequence."""
        if readings is None or isinstance(readings, Mapping):
            return readings or {}
        self.failed(
            "readings", SchemaError(f"readings is a {type(readings).__name__}; wanted a mapping of names to log-probs")
        )
        return {}

    def _with_room_for_topk(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values; without top-k, which is counted, where it would fill more than half of the queue."""
        topk = {name: values[name] for name in ARGUMENTS if name in values}
        if not topk or self._task.waits:
            return values
        size = bytes_offered(topk)
        if self._thread.pressure + size / self._task.queue_bytes <= MOST_OF_QUEUE:
            return values
        if self._ledger.fail("topk"):
            warn("top-k of %s is left out: %s. More of this is only counted.", size_on_disk(size), QUEUE_FULL)
        return {name: value for name, value in values.items() if name not in topk}

    def _has_room(self, size: int) -> bool:
        """True if a batch of this size may be queued. With when_full="wait" it waits for room first."""
        while not self._thread.has_room(size):
            if not self._task.waits or self._thread.is_stopped:
                return False
            self._thread.wait()
        return True

    def _refuse(self, step: Any, offered: int, reason: str, detail: str) -> None:
        known = step_if_any(step)
        if self._ledger.refuse(Dropped(known, reason, detail, offered, 0)) and not self._strict:
            warn(
                "step %s: %d sequences dropped, %s %s. More of this is only counted.",
                known, offered, reason, detail,
            )  # fmt: skip
        if reason == MALFORMED:  # with a full queue the writer is busy enough, and tells of it by itself
            self._thread.put(DroppedItem())

    def _raise_losses(self) -> None:
        lost = self.counts.sequences.dropped + sum(self.counts.failures.values())
        if self._strict and lost > self._raised:
            self._raised = lost
            raise SourceError(f"{self.run_dir}: {self.counts.losses}")

    def _begin(self) -> None:
        """Has the run folder made. With strict this thread makes it, waits for the disk, and raises what goes wrong."""
        if not self._strict:
            self._thread.put(BeginItem())
            return
        try:
            self._task = self._task.settle(self._settled_in)
            start_run(self.run_dir, self._task.info)
        except OSError as error:
            raise SourceError(f"{self.run_dir} cannot be made: {error}; give a folder that can be written") from error

    def _reset(self, label: str) -> None:
        """Sets the state of a collector that has seen nothing. label: part of the ids of sequences that come without ids."""
        self._raised = 0
        self._ledger = Ledger(detail=self._texts.detail)
        self._copies = HostCopies(self._task.queue_bytes)
        self._numbers = SequenceNumbers(label)
        self._logged = Logged()
        self._synced = None
        self._process: WriterProcess | None = None
        self._writers: tuple[str, ...] = ()
        backlog = Backlog(self._task.queue_batches, self._task.queue_bytes)
        self._thread = WriterThread(self._rows, self._writer, self._ledger, backlog=backlog)

    def _rows(self) -> BatchRows:
        texts = None if self._decode is None else TokenTexts(self._decode)
        return BatchRows(self._ledger, self._copies, warn, texts, self._texts.rows)

    def _writer(self) -> RowTarget:
        """The writer: a process, or this thread if no process can be started or processes have ended too often."""
        name = writer_name(self._task.rank)
        task = replace(self._task, writer=name, continues=self._writers)
        self._writers += (name,)
        failures = self.counts.failures.get(PROCESS, 0)
        if self._has_process and failures < _MOST_PROCESSES:
            process = TrainerProcess(os.getpid(), process_start(os.getpid()), launch())
            scalars = self._live.ready if self._live is not None else void
            try:
                self._process = WriterProcess(
                    task, process, self._ledger, scalars, self._thread.moved, self._settled_in
                )
                return self._process
            except Exception as error:
                warn(
                    "no writer's process can be started (%s): a thread of this process writes instead. Training goes on.",
                    reason_of(error),
                )
        pressure = (lambda: 0.0) if self._task.waits else (lambda: self._thread.pressure)
        make_sink = self._sink or (lambda: task.sink(self._live, tell=self._settled_in))
        return Writer(make_sink, self._ledger, warn, pressure, task.writer_bytes, task.steps_at_once)

    def _settled_in(self, root: str) -> None:
        self.run_dir = Path(root)

    def close_unasked(self, timeout: float) -> None:
        """Closes at the end of the process. Raises nothing, because nobody is left to catch it."""
        if not self._thread.is_stopped:
            self._strict = False
            self.close(timeout)

    def begin_in_child(self) -> None:
        """Begins anew in a forked child, without what the parent has logged."""
        was_stopped = self._thread.is_stopped
        if self._process is not None:
            self._process.disinherit()
        self._inherited = (self._thread, self._copies, self._process)  # not freed: page-locked memory is the parent's
        self._speaks = False
        self._task = replace(self._task, part_of=part_of_parent(self._task.part_of))
        self._reset(f"{self._task.rank}.{os.getpid()}")
        if was_stopped:
            self._thread.stop(0)


def _absolute(path: Path) -> Path:
    try:
        return path.absolute()
    except OSError:  # the working directory was deleted
        return path


handle_end_and_forks()
