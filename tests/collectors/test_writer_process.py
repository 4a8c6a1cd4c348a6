"""The writer as a process of its own, as it is unless somebody asks for a thread: it outlives the trainer, and nothing hangs."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.waiting import PATIENCE, wait_until
from support.written_run import CollectingSink, commit_lines, token_rows

from ratioscope import Collector, open_run
from ratioscope.collectors.collector import NO_THREAD
from ratioscope.collectors.writing import writer_process
from ratioscope.collectors.writing.frames import PipeEnd
from ratioscope.collectors.writing.writer_process import ENDED, PROCESS

ONE: dict[str, Any] = {"rollout_logprobs": [[-1.0, -2.0]], "old_logprobs": [[-1.5, -2.5]]}


@pytest.fixture(autouse=True)
def _writes_by_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATIOSCOPE_WRITER", "process")


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The writers' processes that began; each goes on in the end."""
    found: list[int] = []
    real = writer_process.WriterProcess._hear

    def hear(self: Any, reply: Any) -> None:
        found.extend([reply["ready"]] if "ready" in reply else [])
        real(self, reply)

    monkeypatch.setattr(writer_process.WriterProcess, "_hear", hear)
    yield found
    for pid in filter(is_there, found):
        os.kill(pid, signal.SIGCONT)


def test_it_writes_without_pandas(tmp_path: Path, pids: list[int]) -> None:
    """pyarrow imports pandas with its first array: 0.3 s and 50 MB for each rank."""
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **ONE)
        assert collector.flush(PATIENCE)
        loaded = Path(f"/proc/{pids[0]}/maps").read_text()
    assert "/pyarrow/" in loaded and "/pandas/" not in loaded
    assert len(token_rows(tmp_path / "run")) == 1


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def script(lines: str, folder: Path, *, code: int = 0) -> str:
    """The output of a script that has a trainer's process to itself; RUN is its run folder."""
    text = f"import os, signal, sys, threading\nRUN = {str(folder / 'run')!r}\n" + textwrap.dedent(lines)
    done = subprocess.run([sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
    return done.stdout.strip()


def test_what_is_logged_is_on_disk_and_the_process_ends_with_the_collector(tmp_path: Path, pids: list[int]) -> None:
    rollout, old = -np.random.default_rng(0).exponential(size=(2, 3, 5)).astype(np.float32)
    texts = [["a"] * 5, ["\ud800", "b", "c", "d", "e"], ["f"] * 5]
    with Collector(tmp_path / "run", scalars=True) as collector:
        collector.log(step=7, rollout_logprobs=rollout, old_logprobs=old, rewards=[1.0, None, 0.5], token_texts=texts)
        collector.log(step=8, rollout_logprobs=rollout, old_logprobs=old[:2])
        collector.event("weight_sync", 8, "a note")
        assert not collector.flush()  # a batch was malformed
        assert collector.flush()
        assert collector.scalars(9)["ratioscope/step"] == 7
    table = token_rows(tmp_path / "run")
    assert table["rollout_logprobs"].to_pylist() == rollout.tolist()
    assert table["token_texts"].to_pylist()[1] == ["\\ud800", "b", "c", "d", "e"]
    assert (table["reward"].to_pylist(), table["sequence_id"].to_pylist()) == (
        [1.0, None, 0.5],
        ["7-0-0", "7-0-1", "7-0-2"],
    )
    assert collector.counts.sequences == type(collector.counts.sequences)(offered=6, written=3, dropped=3)
    assert collector.counts.tokens.written == 15
    (close,), (opening,) = commit_lines(tmp_path / "run", "close"), commit_lines(tmp_path / "run", "open")
    assert (close["offered"], close["written"], close["dropped"]) == (6, 3, 3)
    assert opening["pid"] == os.getpid() and [gap["sequences"] for gap in commit_lines(tmp_path / "run", "gap")] == [3]
    assert any(event["event"] == "weight_sync" for event in commit_lines(tmp_path / "run", "event"))
    wait_until(lambda: not is_there(pids[0]))


def whole_commits(run: Path) -> int:
    """Number of commit lines, 0 while the end of a log is being written."""
    logs = [log.read_bytes() for log in (run / "commits").glob("*")]
    return sum(log.count(b'"kind": "commit"') for log in logs) if all(log.endswith(b"\n") for log in logs) else 0


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGHUP"])
def test_a_trainer_that_is_ended_loses_nothing_that_it_had_logged(tmp_path: Path, name: str) -> None:
    """As torchrun and Slurm end ranks. Its last steps are moments old: the pipe to the writer holds them."""
    lines = f"""
    from ratioscope import Collector
    if signal.{name} != signal.SIGKILL:
        signal.signal(signal.{name}, signal.SIG_DFL)  # a suite under nohup hands on that SIGHUP is ignored
    collector = Collector(RUN)
    for step in range(60):
        collector.log(step=step, rollout_logprobs=[[-1.0] * 50] * 4, old_logprobs=[[-1.1] * 50] * 4)
    while collector._thread._items.qsize() or collector._thread._is_busy:
        pass
    os.kill(os.getpid(), signal.{name})
    signal.pause()
    """
    script(lines, tmp_path, code=-getattr(signal, name))
    wait_until(lambda: whole_commits(tmp_path / "run") > 60 and len(token_rows(tmp_path / "run")) == 240)
    assert len(commit_lines(tmp_path / "run", "commit")) > 60
    assert not commit_lines(tmp_path / "run", "close")  # the trainer did not end in order, and readers see that


def test_a_writer_that_was_just_born_is_not_ended_by_a_signal(tmp_path: Path) -> None:
    """A scheduler sends it to every process of a job. The writer's packages take a second to import."""
    lines = """
    from contextlib import suppress
    from pathlib import Path
    from ratioscope import Collector
    collector = Collector(RUN)
    mine, found = f'"pid": {os.getpid()},'.encode(), []
    while not found:
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mine in (folder / "environ").read_bytes() and (folder / "stat").read_text().split()[3] != str(os.getpid()):
                    found.append(int(folder.name))
    for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(found[0], name)
    collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.1]])
    assert collector.close(60)
    print(collector.counts.sequences.written, dict(collector.counts.failures))
    """
    assert script(lines, tmp_path) == "1 {}"


def test_a_collector_touches_no_file_on_the_trainers_thread(tmp_path: Path) -> None:
    """A run folder on a disk whose server is gone would hold the trainer up for ever."""
    lines = """
    from ratioscope import Collector
    import pyarrow, ratioscope.collectors.writing.parquet_sink
    pyarrow.array([0])
    seen = []
    def hear(event, values):
        is_file = event.split(".")[0] in ("open", "os", "shutil", "subprocess")
        if is_file and threading.current_thread() is threading.main_thread():
            seen.append((event, values))
    sys.addaudithook(hear)
    collector = Collector(RUN, config={"a": 1})
    collector.log(step=1, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.5]])
    collector.event("weight_sync", 1)
    print(seen)
    assert collector.close(None)
    """
    assert script(lines, tmp_path) == "[]"


def test_a_writer_that_hangs_holds_nobody_up(tmp_path: Path, pids: list[int]) -> None:
    collector = Collector(tmp_path / "run", queue_batches=8)
    collector.log(step=0, **ONE)
    assert collector.flush(PATIENCE)
    os.kill(pids[0], signal.SIGSTOP)
    for step in range(1, 100):
        collector.log(step=step, **ONE)
    assert not collector.flush(0.1)
    assert collector.counts.reasons["queue full"] >= 80
    os.kill(pids[0], signal.SIGCONT)
    assert not collector.flush(PATIENCE)  # not all that was logged is there
    assert collector.close(PATIENCE) and collector.counts.sequences.pending == 0
    assert len(token_rows(tmp_path / "run")) == collector.counts.sequences.written


def test_a_writer_that_is_killed_is_missed_counted_and_replaced(
    tmp_path: Path, pids: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **ONE)
        assert collector.flush(PATIENCE)
        collector.log(step=2, **ONE)
        os.kill(pids[0], signal.SIGKILL)
        wait_until(lambda: not is_there(pids[0]))
        assert not collector.flush(PATIENCE)
        collector.log(step=3, **ONE)
        collector.flush(PATIENCE)
    tally = collector.counts.sequences
    assert (tally.offered, tally.written + tally.dropped) == (3, 3) and tally.written >= 2
    assert set(collector.counts.reasons) <= {ENDED} and collector.counts.failures[PROCESS] == 1
    assert {1, 3} <= set(token_rows(tmp_path / "run")["step"].to_pylist())
    assert {1, 3} <= set(open_run(tmp_path / "run").metrics()["step"].to_list())


def test_what_is_sent_after_the_end_of_a_process_is_lost_and_the_end_counts_once(
    tmp_path: Path, pids: list[int]
) -> None:
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **ONE)
        assert collector.flush(PATIENCE)
        process = collector._process
        told: list[bool] = []
        assert process is not None
        os.kill(pids[0], signal.SIGKILL)
        wait_until(lambda: process.is_gone)
        for _ in range(2):
            process.finish(told.append)
        wait_until(lambda: PROCESS in collector.counts.failures)
        assert told == [False, False] and collector.counts.failures[PROCESS] == 1


def test_where_no_process_can_be_started_a_thread_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*values: Any, **named: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refused)
    with Collector(tmp_path / "run") as collector:
        collector.log(step=1, **ONE)
    assert len(token_rows(tmp_path / "run")) == 1 and "a thread of this process writes instead" in caplog.text


def test_where_no_thread_can_be_started_log_counts_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        collector = Collector(tmp_path / "run")
        collector.log(step=1, **ONE)
        collector.event("weight_sync", 1)
    assert collector.counts.reasons == {NO_THREAD: 1} and collector.counts.failures == {"events": 1}
    collector.log(step=2, **ONE)
    assert collector.close(PATIENCE) and collector.counts.sequences.written == 1


@pytest.mark.parametrize("call", ["log", "event", "flush", "close"])
@pytest.mark.parametrize("writer", ["process", "thread"])
def test_a_signal_handler_may_call_the_collector_wherever_it_interrupts_it(
    tmp_path: Path, call: str, writer: str
) -> None:
    calls = {
        "log": "collector.log(step=3, rollout_logprobs=[[-2.0]])",
        "event": "collector.event('note', 3)",
        "flush": "collector.flush(30)",
        "close": "collector.close(30)",
    }
    most = 2 if call in ("flush", "close") else 40
    lines = f"""
    import time
    from ratioscope import Collector
    collector = Collector(RUN, writer={writer!r})
    handled = []
    def handler(number, frame):
        {calls[call]}
        handled.append(number)
        if len(handled) < {most}:
            signal.setitimer(signal.ITIMER_REAL, 0.0003 * len(handled))
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    while len(handled) < {most}:  # a timer that is at rest may have a handler to come, which winds it up again
        collector.log(step=1, rollout_logprobs=[[-1.0, -1.0]])
    signal.setitimer(signal.ITIMER_REAL, 0)
    collector.close(60)
    tally = collector.counts.sequences
    assert tally.pending == 0 and tally.written + tally.dropped == tally.offered, tally
    print(len(handled))
    """
    assert int(script(lines, tmp_path)) == most
    ids = token_rows(tmp_path / "run")["sequence_id"].to_pylist()
    assert len(ids) == len(set(ids))


def test_events_take_no_place_of_batches_and_texts_count_in_the_queue() -> None:
    sink = CollectingSink()
    sink.gate.clear()
    collector = Collector("unused", sink=lambda: sink, queue_batches=8, queue_bytes=1 << 20)
    collector.log(step=0, **ONE)
    collector.log(step=1, **ONE)
    assert sink.is_waiting.wait(PATIENCE)
    for step in range(500):
        collector.event("weight_sync", step)
    collector.log(step=2, **ONE)
    assert collector.counts.sequences.dropped == 0
    texts: dict[str, Any] = {
        "prompt_texts": ["x" * 900_000],
        "extra": [{"note": "x" * 900_000}],
        "token_texts": [["x" * 450_000] * 2],
    }
    for name, value in texts.items():
        before = collector.counts.sequences.dropped
        collector.log(step=3, **{**ONE, name: value})
        collector.log(step=4, **{**ONE, name: value})
        assert collector.counts.sequences.dropped > before, name
    sink.gate.set()
    assert collector.close(PATIENCE)


@pytest.mark.parametrize("steps", [[5] * 60, list(range(60, 0, -1))], ids=["one that stays", "falling"])
def test_rows_that_wait_for_their_step_to_end_are_bounded_in_bytes(steps: list[int]) -> None:
    sink = CollectingSink()
    rollout = np.full((10, 1000), -1.0, np.float32)
    collector = Collector("unused", sink=lambda: sink, queue_bytes=1 << 20, when_full="wait")
    for step in steps:
        collector.log(step=step, rollout_logprobs=rollout)
    wait_until(lambda: collector._thread._items.empty() and not collector._thread._is_busy)
    waiting = collector.counts.sequences.pending
    assert waiting * 4000 <= (1 << 20) // 4 + 2 * rollout.nbytes
    assert collector.close(PATIENCE) and collector.counts.sequences.written == 600


def test_close_goes_on_while_something_comes_of_it_and_offline_callers_may_wait() -> None:
    class Slow(CollectingSink):
        def write(self, step: int, rows: Any, earlier: Any, tally: Any, late: str | None) -> Any:
            threading.Event().wait(0.05)
            return super().write(step, rows, earlier, tally, late)

    sink = Slow()
    collector = Collector("unused", sink=lambda: sink, queue_batches=2, when_full="wait")
    for step in range(30):
        collector.log(step=step, **ONE)
    late = Collector("unused", sink=Slow, queue_batches=100)
    for step in range(40):
        late.log(step=step, **ONE)
    assert collector.close(1.0) and late.close(1.0)
    assert (collector.counts.sequences.written, late.counts.sequences.written) == (30, 40)


@pytest.mark.parametrize("own", [True, False], ids=["a handler of the trainer's", "no handler"])
def test_a_last_flush_at_a_signal_leaves_the_trainers_handling_as_it_was(tmp_path: Path, own: bool) -> None:
    lines = f"""
    from ratioscope import Collector
    from ratioscope.collectors.ending import flush_at
    collector = Collector(RUN, writer="thread")
    def stopped(number, frame):
        print(number, collector.counts.sequences.written)
        raise SystemExit(7)
    if {own}:
        signal.signal(signal.SIGTERM, stopped)
    flush_at(collector, seconds=60)
    collector.log(step=1, rollout_logprobs=[[-1.0]] * 5)
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
    """
    assert script(lines, tmp_path, code=7 if own else -signal.SIGTERM) == ("15 5" if own else "")
    assert len(token_rows(tmp_path / "run")) == 5


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


A_PROGRAM_THAT_WRITES_NOTHING = """import os
if os.fork():
    os._exit(0)
os.write(1, b'{{"ready": %d}}\\n' % os.getpid())
while (said := os.read(0, 65536)) and b'"close"' not in said:
    pass"""


def test_fifty_collectors_leave_no_descriptor_open(
    tmp_path: Path, pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Collector(tmp_path / "first") as first:  # what is opened once and for all
        first.log(step=1, **ONE)
    before = descriptors()
    with Collector(tmp_path / "killed") as collector:  # a process that is replaced leaves none either
        collector.log(step=1, **ONE)
        assert collector.flush(PATIENCE)
        os.kill(pids[-1], signal.SIGKILL)
        wait_until(lambda: collector._process is not None and collector._process.is_gone)
        collector.log(step=2, **ONE)
    assert len(pids) == 3 and descriptors() == before
    monkeypatch.setattr(writer_process, "_PROGRAM", A_PROGRAM_THAT_WRITES_NOTHING)
    for number in range(50):
        with Collector(tmp_path / str(number)) as collector:
            collector.event("a note", 1)
    wait_until(lambda: not any(map(is_there, pids)))
    assert len(pids) == 53 and descriptors() == before


@pytest.mark.parametrize("name", ["Thread.start", "Popen", "second pipe"])
def test_a_process_that_cannot_be_listened_to_ends_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    ends: list[int] = []
    start, started, pipe, pipes = threading.Thread.start, writer_process._started, os.pipe, list[object]()

    def starts(self: threading.Thread) -> None:
        if self.name == "ratioscope-replies":
            raise RuntimeError("can't start new thread")
        start(self)

    def kept(*given: Any) -> tuple[PipeEnd, PipeEnd]:
        to_it, from_it = started(*given)
        ends.append(os.dup(from_it.descriptor))
        return to_it, from_it

    def one_pipe() -> tuple[int, int]:
        pipes.append(None)
        if len(pipes) == 2:
            raise OSError(24, "Too many open files")
        return pipe()

    def refused(*values: Any, **named: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with Collector(tmp_path / "first") as collector:
        collector.log(step=1, **ONE)
    token_rows(tmp_path / "first")  # what opens a descriptor once and for all has opened it
    monkeypatch.setattr(writer_process, "_started", kept)
    before = descriptors()
    with monkeypatch.context() as patch:
        if name == "Thread.start":
            patch.setattr(threading.Thread, "start", starts)
        elif name == "Popen":
            patch.setattr(subprocess, "Popen", refused)
        else:
            patch.setattr(os, "pipe", one_pipe)
        with Collector(tmp_path / "run") as collector:
            collector.log(step=1, **ONE)
    assert len(token_rows(tmp_path / "run")) == 1
    for end in ends:
        while os.read(end, 1 << 16):  # to the end of what the process says, which is its own end
            pass
        os.close(end)
    assert len(ends) == (name == "Thread.start")
    wait_until(lambda: descriptors() == before)  # a thread of an earlier test may have a file open for a moment


def test_after_a_close_that_gave_up_the_process_ends_once_it_can(tmp_path: Path, pids: list[int]) -> None:
    before = descriptors()
    collector = Collector(tmp_path / "run")
    collector.log(step=0, **ONE)
    assert collector.flush(PATIENCE)
    os.kill(pids[0], signal.SIGSTOP)
    large = np.full((4, 1 << 18), -1.0, np.float32)  # more than a pipe holds
    collector.log(step=1, rollout_logprobs=large)
    collector.log(step=2, rollout_logprobs=large)
    assert not collector.close(0.2)
    os.kill(pids[0], signal.SIGCONT)
    wait_until(lambda: not is_there(pids[0]))
    wait_until(lambda: not collector._thread.is_alive and descriptors() == before)
    assert collector.counts.sequences.written == 1 and collector.counts.sequences.dropped == 8


def test_files_that_get_the_numbers_of_our_pipes_stay_open_and_unwritten(tmp_path: Path) -> None:
    lines = """
    from pathlib import Path
    from ratioscope import Collector
    collector = Collector(RUN, writer="process")
    one = {"rollout_logprobs": [[-1.0] * 1000] * 64, "old_logprobs": [[-1.5] * 1000] * 64}
    collector.log(step=1, **one)
    assert collector.flush(timeout=60)
    os.closerange(3, 256)  # as a daemon does at its start
    files = [open(f"{RUN}-{number}", "w+b") for number in range(16)]
    assert {file.fileno() for file in files} == set(range(3, 19))
    for step in range(2, 8):
        collector.log(step=step, **one)
    collector.flush(timeout=60)
    collector.close(timeout=60)
    for file in files:
        file.write(b"mine")
        file.flush()
        assert Path(file.name).read_bytes() == b"mine"
    tally = collector.counts.sequences
    assert tally.offered == 7 * 64 and tally.written + tally.dropped == tally.offered
    """
    script(lines, tmp_path)
    assert len(token_rows(tmp_path / "run")) >= 64


def test_a_program_that_closes_our_pipes_while_the_process_starts_keeps_its_files(tmp_path: Path) -> None:
    """A daemon closes all descriptors at its start, and the writer's process takes a second for its own."""
    lines = """
    import subprocess
    from pathlib import Path
    from ratioscope import Collector
    files = []

    class Closing(subprocess.Popen):
        def __exit__(self, *error):
            ended = super().__exit__(*error)
            os.closerange(3, 256)
            files.extend(open(f"{RUN}-{number}", "w+b") for number in range(16))
            return ended

    subprocess.Popen = Closing
    collector = Collector(RUN, writer="process")
    collector.log(step=1, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.5]])
    assert collector.close(timeout=60)
    assert len(files) == 16
    for file in files:
        file.write(b"mine")
        file.close()
        assert Path(file.name).read_bytes() == b"mine"
    assert collector.counts.sequences.written == 1
    """
    script(lines, tmp_path)


def test_an_end_whose_number_is_another_files_is_neither_read_nor_written_nor_closed(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    ends = [PipeEnd.of(reading), PipeEnd.of(writing)]
    ends[1].write(b"one\ntw")
    lines = ends[0].lines()
    assert next(lines) == b"one"
    with open(tmp_path / "mine", "w+b") as mine:
        mine.write(b"own\n")
        mine.flush()
        mine.seek(0)
        for end in ends:
            os.dup2(mine.fileno(), end.descriptor)
        assert list(lines) == []
        with pytest.raises(OSError, match="closed by the program"):
            ends[1].write(b"frame")
        for end in ends:
            end.close()
            assert os.fstat(end.descriptor).st_ino == os.fstat(mine.fileno()).st_ino
            os.close(end.descriptor)
            end.close()  # nothing has the number now
        assert mine.read() == b"own\n"
