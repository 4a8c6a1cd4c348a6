"""What a reader would wait for, done before anybody asks: imports, what the first page shows of each run, and what takes longest
on the other pages; of a run that somebody has opened, what its next page will show.

Threads do it, of the same priority as those that answer readers: whoever asks for a thing that is being made waits for that one,
and a thread that must wait for a processor keeps the interpreter's lock from all others while it does.
"""

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import polars as pl

from ..model.opened_runs import next_opened
from .memory import leave_out_of_collections

if TYPE_CHECKING:
    from ..model.view import CacheRequest, View

RUNS = 8
"""Runs that are read beforehand, the one shown first at first."""


def start_warming() -> None:
    """Starts the threads; they end with the process."""
    for work in (_warm, _prefetch):
        threading.Thread(target=work, name=f"ratioscope{work.__name__}", daemon=True).start()


def _warm() -> None:
    with suppress(Exception):  # nobody is asking: the page that needs what failed here says what is wrong
        import pandas  # noqa: F401  (Streamlit's tables need it)

        from .. import shell as dashboard  # noqa: F401  (brings every page with it)
        from ..model.served_runs import served
        from ..model.view import prepare, warm

        _first_figure()
        leave_out_of_collections()
        found = served()
        first = [found.runs[found.first]] if found.first in found.runs else []
        warm(first)
        prepare(first, _by_slice())
        others = [path for path in found.runs.values() if path not in first][: RUNS - len(first)]
        warm(others)
        prepare(others, _by_slice())


def _prefetch() -> None:
    from ..model.served_runs import other_than, served
    from ..model.view import prefetch

    while True:
        path = next_opened()
        with suppress(Exception):  # as in `_warm`
            prefetch(path, _next)
            found = served()
            own = found.name_of(path)
            if (other := other_than(found, own)) != own:
                prefetch(found.runs[other], _beside)


def _next(shown: "View") -> Iterator["CacheRequest"]:
    """What pages need beside what the first shows: what happened, then what each of them wants ahead."""
    from ratioscope.ingest.analysis.events_and_alerts import events_and_alerts

    from ..pages import PAGES

    yield events_and_alerts, ()
    for page in PAGES:
        yield from page.prefetch(shown)


def _beside(shown: "View") -> Iterator["CacheRequest"]:
    """What the page Compare needs of the run that it lays beside another."""
    from ratioscope.ingest.analysis.events_and_alerts import events_and_alerts
    from ratioscope.ingest.run import Run

    yield events_and_alerts, ()
    yield from ((Run.distribution, ("token", gap)) for gap in shown.run.gaps[:1])


def _by_slice() -> list["CacheRequest"]:
    """What the pages Where and Staleness read of a run: merging its slices takes ten seconds for 10,000 steps."""
    from ratioscope.ingest.analysis.lag_over_steps import lag_over_steps, lag_table
    from ratioscope.metrics.engines.slices import WRITTEN

    from ..model.slice_absences import written_slices
    from ..model.view import metrics_of

    by: list[tuple[str, ...]] = [*((name,) for name in WRITTEN[1:]), ()]
    return [
        *((metrics_of, (one, None)) for one in by),
        (written_slices, ()),
        (lag_over_steps, (None,)),
        (lag_table, (None,)),
    ]


def _first_figure() -> None:
    """The first chart of a process takes half a second longer than the next: plotly loads what it needs when it needs it, and
    a metric's card every trainer's names for it."""
    from ratioscope.metrics.card import card

    from ...figures.over_steps import metric_over_steps
    from ...presentation.metric_places import metrics_at

    metric = metrics_at("first", gap := "mismatch")[0]
    card(metric.name)
    name = f"{gap}/{metric.name}"
    frame = pl.DataFrame({"step": [0, 1], name: [0.1, 0.2], f"{name}_se": [0.01, 0.01]})
    metric_over_steps(frame, metric, gap).to_json()
