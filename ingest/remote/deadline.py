"""Asks a store with a deadline. A request that is not answered in time is given up, so that nobody waits for ever."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar
from weakref import WeakSet

Result = TypeVar("Result")
MOST_GIVEN_UP = 16
"""Requests that were given up and still go on, at which no further one is made: each holds a thread and a connection."""
_GIVEN_UP: "WeakSet[threading.Thread]" = WeakSet()


def going_on() -> int:
    """The number of requests that were given up and still go on: a store may send a byte now and then for ever."""
    return sum(thread.is_alive() for thread in list(_GIVEN_UP))


def answered(ask: Callable[[], Result], seconds: float) -> Result:
    """The answer, or the error of the request. TimeoutError after so many seconds.

    The packages behind fsspec bound their waits in different ways, and some do not. A thread that waits for a store that never
    answers ends with the process and delays nobody: it is a daemon, unlike the threads of a pool.
    """
    if going_on() >= MOST_GIVEN_UP:
        raise TimeoutError(f"{MOST_GIVEN_UP} requests were given up, and the store has not ended them")
    answer: Future[Result] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    thread = threading.Thread(target=work, name="ratioscope-store", daemon=True)
    thread.start()
    try:
        return answer.result(seconds)
    except TimeoutError as error:
        if answer.done():  # the package's own time-out
            raise
        _GIVEN_UP.add(thread)
        raise TimeoutError(f"no answer within {seconds:g} seconds") from error
