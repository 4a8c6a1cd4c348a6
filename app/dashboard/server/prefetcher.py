"""Work that a reader would wait for, done in advance: imports, the first page of each run, the slowest parts of the other pages,
the next pages of a run that a reader has opened, diagnoses, and new commits of runs on stores.

Threads of the same priority as those that answer readers do it. A reader who needs a value that is being computed waits for that
thread, and a thread of lower priority might hold the interpreter's lock while it waits for a processor.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import polars as pl

from ..model.opened_runs import next_opened, on_pages
from .memory import leave_out_of_collections

if TYPE_CHECKING:
    from ...pages.view import CacheRequest, View

FOLLOW_EVERY, LOOKED_AT = 3.0, 30.0
"""Seconds between two looks at a store, and seconds for which it is followed after a page looked at the run."""
RUNS = 8
"""Most runs that are read in advance, beginning with the run that is shown first."""


def start_warming() -> None:
    """Starts the threads; they end with the process."""
    for work in (_warm, _prefetch, _diagnose, _follow):
        threading.Thread(target=work, name=f"ratioscope{work.__name__}", daemon=True).start()


def _warm() -> None:
    with suppress(Exception):  # no reader waits here: the page that needs the failed value will report the error
        import pandas  # noqa: F401  (Streamlit's tables need it)

        from .. import shell as dashboard  # noqa: F401  (imports every page)
        from ..model.diagnoses import diagnoses
        from ..model.served_runs import served
        from ..model.view import prepare, view, warm

        _first_figure()
        leave_out_of_collections()
        served_runs = served()
        first = [served_runs.runs[served_runs.first]] if served_runs.first in served_runs.runs else []
        warm(first)
        for path in first:
            diagnoses().of(view(path))
        prepare(first, _by_slice())
        others = [path for path in served_runs.runs.values() if path not in first][: RUNS - len(first)]
        warm(others)
        prepare(others, _by_slice())


def _prefetch() -> None:
    from ..model.served_runs import other_than, served
    from ..model.view import prefetch

    while True:
        path = next_opened()
        with suppress(Exception):  # as in `_warm`
            prefetch(path, _next)
            served_runs = served()
            own = served_runs.name_of(path)
            if (other := other_than(served_runs, own)) != own:
                prefetch(served_runs.runs[other], _beside)


def _diagnose() -> None:
    from ..model.diagnoses import diagnoses

    diagnoses().work()


def _follow() -> None:
    """Copies new commits of runs on stores: no page waits for a store."""
    from pathlib import Path

    from ratioscope.ingest.remote.opening import follow_apart

    while True:
        for path in on_pages(LOOKED_AT):
            with suppress(Exception):  # as in `_warm`
                follow_apart(Path(path))
        time.sleep(FOLLOW_EVERY)


def _next(shown: "View") -> Iterator["CacheRequest"]:
    """Requests of the pages after the first: the events, then the requests of each page's `ahead`."""
    from ...pages.pages import PAGES
    from ...pages.view import events_and_alerts_of
    from ..panels.charts import last_appearance

    yield events_and_alerts_of, (shown,)
    for page in PAGES:
        yield from page.ahead(shown, last_appearance())


def _beside(shown: "View") -> Iterator["CacheRequest"]:
    """Requests of the page Compare for the default second run."""
    from ratioscope.ingest.analysis.copies import judged_first
    from ratioscope.ingest.run import Run

    from ...pages.view import events_and_alerts_of

    yield events_and_alerts_of, (shown,)
    yield from ((Run.distribution, ("token", gap)) for gap in judged_first(shown.run)[:1])


def _by_slice() -> list["CacheRequest"]:
    """Requests of the pages Where and Staleness: to merge the slices of 10,000 steps takes ten seconds."""
    from ratioscope.ingest.analysis.slice_over_steps import lag_over_steps, lag_table
    from ratioscope.metrics.engines.slices import WRITTEN

    from ...pages.slice_absences import written_slices
    from ...pages.view import metrics_of

    by: list[tuple[str, ...]] = [*((name,) for name in WRITTEN[1:]), ()]
    return [
        *((metrics_of, (one, None)) for one in by),
        (written_slices, ()),
        (lag_over_steps, (None,)),
        (lag_table, (None,)),
    ]


def _first_figure() -> None:
    """Draws a first chart, which takes half a second longer than the next: plotly imports modules on demand, and a metric's card
    loads every trainer's names for the metric."""
    from ratioscope.metrics.card import card

    from ...figures.over_steps import metric_over_steps
    from ...presentation.metric_places import metrics_at

    metric = metrics_at("first", gap := "mismatch")[0]
    card(metric.name)
    name = f"{gap}/{metric.name}"
    frame = pl.DataFrame({"step": [0, 1], name: [0.1, 0.2], f"{name}_se": [0.01, 0.01]})
    metric_over_steps(frame, metric, gap).to_json()
