"""Text of a frame, changed by a function of ours outside of polars' engine.

A function of ours inside of it (`map_elements`) runs in a thread of polars' pool and waits there for Python's lock, which another
thread may hold while it waits for that pool: then the process never answers again.
"""

from collections.abc import Callable

import polars as pl


def changed(frame: pl.DataFrame, change: Callable[[str], str], *columns: str) -> pl.DataFrame:
    """The frame with these columns of text as the function changes them; null stays null.

    >>> changed(pl.DataFrame({"a": ["x", None]}), str.upper, "a")["a"].to_list()
    ['X', None]
    """
    texts = [
        pl.Series(name, [None if text is None else change(text) for text in frame[name].to_list()], pl.String)
        for name in columns
    ]
    return frame.with_columns(texts)
