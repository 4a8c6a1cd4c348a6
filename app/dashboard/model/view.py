"""Views of served runs: each frame and figure is made once per revision and shared by all sessions.

The revision cache holds all of them. Streamlit's own would hash large frames by a sample, and return wrong results for frames
that differ elsewhere.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from itertools import count

import polars as pl
import streamlit as st

from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.files.cache_folder import cache_folder
from ratioscope.ingest.jobs.part_job import part_digests
from ratioscope.ingest.rows.part import Part
from ratioscope.ingest.run import Run

from ...pages.answered import Answered
from ...pages.jobs import Jobs
from ...pages.running_scripts import in_advance, wait_for_pages
from ...pages.view import CacheRequest, View
from ...presentation.run_state import RunState
from .diagnoses import diagnoses
from .looks import state_seen
from .opened_runs import opened_run
from .revision_cache import CacheKey, HeldRevision, RevisionCache
from .served_runs import served

_OPENINGS = count()


@st.cache_resource(show_spinner=False, max_entries=16)
def _opened(path: str) -> Run:
    run = opened_run(path)
    # An evicted run may have grown before it is opened again: a fresh range of revisions keeps old cache keys from matching.
    run.revision = next(_OPENINGS) << 32
    return run


class Served:
    """The runs of one server, and what all sessions share of them."""

    def run(self, view: View) -> Run:
        return _opened(view.path)

    def name(self, view: View) -> str:
        return served().name_of(view.path)

    def of(self, view: View, make: Callable[..., object], arguments: tuple[Hashable, ...]) -> object:
        def made() -> object:
            value = make(view.run, *arguments)
            if view.run.revision != view.revision:  # the run may have grown meanwhile
                _revision_cache().note_late(view.path, view.revision)
            return value

        return _revision_cache().of(key_of(view, make, arguments), made)

    def part_statistics(self, run: Run, path: str, part: Part, gap: str) -> pl.DataFrame:
        return jobs().part(path, part, gap).statistics(part_digests(run, gap))

    def diagnosis(self, view: View, gap: str, steps: range | None) -> Answered | None:
        return diagnoses().of(view, gap, steps)

    def known_diagnosis(self, view: View) -> Answered | None:
        return diagnoses().known(view)

    def state(self, view: View) -> RunState:
        return state_seen(view.path)

    @property
    def jobs(self) -> Jobs:
        return jobs()


SERVED = Served()


def key_of(view: View, make: Callable[..., object], arguments: tuple[Hashable, ...]) -> CacheKey:
    """The key of the function's value in the revision cache."""
    return view.path, view.revision, f"{make.__module__}.{make.__qualname__}", arguments


def is_late(view: View) -> bool:
    """True if a part was first requested after the run had grown: that part shows a newer state."""
    return (view.path, view.revision) in _revision_cache().late


def on_show(view: View) -> HeldRevision:
    """Keeps the values of this revision for as long as the caller keeps the returned object."""
    return _revision_cache().show(view.path, view.revision)


def view(path: str) -> View:
    """The run as far as it is committed at this moment. Raises SourceError where it cannot be read."""
    run = _opened(path)
    run.refresh()
    if run.is_replaced:
        _opened.clear(path)
        run = _opened(path)
    return View(path, run.revision, SERVED)


def prepare(paths: Sequence[str], requests: Sequence[CacheRequest]) -> None:
    """Computes these values of each run for `View.of`. It opens the run separately, so that no reader waits for the run's lock.

    For a growing run they belong to another revision; then only the files that `Run` itself caches are of use.
    """
    for path in paths:
        try:
            shown, apart = view(path), opened_run(path)
            for make, arguments in requests:
                wait_for_pages()
                made = partial(make, apart, *arguments)
                with in_advance():  # no page waits for the lock of this run
                    made() if shown.is_growing else _revision_cache().of(key_of(shown, make, arguments), made)
        except Exception:  # as in `warm`
            continue


def prefetch(path: str, requests: Callable[[View], Iterable[CacheRequest]]) -> None:
    """Computes the requested values of a run for `View.of`. Each may take a second at most: the run answers nobody else
    meanwhile."""
    try:
        shown = view(path)
        for make, arguments in requests(shown):
            wait_for_pages()
            shown.of(make, *arguments)
    except Exception:  # as in `warm`
        return


def warm(paths: Sequence[str]) -> None:
    """Computes the values of each run's first page, run by run, so that the page opens without a wait."""
    for path in paths:
        try:
            wait_for_pages()
            shown = view(path)
            shown.metrics()
            wait_for_pages()
            shown.verdict()
        except Exception:  # a page will report the fault of the run; no reader waits here
            continue


@st.cache_resource(show_spinner=False)
def _revision_cache() -> RevisionCache:
    """The cache of this process."""
    return RevisionCache()


@st.cache_resource(show_spinner=False)
def jobs() -> Jobs:
    """The jobs of this server."""
    return Jobs(Cache(cache_folder()))
