"""Processes that are forked from a small one with the collector already imported: a fresh trainer in 25 ms, not in a second."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from typing import Any

PRELOADED = ["pandas", "pyarrow.parquet", "ratioscope.collectors.collector", "ratioscope.metrics.engines.numpy_engine"]
"""pandas, because pyarrow imports it with its first array."""

PATIENCE = 900.0
"""Seconds to wait for a writer before a promise counts as broken. What becomes of the data is shown here, not how fast: on a busy
machine a process may get a hundredth of a core."""


def nursery() -> ForkServerContext:
    """A context whose processes begin with these imports and no thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def told_by(receiver: Connection) -> list[Any]:
    """Everything that a process said before its end. Any: what it sent."""
    told = []
    try:
        while True:
            told.append(receiver.recv())
    except EOFError:
        return told
