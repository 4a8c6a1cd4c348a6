"""Changes texts of a frame by a Python function outside of polars' engine.

Inside the engine (`map_elements`) the function runs in a thread of polars' pool and waits for Python's lock. Another thread may
hold the lock and wait for the pool: then the process hangs for good.
"""

from collections.abc import Callable

import polars as pl


def changed(frame: pl.DataFrame, change: Callable[[str], str], *columns: str) -> pl.DataFrame:
    """The frame with these text columns changed by the function; null stays null.

    >>> changed(pl.DataFrame({"a": ["x", None]}), str.upper, "a")["a"].to_list()
    ['X', None]
    """
    texts = [
        pl.Series(name, [None if text is None else change(text) for text in frame[name].to_list()], pl.String)
        for name in columns
    ]
    return frame.with_columns(texts)
