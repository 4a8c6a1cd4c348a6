"""The collector's manners: nothing blocks or hurts the trainer, and written + dropped = offered, always."""

import functools
import hashlib
import inspect
import logging
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sizes import examples
from support.waiting import PATIENCE
from support.written_run import CollectingSink, commit_lines, token_rows

from ratioscope import Collector, open_run
from ratioscope.collectors.batch.batch_rows import MALFORMED
from ratioscope.collectors.collector import CLOSED, LATE, QUEUE_FULL
from ratioscope.collectors.writing.writer import NOT_WRITTEN
from ratioscope.errors import ConfigError, SchemaError, SourceError

ONE: dict[str, Any] = {"rollout_logprobs": [[-1.0, -2.0]]}


def test_what_is_logged_is_on_disk(tmp_path: Path) -> None:
    rollout, old = -np.random.default_rng(0).exponential(size=(2, 3, 5)).astype(np.float32)
    with Collector(tmp_path / "run") as collector:
        collector.log(step=7, rollout_logprobs=rollout, old_logprobs=old, lengths=[5, 0, 2], rewards=[1.0, None, 0.5])
    table = token_rows(tmp_path / "run")
    assert table["rollout_logprobs"].to_pylist() == [rollout[0].tolist(), [], rollout[2, :2].tolist()]
    assert table["old_logprobs"].to_pylist() == [old[0].tolist(), [], old[2, :2].tolist()]
    assert table["sequence_id"].to_pylist() == ["7-0-0", "7-0-1", "7-0-2"]
    assert table["reward"].to_pylist() == [1.0, None, 0.5]
    assert (collector.counts.sequences.written, collector.counts.tokens.written) == (3, 7)


CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("log"), st.integers(0, 4), st.integers(1, 3)),
        st.tuples(st.just("malformed"), st.integers(0, 4), st.integers(1, 3)),
        st.tuples(st.just("one at fault"), st.integers(0, 4), st.integers(1, 3)),
        st.tuples(st.just("cumulative"), st.integers(0, 4), st.integers(1, 3)),
        st.tuples(st.just("no step"), st.just(0), st.integers(1, 3)),
        st.tuples(st.sampled_from(["flush", "hold", "let go", "event"]), st.just(0), st.just(0)),
    ),
    max_size=25,
)


def arguments(kind: str, rows: int) -> dict[str, Any]:
    """One call of log with `rows` sequences."""
    lists = [[-1.0, -2.0]] * rows
    match kind:
        case "malformed":
            return {"rollout_logprobs": np.zeros((rows, 2)), "old_logprobs": np.zeros((rows, 3))}
        case "one at fault":
            return {"rollout_logprobs": lists, "old_logprobs": [*lists[1:], [-1.0]]}
        case "cumulative":
            return {"rollout_logprobs": np.zeros(2 * rows), "lengths": np.arange(rows + 1) * 2}
        case _:
            return {"rollout_logprobs": lists}


@given(calls=CALLS, failing=st.sets(st.integers(0, 4), max_size=2), queue=st.integers(1, 4))
@examples(60)
def test_written_and_dropped_are_what_was_offered(
    calls: list[tuple[str, int, int]], failing: set[int], queue: int
) -> None:
    sink = CollectingSink({step: OSError(28, "No space left on device") for step in failing})
    collector = Collector("unused", sink=lambda: sink, queue_batches=queue)
    offered = 0
    for kind, step, rows in calls:
        if kind == "flush":
            losses = collector.counts.sequences.dropped
            durable = collector.flush(30 if sink.gate.is_set() else 0)
            assert not durable or (collector.counts.sequences.pending, collector.counts.sequences.dropped) == (
                0,
                losses,
            )
        elif kind in ("hold", "let go"):
            sink.gate.clear() if kind == "hold" else sink.gate.set()
        elif kind == "event":
            collector.event("note", step)
        else:
            offered += rows
            collector.log(step=None if kind == "no step" else step, **arguments(kind, rows))  # type: ignore[arg-type]
    sink.gate.set()
    assert collector.close(PATIENCE)
    counts = collector.counts
    assert (counts.sequences.written + counts.sequences.dropped, counts.sequences.pending) == (
        counts.sequences.offered,
        0,
    )
    # a call that was refused is counted by its lengths, of which cumulative ones have one more
    assert offered <= counts.sequences.offered <= offered + sum(kind == "cumulative" for kind, _, _ in calls)
    assert len(sink.written) == counts.sequences.written
    assert sum(len(row["rollout_logprobs"]) for row in sink.written) == counts.tokens.written
    assert sum(gap["sequences"] for gap in sink.gaps) == counts.sequences.dropped == sum(counts.reasons.values())
    assert set(counts.reasons) <= {MALFORMED, NOT_WRITTEN, QUEUE_FULL}


def test_a_full_queue_drops_the_newest_and_never_blocks(caplog: pytest.LogCaptureFixture) -> None:
    sink = CollectingSink()
    sink.gate.clear()
    collector = Collector("unused", sink=lambda: sink, queue_batches=3)
    collector.log(step=0, **ONE)
    collector.log(step=1, **ONE)
    assert sink.is_waiting.wait(PATIENCE)  # it writes step 0, holding what came with step 1
    began = time.monotonic()
    for step in range(2, 12):
        collector.log(step=step, **ONE)
    assert time.monotonic() - began < PATIENCE
    assert (collector.counts.sequences.dropped, collector.counts.reasons) == (7, {QUEUE_FULL: 7})
    sink.gate.set()
    assert collector.close(PATIENCE)
    assert [row["step"] for row in sink.written] == [0, 1, 2, 3, 4]
    assert sorted(gap["step"] for gap in sink.gaps) == [5, 6, 7, 8, 9, 10, 11]
    assert sum(QUEUE_FULL in record.message and "only counted" in record.message for record in caplog.records) == 1


def test_the_queue_is_bounded_in_bytes_but_takes_any_one_batch() -> None:
    sink = CollectingSink()
    sink.gate.clear()
    collector = Collector(
        "unused", sink=lambda: sink, queue_bytes=2000
    )  # more than two small rows, less than one large
    collector.log(step=0, **ONE)
    collector.log(step=1, **ONE)
    assert sink.is_waiting.wait(PATIENCE)
    collector.log(step=2, rollout_logprobs=np.zeros((10, 100), np.float32))
    collector.log(step=3, rollout_logprobs=np.zeros((10, 100), np.float32))
    assert collector.counts.reasons == {QUEUE_FULL: 10}
    sink.gate.set()
    assert collector.close(PATIENCE)
    assert collector.counts.sequences.written == 12


def test_close_keeps_to_its_deadline_and_counts_what_it_gave_up(caplog: pytest.LogCaptureFixture) -> None:
    sink = CollectingSink()
    sink.gate.clear()
    collector = Collector("unused", sink=lambda: sink)
    for step in range(3):
        collector.log(step=step, **ONE)
    assert sink.is_waiting.wait(PATIENCE)
    began = time.monotonic()
    assert not collector.close(0.1)
    assert time.monotonic() - began < PATIENCE
    assert (collector.counts.sequences.dropped, collector.counts.sequences.pending) == (3, 0)
    assert "3 of 3 sequences not recorded; 3 not finished in time" in caplog.text
    sink.gate.set()
    assert collector.close(PATIENCE)
    assert collector.counts.reasons == {LATE: 3}  # what is written after the deadline changes no count


def test_close_and_flush_may_be_called_again() -> None:
    sink = CollectingSink()
    collector = Collector("unused", sink=lambda: sink)
    assert collector.flush()
    collector.log(step=1, **ONE)
    assert collector.close() and collector.close() and collector.flush() and collector.flush(0)
    collector.log(step=2, **ONE)
    collector.event("note", 2)
    assert collector.counts.reasons == {CLOSED: 1}
    assert [line["kind"] for line in sink.lines] == ["close"]
    assert Collector("unused", sink=CollectingSink).close()


def test_flush_waits_no_longer_than_asked_and_says_whether_it_is_done() -> None:
    sink = CollectingSink()
    collector = Collector("unused", sink=lambda: sink)
    collector.log(step=1, **ONE)
    assert collector.flush(PATIENCE)
    assert len(sink.written) == 1
    sink.gate.clear()
    collector.log(step=1, **ONE)
    assert not collector.flush(0.05)
    sink.gate.set()
    assert collector.flush(None)
    assert len(sink.written) == 2
    assert collector.close()


class Hostile:
    """An array that fails as it is read."""

    def __init__(self, error: Exception) -> None:
        self.shape, self._error = (2, 3), error

    def __array__(self, *arguments: Any, **named: Any) -> Any:
        raise self._error


@pytest.mark.parametrize("error", [MemoryError(), RecursionError("deep"), ValueError("odd"), KeyError("k")], ids=repr)
def test_whatever_fails_in_log_stays_there(error: Exception) -> None:
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink) as collector:
        collector.log(step=1, rollout_logprobs=Hostile(error))
        collector.log(step=1, **ONE)
    assert (collector.counts.sequences.written, collector.counts.reasons) == (1, {MALFORMED: 2})
    with Collector("unused", sink=CollectingSink, strict=True) as collector, pytest.raises(type(error)):
        collector.log(step=1, rollout_logprobs=Hostile(error))


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(30, "Read-only file system"), AssertionError("sink")], ids=repr
)
def test_whatever_fails_while_writing_costs_one_step(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    sink = CollectingSink({2: error, 3: error})
    with Collector("unused", sink=lambda: sink) as collector:
        for step in range(1, 6):
            collector.log(step=step, **ONE)
    assert [row["step"] for row in sink.written] == [1, 4, 5]
    assert [(gap["step"], gap["sequences"], gap["tokens"]) for gap in sink.gaps] == [(2, 1, 2), (3, 1, 2)]
    assert collector.counts.tokens.offered == 10
    assert sum("More of this" in record.message for record in caplog.records) == 1
    strict = Collector("unused", sink=lambda: CollectingSink({2: error}), strict=True)
    strict.log(step=2, **ONE)
    with pytest.raises(SourceError, match="1 of 1 sequences not recorded; 1 not written"):
        strict.flush()
    assert strict.close()  # it was told already


def test_a_failing_decoder_or_event_loses_no_sequence(caplog: pytest.LogCaptureFixture) -> None:
    def decode(ids: Any) -> list[str]:
        raise RuntimeError("Already borrowed")

    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink, decode=decode) as collector:
        collector.log(step=1, rollout_logprobs=[[0.0]], token_ids=[[1]])
        collector.log(step=1, rollout_logprobs=[[0.0]], token_ids=[[1]])
        collector.event("note", None)  # type: ignore[arg-type]
    assert collector.counts.sequences.written == 2
    assert collector.counts.failures == {"token texts": 2, "events": 1}
    assert sum("Already borrowed" in record.message for record in caplog.records) == 1


def test_strict_is_told_at_the_call() -> None:
    with Collector("unused", sink=CollectingSink, strict=True) as collector:
        with pytest.raises(SchemaError, match="different widths: {'rollout_logprobs': 3, 'old_logprobs': 2}"):
            collector.log(step=1, rollout_logprobs=np.zeros((2, 3)), old_logprobs=np.zeros((2, 2)))
        with pytest.raises(SchemaError, match="the step is a float"):
            collector.log(step=1.5, **ONE)  # type: ignore[arg-type]


def test_a_call_with_other_arguments_is_counted_and_what_fits_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    unfit: Any = Collector("unused", sink=CollectingSink)
    with unfit as collector:
        collector.log(step=1, **ONE, reward=[1.0])  # rewards was meant
        collector.log(**ONE)
        collector.log(1, [[-1.0]])
        collector.event("sync", step=1, text="x")
        collector.event()
        collector.sync()
        assert collector.scalars() == {} and collector.read_again(1) == {}
        assert collector.scalars() is not collector.scalars()  # a caller may write into it
        assert collector.flush(10, quietly=True)
    assert collector.counts.sequences.written == 1
    assert collector.counts.failures == {
        "arguments of log": 3, "arguments of event": 2, "arguments of sync": 1, "arguments of scalars": 3,
        "arguments of read_again": 1, "arguments of flush": 1,
    }  # fmt: skip
    assert sum("unexpected keyword argument 'reward'" in record.message for record in caplog.records) == 1
    told: Any = Collector("unused", sink=CollectingSink, strict=True)
    with told as strict, pytest.raises(TypeError, match="'reward'"):
        strict.log(step=1, **ONE, reward=[1.0])


def test_wrong_options_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="text is 'some'; wanted one of full, ids, none"):
        Collector(tmp_path, text="some")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="queue_batches is 0"):
        Collector(tmp_path, queue_batches=0)


@pytest.mark.parametrize("option", ["rank", "attempt"])
@pytest.mark.parametrize("wrong", [-1, 1 << 31, 1.0, "3", True, [0]], ids=repr)
def test_a_rank_or_attempt_that_no_run_can_hold_is_refused_at_once(tmp_path: Path, option: str, wrong: Any) -> None:
    found = re.escape(f"{option} is {wrong!r}; wanted a whole number of 0 to 2147483647; give ")
    with pytest.raises(ConfigError, match=found):
        Collector(tmp_path / "run", **{option: wrong})
    assert not (tmp_path / "run").exists()


def test_log_takes_every_argument_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr("ratioscope.collectors.collector.sequences_offered", lambda values: seen.update(values) or 1)
    names = set(inspect.signature(Collector.log).parameters) - {"self", "step", "minibatch", "readings"}
    collector = Collector("unused", sink=CollectingSink)
    collector.log(step=1, **{name: [name] for name in names}, readings={"referee": ["own"]})  # type: ignore[arg-type]
    assert seen == {name: [name] for name in names} | {"reading:referee": ["own"]}
    collector.close(0)


def test_a_rank_and_an_attempt_may_be_any_whole_number_that_fits(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", rank=np.int64(2**31 - 1), attempt=np.uint8(7)) as collector:
        collector.log(step=1, **ONE)
    rows = open_run(tmp_path / "run").records().select("rank", "attempt").collect()
    assert rows.rows() == [(2**31 - 1, 7)]


def test_steps_may_come_in_any_order() -> None:
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink) as collector:
        for step in (5, 3, 5, 4, 4, 9, 1):
            collector.log(step=step, **ONE)
    assert sorted(row["step"] for row in sink.written) == [1, 3, 4, 4, 5, 5, 9]
    assert len({row["sequence_id"] for row in sink.written}) == 7


def run_script(script: str, folder: Path, code: int = 0) -> str:
    """The output of a script in an interpreter of its own; `RUN` is its run folder."""
    lines = f"import os, sys\nRUN = {str(folder / 'run')!r}\n" + textwrap.dedent(script)
    # later Pythons warn of any fork beside a thread; that the writer's is safe is what is tested here
    options = ["-W", "error", "-W", "ignore:This process:DeprecationWarning", "-c", lines]
    done = subprocess.run([sys.executable, *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.strip()


def test_importing_the_collector_loads_nothing_heavy(tmp_path: Path) -> None:
    script = """
    import ratioscope.collectors.collector, ratioscope.collectors.attach
    heavy = {"torch", "polars", "pandas", "trl", "transformers", "streamlit", "plotly", "scipy", "typer", "rich"}
    print(sorted(heavy & set(sys.modules)))
    heavy.remove("pandas")  # pyarrow itself imports it when it makes an array
    with ratioscope.collectors.collector.Collector(RUN) as collector:
        collector.log(step=1, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.5]])
    print(sorted(heavy & set(sys.modules)), collector.counts.sequences.written, collector.counts.failures)
    """
    assert run_script(script, tmp_path) == "[]\n[] 1 {}"


def test_what_was_not_closed_is_written_at_exit(tmp_path: Path) -> None:
    script = """
    from ratioscope import Collector
    collector = Collector(RUN)
    for step in range(20):
        collector.log(step=step, rollout_logprobs=[[-1.0] * 100] * 10)
    """
    run_script(script, tmp_path)
    assert len(token_rows(tmp_path / "run")) == 200
    assert commit_lines(tmp_path / "run", "close")[0]["written"] == 200


def test_what_was_flushed_survives_a_kill(tmp_path: Path) -> None:
    script = """
    import signal
    from ratioscope import Collector
    collector = Collector(RUN)
    for step in range(30):
        collector.log(step=step, rollout_logprobs=[[-1.0] * 300] * 4, old_logprobs=[[-1.1] * 300] * 4)
        if step < 20:
            assert collector.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    """
    run_script(script, tmp_path, code=-9)
    committed = {line["step"]: line for line in commit_lines(tmp_path / "run", "commit") if "step" in line}
    assert set(range(20)) <= set(committed)
    for line in committed.values():
        data = (tmp_path / "run" / line["file"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (line["bytes"], line["sha256"])
    assert set(token_rows(tmp_path / "run")["step"].to_pylist()) >= set(committed)  # and every file that shows is whole


def test_a_fork_in_the_middle_writes_nothing_twice(tmp_path: Path) -> None:
    script = """
    from ratioscope import Collector
    collector = Collector(RUN)
    for step in range(40):
        collector.log(step=step, rollout_logprobs=[[-1.0] * 200] * 5)
        if step % 10 == 5:
            child = os.fork()
            if child == 0:
                if step == 25:
                    collector.log(step=step, rollout_logprobs=[[-7.0]])
                    assert collector.close(60)
                    assert collector.counts.sequences.written == collector.counts.sequences.offered == 1
                else:
                    assert collector.counts.sequences.offered == 0
                sys.exit()
            assert os.waitpid(child, 0)[1] == 0
    assert collector.close(60)
    print(collector.counts.sequences.written)
    """
    assert run_script(script, tmp_path) == "200"
    rows = token_rows(tmp_path / "run")
    assert len(rows) == 201
    assert len(set(rows["sequence_id"].to_pylist())) == 201
    writers = commit_lines(tmp_path / "run", "open")
    assert len({writer["pid"] for writer in writers}) == len({writer["writer"] for writer in writers}) == 2
    assert {writer["attempt"] for writer in writers} == {0}  # a child belongs to the start of its parent


def test_nothing_is_said_when_nothing_was_lost(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), Collector("unused", sink=CollectingSink) as collector:
        collector.log(step=1, **ONE)
    assert not caplog.records


def test_what_waits_for_the_end_of_its_step_is_written_when_nothing_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed without warning, as Ray kills its actors, loses no more than what came last."""
    monkeypatch.setattr("ratioscope.collectors.writing.writer_thread.IDLE_SECONDS", 0.05)
    sink = CollectingSink()
    collector = Collector(tmp_path / "run", sink=lambda: sink)
    collector.log(step=1, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
    assert sink.is_waiting.wait(PATIENCE)
    collector.log(step=1, rollout_logprobs=[[-2.0]], old_logprobs=[[-2.0]])
    assert collector.close()
    assert [row["rollout_logprobs"] for row in sink.written] == [[-1.0], [-2.0]]


def test_a_sink_that_cannot_be_made_at_first_costs_steps_and_no_waiting(caplog: pytest.LogCaptureFixture) -> None:
    made, tries = CollectingSink(), iter((MemoryError(), OSError("no"), None, None))

    def make() -> CollectingSink:
        if (error := next(tries)) is not None:
            raise error
        return made

    with Collector("unused", sink=make) as collector:
        for step in range(3):
            written = collector.counts.sequences.written
            collector.log(step=step, **ONE)
            assert collector.flush() == (collector.counts.sequences.written > written)
    tally = collector.counts.sequences
    assert tally.written == len(made.written) and tally.pending == 0 and tally.written + tally.dropped == tally.offered
    assert collector.counts.reasons["not written"] and made.lines[-1]["kind"] == "close"


def test_rows_whose_tokens_cannot_be_counted_are_dropped_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(rows: object) -> int:
        raise MemoryError

    with Collector("unused", sink=CollectingSink) as collector:
        with monkeypatch.context() as patch:
            patch.setattr("ratioscope.collectors.writing.writer.tokens_of", fails)
            collector.log(step=1, **ONE)
            assert not collector.flush()
        assert collector.counts.reasons == {"not written": collector.counts.sequences.offered}


class Preempted(Exception):
    """A trainer's handler raises it, to save a checkpoint before the job is ended."""


def test_an_exception_of_the_trainers_signal_handler_reaches_the_trainer() -> None:
    """A column that raises costs its call; what a handler raises while a column is read is the trainer's own business."""

    class Column:
        shape = (1, 1)

        def __init__(self, act: Callable[[], object]) -> None:
            self._act = act

        def to_list(self) -> list[list[float]]:
            self._act()
            return [[-1.0]]

        def __iter__(self) -> Iterator[list[float]]:
            return iter([[-1.0]])

    class Handler:
        def __call__(self, number: int, frame: object) -> None:
            raise Preempted

        def method(self, number: int, frame: object, *more: object) -> None:
            raise Preempted

    def fail() -> None:
        raise Preempted

    handlers: list[Any] = [Handler(), Handler().method, functools.partial(Handler().method)]
    with Collector("unused", sink=CollectingSink) as collector:
        collector.log(step=1, rollout_logprobs=Column(fail))
        for handler in handlers:
            before = signal.signal(signal.SIGUSR1, handler)
            try:
                with pytest.raises(Preempted):
                    collector.log(step=2, rollout_logprobs=Column(lambda: signal.raise_signal(signal.SIGUSR1)))
            finally:
                signal.signal(signal.SIGUSR1, before)
        collector.log(step=3, rollout_logprobs=[[-1.0]])
    assert (collector.counts.sequences.written, collector.counts.reasons) == (1, {MALFORMED: 4})


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        (("rollout", "old", "current"), "gaps mismatch, total and drift"),
        (("rollout", "old"), "gap mismatch"),
        (
            ("old", "current"),
            "gap drift; no rollout log-probs, so no gap between sampler and trainer is measured "
            "unless another process records them",
        ),
        (("old",), "old alone: a gap has two sides, and another process may record the other"),
        ((), None),
    ],
)
def test_the_last_line_and_the_repr_say_what_was_recorded(
    policies: tuple[str, ...], words: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "a run"
    collector = Collector(run)
    assert repr(collector) == f"<Collector of {run}: no step yet>"
    for step in (9, 2):
        if policies:
            given: dict[str, Any] = {f"{policy}_logprobs": [[-1.0, -2.0]] for policy in policies}
            collector.log(step=step, **given)
    assert collector.close() and collector.close()
    told = f"steps 2 to 9, 4 tokens on disk, {words}"
    said = (
        f"recorded {told}; next: ratioscope dashboard '{run}'"
        if words
        else f"nothing was recorded into {run}: log was not called"
    )
    assert [record.getMessage() for record in caplog.records] == [f"ratioscope: {said}"]
    assert not words or repr(collector) == f"<Collector of {run}: {told}>"


def test_the_last_line_counts_the_sequences_of_steps_that_were_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collector = Collector(tmp_path / "run")
    for step, rollout in enumerate(([[-1.0, -2.0]], [[-1.0]])):
        collector.log(step=step, rollout_logprobs=np.array(rollout), old_logprobs=np.array([[-1.0, -2.0]]))
    collector.close()
    assert "ratioscope: recorded 1 of 2 sequences of steps 0 to 1, 2 tokens on disk" in caplog.records[-1].getMessage()
    assert "1 of 2 sequences of steps 0 to 1" in repr(collector)


def test_only_the_first_rank_of_a_job_speaks_and_no_program_that_converts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Collector(tmp_path / "ranks", rank=1).close()
    Collector(tmp_path / "converted", when_full="wait").close()
    assert not caplog.records
