"""What the first reader of a server would wait for, done before anybody asks: imports, what the first page shows of each run, and
then what takes longest on the other pages.

One thread does it, behind all that is asked for meanwhile; who asks for a thing that is being made waits for that one.
"""

import gc
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from ..view import Wanted

RUNS = 8
"""Runs that are read beforehand, the one shown first at first."""
LAZY = 10
"""How much the thread yields to others (its nice value)."""


def start_warming() -> threading.Thread:
    """The thread, running; it ends with the process."""
    thread = threading.Thread(target=_warm, name="ratioscope-warm", daemon=True)
    thread.start()
    return thread


def _warm() -> None:
    with suppress(Exception):  # nobody is asking: the page that needs what failed here says what is wrong
        import pandas  # noqa: F401  (Streamlit's tables need it)

        from .. import dashboard  # noqa: F401  (brings every page with it)
        from ..served import served
        from ..view import prepare, warm

        _first_figure()
        _leave_out_of_collections()
        found = served()
        first = [found.runs[found.first]] if found.first in found.runs else []
        warm(first)
        with suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LAZY)
        prepare(first, _by_slice())
        others = [path for path in found.runs.values() if path not in first][: RUNS - len(first)]
        warm(others)
        prepare(others, _by_slice())


def _leave_out_of_collections() -> None:
    """Streamlit collects garbage after every run of a script, also of a part of the page; nobody is answered meanwhile. Of some
    175,000 objects nearly all are code and tables of libraries, which stay for good: without them it takes 8 ms instead of 70."""
    gc.collect()
    gc.freeze()


def _by_slice() -> list["Wanted"]:
    """What the pages Where and Staleness read of a run: merging its slices takes ten seconds for 10,000 steps."""
    from ratioscope.ingest.lag_course import lag_course, lag_table
    from ratioscope.metrics.slices import WRITTEN

    from ..slice_words import written_slices
    from ..view import metrics_of

    by: list[tuple[str, ...]] = [*((name,) for name in WRITTEN[1:]), ()]
    return [
        *((metrics_of, (one, None)) for one in by),
        (written_slices, ()),
        (lag_course, (None,)),
        (lag_table, (None,)),
    ]


def _first_figure() -> None:
    """The first chart of a process takes half a second longer than the next: plotly loads what it needs when it needs it."""
    from ..figures.over_steps import metric_over_steps
    from ..headline import BY_NAME

    frame = pl.DataFrame({"step": [0, 1], "mismatch/kl_k3": [0.1, 0.2], "mismatch/kl_k3_se": [0.01, 0.01]})
    metric_over_steps(frame, BY_NAME["kl_k3"], "mismatch").to_json()
