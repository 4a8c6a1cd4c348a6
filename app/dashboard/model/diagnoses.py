"""Diagnoses of runs, made by a background thread of the server, one at a time, and shared by all sessions.

The worst samples of a run are read after its diagnosis. A page asks and gets the diagnosis that is known, which may be of an
older revision, or None. No page waits for one.
"""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace

import streamlit as st

from ratioscope.errors import RatioscopeError
from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.ingest.analysis.diagnosis import diagnosed_gap
from ratioscope.ingest.analysis.judged_verdict import REST

from ...pages.answered import Answered, answered
from ...pages.running_scripts import wait_for_pages
from ...pages.view import View
from ...pages.worst import WorstSequence
from ...pages.worst_of_run import samples_of, why_none
from .opened_runs import opened_run

MOST = 64
"""Diagnoses in memory, the latest used. One takes some 50 kB, and a growing run keeps its newest only."""


@dataclass(frozen=True)
class Question:
    """A part of a run that is diagnosed."""

    path: str
    gap: str
    steps: range | None = None
    """None for all steps."""


class Diagnoses:
    """The diagnoses of one server. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._answered: dict[Question, Answered] = {}
        self._open: dict[Question, int] = {}

    def of(self, view: View, gap: str = "", steps: range | None = None) -> Answered | None:
        """The newest diagnosis of this part of the run; None if there is none yet. Asks for that of the view's revision.

        gap: empty for the best one on record.
        """
        question = _question(view, gap, steps)
        with self._lock:
            known = self._of_this_run(question, view, taken=True)
            if known is not None:
                self._answered[question] = known  # the latest used comes last
            if known is None or (known.revision < view.revision and time.monotonic() - known.ended > REST * known.took):
                self._open.pop(question, None)
                self._open[question] = view.revision
                for oldest in list(self._open)[:-MOST]:
                    del self._open[oldest]
                self._wanted.set()
        return known

    def known(self, view: View) -> Answered | None:
        """The newest diagnosis of the whole run; None if there is none yet. Asks for nothing."""
        with self._lock:
            return self._of_this_run(_question(view), view)

    def of_whole(self, path: str) -> Answered | None:
        """The newest diagnosis of the whole run at this path, of whatever revision; None if there is none. Asks for nothing."""
        with self._lock:
            return self._answered.get(Question(path, ""))

    def _of_this_run(self, question: Question, view: View, *, taken: bool = False) -> Answered | None:
        """None, too, if another run lies at this path since, or the run was opened anew. taken: it is kept no more."""
        known = self._answered.pop(question, None) if taken else self._answered.get(question)
        return known if known is not None and known.revision >> 32 == view.revision >> 32 else None

    def work(self) -> None:
        """Answers questions for ever."""
        while True:
            self._wanted.wait()
            self._wanted.clear()
            self.answer_all()

    def answer_all(self) -> None:
        """Answers every open question, the latest one first."""
        while (question := self._next()) is not None:
            wait_for_pages()
            answered = _answered(question, self._open.get(question, 0))
            self._keep(question, answered, closes=True)
            if question.steps is None:
                wait_for_pages()
                self._keep(question, _with_samples(question, answered))

    def _keep(self, question: Question, answered: Answered, *, closes: bool = False) -> None:
        """closes: the question is open no more; one that is asked again while samples are read stays open."""
        with self._lock:
            if closes:
                self._open.pop(question, None)
            self._answered[question] = answered
            for oldest in list(self._answered)[:-MOST]:
                del self._answered[oldest]

    def _next(self) -> Question | None:
        with self._lock:
            return next(reversed(self._open), None)


def _question(view: View, gap: str = "", steps: range | None = None) -> Question:
    """gap: empty for the one that a diagnosis chooses by itself."""
    with suppress(RatioscopeError):
        gap = "" if gap and gap == diagnosed_gap(view.run) else gap
    return Question(view.path, gap, steps)


@st.cache_resource(show_spinner=False)
def diagnoses() -> Diagnoses:
    """The diagnoses of this server."""
    return Diagnoses()


def _answered(question: Question, revision: int) -> Answered:
    """It opens the run apart, so that no reader waits for the lock of the pages' run."""
    return answered(lambda: opened_run(question.path), revision, question.gap, question.steps)


def _with_samples(question: Question, known: Answered) -> Answered:
    """The answer with the worst samples of its gap, or with the reason why there are none."""
    began, samples, none = time.monotonic(), tuple[WorstSequence, ...](), ""
    try:
        run = opened_run(question.path)
        gap = question.gap or (known.result.gap if known.result else judged_first(run)[0])
        samples = samples_of(run, gap)
        none = "" if samples else why_none(run, gap)
    except Exception as error:  # the page shows the reason
        none = str(error) if isinstance(error, RatioscopeError) else f"reading failed ({type(error).__name__}: {error})"
    ended = time.monotonic()
    return replace(known, samples=samples, no_samples=none, ended=ended, took=known.took + ended - began)
