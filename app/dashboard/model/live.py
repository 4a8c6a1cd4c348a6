"""Follows a run that is being written: one line with its state, and a redraw of the page when the run grows.

A look at the run lists its commit logs. The page is not redrawn while a row of a table is selected, because a redraw clears the
selection, nor while the reader has paused: then the line shows the number of newer steps and offers to show them. All sessions
share a run. The cache keeps the values of the displayed revision, so that a drawer that is opened later shows the same steps. A
frame that is first requested after the run has grown is computed from the newer data; the line shows that.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ratioscope.ingest.commits.liveness import Sizes, steps_since

from ...pages.view import View
from ...presentation.digits import count
from ...presentation.escape import streamlit_label as label
from ...presentation.run_state import RunState
from ...presentation.theme import MARKS
from .looks import forget_others, log_sizes, see, state_seen
from .opened_runs import run_opened
from .revision_cache import HeldRevision
from .view import SERVED, is_late, on_show, view

EVERY, EVERY_ENDED = 1.0, 5.0
"""Seconds between two looks at a run: at one that may grow, and at one that has ended but may be resumed. After each look the
browser goes through the whole page, which takes it as long as drawing two charts."""
REST = 1.0
"""Pause before a redraw, as a multiple of the drawing time: a heavy page takes half of a core at most. Convention."""
LONGEST_REST = 5.0
COLOURS = {"silent": "orange", "dead": "red"}
"""The colour of a state that nobody may overlook, of Streamlit's theme."""
LATE = f"{MARKS['watch']} some parts show newer steps"
"""Note on a held page, of which a part was first requested after the run had grown."""


@dataclass
class RunOnPage:
    """A run on a session's page."""

    kept: HeldRevision
    """The displayed revision; the cache keeps its values as long as this object lives."""
    sizes: Sizes
    """Sizes of the commit logs just before the revision was read."""


@dataclass
class DrawnPage:
    """The page that a session shows."""

    path: str = ""
    runs: dict[str, RunOnPage] = field(default_factory=dict)
    """Path -> run, with the runs beside the followed one."""
    at: float = 0.0
    """Time at which the run was last read for the page."""
    began: float = 0.0
    """Start of the last drawing."""
    took: float = 0.0
    """Seconds that the last drawing took."""
    looks_often: bool = False
    """True if the line of its state looks at the runs as at those that grow."""
    stands: str = ""
    """State of the run, in brief, as the page shows it."""


def followed(path: str) -> View:
    """The run to show: up to its newest commit, or as last shown while the page must not change."""
    asked_for, now = bool(st.session_state.pop("_show", False)), time.monotonic()
    page = _drawn_page()
    if page.path == path and held() and not asked_for:
        page.began = now
    else:
        st.session_state["_drawn"] = page = DrawnPage(path, {path: _read(path)}, at=now, began=now)
        forget_others(path)
        see(path, page.runs[path].sizes)
    page.stands = state_seen(path).brief
    return beside(path)


def beside(path: str) -> View:
    """A second run on the page. It is updated and held together with the followed one."""
    page = _drawn_page()
    if path not in page.runs:
        page.runs[path] = _read(path)
    return View(path, page.runs[path].kept.revision, SERVED)


def _read(path: str) -> RunOnPage:
    # The logs are listed before they are read, so that a commit in between counts as new and is not missed.
    logs, shown = log_sizes(path) or {}, view(path)
    run_opened(path)
    return RunOnPage(on_show(shown), logs)


def held() -> bool:
    """True if the page must not change: the reader has paused updates, or has selected a row."""
    return paused() or selected()


def show_newest() -> None:
    """Has the next drawing show the newest commit, also while a row is selected, which stays selected."""
    st.session_state["_show"] = True


def selected() -> bool:
    """True if a row of a table is selected that is still on the page.

    A look that the browser asked for before it knew of the table's new key brings the selection under the old key back: only
    the new key is read. To read all values of the session takes a tenth of the server's time for a page.
    """
    tables: dict[str, str] = st.session_state.get("_selectable", {})
    return any(_is_selection(st.session_state.get(name)) for name in tables.values())


def selectable(key: str, rows: Sequence[object]) -> str:
    """The key of a table in which a row can be selected. The key changes with the rows, and when newer steps are shown: a
    selection, which is a row number, then ends instead of pointing at another row."""
    shows = st.session_state.get("_shows", 0)
    name = f"{key}_{crc32(repr((shows, *rows)).encode()):08x}"
    st.session_state["_selectable"] = {**st.session_state.get("_selectable", {}), key: name}
    return name


def paused() -> bool:
    return bool(st.session_state.get("_paused"))


def note_drawn() -> None:
    """Notes the time that the page took to be drawn."""
    page = _drawn_page()
    page.took = time.monotonic() - page.began


def live_line(shown: View, tell_state: Callable[[], None]) -> None:
    """Shows the run's state, updated every few seconds, and redraws the page when more of the run is committed.

    It is called once the runs beside this one are known. tell_state: shows a change of the state on a page that must not change.
    """
    page = _drawn_page()
    page.looks_often = may_grow(shown)
    st.fragment(_line, run_every=EVERY if page.looks_often else EVERY_ENDED, key="live")(shown, tell_state)


def follow_beside(shown: View, tell_state: Callable[[], None]) -> None:
    """Looks as often at a run that the page itself has opened, below the line of its own run, which has ended."""
    if not _drawn_page().looks_often:
        st.fragment(_look, run_every=EVERY, key="live_beside")(shown, tell_state)


def may_grow(shown: View) -> bool:
    """True if this run, or one shown beside it, may grow, so that updates can be paused."""
    return paused() or any(state_seen(path).may_grow for path in {shown.path, *_drawn_page().runs})


def pause_button(place: DeltaGenerator) -> None:
    """The button that pauses and resumes updates of the page."""
    word, icon = ("Resume", ":material/play_arrow:") if paused() else ("Pause", ":material/pause:")
    place.button(word, icon=icon, key="pause", shortcut="p", on_click=_toggle, type="tertiary")


@dataclass(frozen=True)
class _Found:
    """The result of a look at the runs of a page."""

    logs: Sizes | None
    """Sizes of the commit logs of the followed run; None if it is gone."""
    is_held: bool
    """True if a run has grown and the page stays as it is."""


def _look(shown: View, tell_state: Callable[[], None]) -> _Found:
    """Looks at the runs of the page, and draws it anew where one has more to show."""
    page = _drawn_page()
    now = {path: log_sizes(path) for path in {shown.path, *page.runs}}
    logs = now[shown.path]
    if logs is None:
        return _Found(None, is_held=False)
    grown = page.path == shown.path and any(now[path] not in (None, run.sizes) for path, run in page.runs.items())
    stays = held() and "_show" not in st.session_state
    states = {path: see(path, logs or {}) for path, logs in now.items()}
    changed = page.path == shown.path and page.stands != states[shown.path].brief  # for example, its writer has died
    if changed and stays:
        page.stands = states[shown.path].brief
        tell_state()
    if (grown or changed) and not stays and time.monotonic() - page.at > min(LONGEST_REST, (1 + REST) * page.took):
        st.rerun()
    return _Found(logs, is_held=grown and stays)


def _line(shown: View, tell_state: Callable[[], None]) -> None:
    found = _look(shown, tell_state)
    if found.logs is None:
        st.caption(f"{MARKS['act']} the run's folder was deleted or moved", width="content")
        return
    state = state_seen(shown.path)
    with st.container(horizontal=True, vertical_alignment="center", gap="small", width="content"):
        st.caption(_words(state, shown), width="content", help=label(state.why, 300) or None)
        if found.is_held:
            drawn = _drawn_page().runs[shown.path].sizes
            newer = len(steps_since(Path(shown.path), drawn, found.logs) - set(shown.steps))
            more = count(newer, "newer step") if newer else "new data"
            st.button(f"{more} · show", key="show_newer", on_click=deselect, type="tertiary", help=_why_held())


def _words(state: RunState, shown: View) -> str:
    """The line as markup."""
    steps, counts = shown.steps, shown.run.conservation
    facts = [
        "paused" if paused() else "",
        LATE if held() and is_late(shown) else "",
        f":{COLOURS[state.life]}[{label(state.word, 100)}]" if state.life in COLOURS else label(state.word, 100),
        f"step {steps[-1]}" if steps else "",
        state.ago if state.brief == state.word else "",
        f"{MARKS['watch'] + ' ' if counts.dropped else ''}{counts.dropped:,} dropped" if counts.offered else "",
        f"{MARKS['act']} at least {counts.lost:,} lost" if counts.lost else "",
        f"{MARKS['watch']} {label(shown.run.behind, 200)}" if shown.run.behind else "",
    ]
    return " · ".join(fact for fact in facts if fact)


def _why_held() -> str:
    """The action of the reader that resumes updates."""
    if paused():
        return "Updates are paused until you resume."
    return "Updates are paused while something is selected. Clear the selection to go on."


def deselect() -> None:
    """Has the next drawing show the newest commit, with no row selected."""
    show_newest()
    st.session_state["_shows"] = int(st.session_state.get("_shows", 0)) + 1


def _toggle() -> None:
    st.session_state["_paused"] = not paused()


def _drawn_page() -> DrawnPage:
    page = st.session_state.get("_drawn")
    return page if isinstance(page, DrawnPage) else DrawnPage()


def _is_selection(value: object) -> bool:
    """True if a widget's value is a non-empty selection in a table."""
    chosen = value.get("selection") if isinstance(value, dict) else None
    return isinstance(chosen, dict) and any(bool(part) for part in chosen.values())
