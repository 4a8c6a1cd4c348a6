"""What the collectors say goes through handlers that are the trainer's: none of them can raise into it or hold it up."""

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.waiting import PATIENCE

from ratioscope.collectors.process import notice

LOGGER = logging.getLogger("ratioscope")


class Handler(logging.Handler):
    """A handler of the trainer's: keeps what it is told, and first does what it is made for."""

    def __init__(self, first: Callable[[], object]) -> None:
        super().__init__()
        self.first, self.told, self.has_heard_the_last = first, list[str](), threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.first()
        self.told.append(record.getMessage())
        if self.told[-1] == "the last":
            self.has_heard_the_last.set()


@contextmanager
def handled(first: Callable[[], object]) -> Iterator[Handler]:
    handler = Handler(first)
    LOGGER.addHandler(handler)
    try:
        yield handler
    finally:
        LOGGER.removeHandler(handler)


@pytest.fixture(autouse=True)
def speaker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The speaker is the process's: what hung or was late in one test is not to be met in the next."""
    speaker = notice._Speaker()
    monkeypatch.setattr(notice, "_speaker", speaker)
    monkeypatch.setattr(notice, "PATIENCE", 0.2)
    yield
    assert speaker._speaking.acquire(timeout=PATIENCE)


class Silent:
    def __str__(self) -> str:
        raise RuntimeError("no str")


def test_a_notice_has_been_said_when_the_call_returns(caplog: pytest.LogCaptureFixture) -> None:
    notice.warn("%s: %d rows", "run", 3)
    notice.say(logging.ERROR, "100% lost")
    assert [(r.levelname, r.message) for r in caplog.records] == [("WARNING", "run: 3 rows"), ("ERROR", "100% lost")]


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt, MemoryError])
def test_a_handler_that_raises_raises_into_nobody(error: type[BaseException]) -> None:
    def refuse() -> None:
        raise error("strict")

    with handled(refuse):
        notice.warn("one")
        notice.warn("two")
    with handled(lambda: None) as handler:
        notice.warn("three")
    assert handler.told == ["three"]


def test_words_that_cannot_be_put_together_are_said_without_them(caplog: pytest.LogCaptureFixture) -> None:
    notice.warn("step %s failed", Silent())
    notice.warn("%d rows", "many")
    assert [record.message for record in caplog.records] == [
        "step %s failed (RuntimeError as it was put in words)",
        "%d rows (TypeError as it was put in words)",
    ]


def test_a_handler_that_hangs_holds_the_caller_up_once_and_briefly() -> None:
    gate = threading.Event()
    with handled(gate.wait) as handler:
        before = time.monotonic()
        for n in range(1000):
            notice.warn("notice %d", n)
        notice.warn("the last")
        waited = time.monotonic() - before
        gate.set()
        assert handler.has_heard_the_last.wait(PATIENCE)
    assert waited < 100 * notice.PATIENCE
    assert handler.told[0] == "notice 0" and handler.told[-2] == "notice 999" and len(handler.told) < 100


def test_a_caller_who_holds_the_handlers_lock_is_not_waited_for() -> None:
    with handled(lambda: None) as handler:
        assert handler.lock is not None
        with handler.lock:
            notice.warn("from inside")
        notice.warn("the last")
        assert handler.has_heard_the_last.wait(PATIENCE)
    assert handler.told == ["from inside", "the last"]


def test_where_no_thread_can_be_started_the_notice_is_said_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_thread(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(notice, "start_new_thread", no_thread)
    notice.warn("one")
    notice.warn("two")
    assert [record.message for record in caplog.records] == ["one", "two"]


def test_all_threads_notices_are_said(caplog: pytest.LogCaptureFixture) -> None:
    names = [f"notice {n}" for n in range(40)]
    threads = [threading.Thread(target=notice.warn, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(record.message for record in caplog.records) == sorted(names)


def test_nothing_that_a_notice_names_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    class Tensor:
        pass

    tensor = Tensor()
    gone = weakref.ref(tensor)
    notice.warn("%s", tensor)
    del tensor
    assert gone() is None and caplog.records


def test_a_child_speaks_although_its_parent_was_speaking_at_the_fork() -> None:
    gate, (here, there) = threading.Event(), os.pipe()
    with handled(gate.wait):
        notice.warn("hangs")
        child = os.fork()
        if child == 0:
            LOGGER.handlers = [Handler(lambda: os.write(there, b"said"))]
            notice.warn("of the child")
            os._exit(0)
        gate.set()
    assert os.read(here, 4) == b"said"
    os.waitpid(child, 0)
    os.close(here)
    os.close(there)
