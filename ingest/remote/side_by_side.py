"""Transfers of many files at a time."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def side_by_side(transfer: Callable[[Item], object], items: Iterable[Item], at_once: int = 16) -> None:
    """Calls `transfer` for each item, several at a time. After an error, or Ctrl+C, no further one is begun."""
    with ThreadPoolExecutor(at_once) as pool:
        started = [pool.submit(transfer, item) for item in items]
        try:
            for each in started:
                each.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
