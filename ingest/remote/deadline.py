"""Asks a store with a deadline. A request that is not answered in time is given up, so that nobody waits for ever."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def answered(ask: Callable[[], Result], seconds: float) -> Result:
    """The answer, or the error of the request. TimeoutError after so many seconds.

    The packages behind fsspec bound their waits in different ways, and some do not. A thread that waits for a store that never
    answers ends with the process and delays nobody: it is a daemon, unlike the threads of a pool.
    """
    answer: Future[Result] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=work, name="ratioscope-store", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError as error:
        if answer.done():  # the package's own time-out
            raise
        raise TimeoutError(f"no answer within {seconds:g} seconds") from error
