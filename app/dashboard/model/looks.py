"""The last look at the commit logs of each run on the page of a session, and the state of the run."""

import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import streamlit as st

from ratioscope.errors import RatioscopeError
from ratioscope.ingest.commits.liveness import Sizes, current_writers, sizes, writer_statuses
from ratioscope.process import Here, here

from ...presentation.run_state import RunState, run_state
from .opened_runs import run_looked_at


@dataclass(frozen=True)
class SeenRun:
    """A run as it was at the last look at its commit logs."""

    state: RunState
    statuses: dict[str, Any]
    """The statuses of its writers by log, see liveness.writer_statuses: a log that has not changed is not read again."""


def log_sizes(path: str) -> Sizes | None:
    """The sizes of the commit logs; None if the run is gone."""
    run_looked_at(path)
    try:
        return sizes(Path(path))
    except RatioscopeError:
        return None


def state_seen(path: str) -> RunState:
    """The state of the run at the last look: one drawing of a page asks several times, and on some disks a look takes long."""
    known = _seen().get(path)
    return see(path, log_sizes(path) or {}) if known is None else known.state


def see(path: str, logs: Sizes) -> RunState:
    """The state of a run with these commit logs, which is kept until the next look."""
    known = _seen().get(path)
    statuses = writer_statuses(Path(path), logs, {} if known is None else known.statuses)
    state = run_state(current_writers(word for _, word in statuses.values()), _here(os.getpid()), time.time())
    st.session_state["_seen"] = {**_seen(), path: SeenRun(state, statuses)}
    return state


def _seen() -> dict[str, SeenRun]:
    """Path -> run at the last look, of the runs of this session's page."""
    return cast(dict[str, SeenRun], st.session_state.get("_seen", {}))


@cache
def _here(_pid: int) -> Here:
    return here()


def forget_others(path: str) -> None:
    """Keeps the last look at this run alone."""
    st.session_state["_seen"] = {other: known for other, known in _seen().items() if other == path}
