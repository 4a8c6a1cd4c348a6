"""The drawer for sharing a page: its link, its numbers, its charts.

The keyboard: what each key does, in a dialog that `?` opens.
The drawer for a note on a step. The run keeps the note, so every chart over steps and the report show it to everybody.
The menu of saved views: a name for the present page and its choices, kept in the run; each is a link.
"""

import shlex
from collections.abc import Callable, Collection
from functools import partial
from urllib.parse import urlencode, urlsplit

import streamlit as st

from ratioscope.collectors.writing.offline import write_remark
from ratioscope.errors import ConfigError, SourceError
from ratioscope.ingest.analysis.saved_views import LONGEST_NAME, SavedView, saved_views, view_to_remove, view_to_save
from ratioscope.layout import NOTE, VIEW

from ...browser.code import code
from ...browser.listener import address, link, made_choices
from ...pages.pages import LETTERS
from ...pages.view import View
from ...presentation.escape import streamlit_label as label
from ...presentation.run_names import typed_path
from ..model.export import PageContents, html_of, json_of, zip_of
from ..model.live import show_newest
from .charts import IMAGES, appearance

OWN = ("127.0.0.1", "localhost", "::1")
ONLY_HERE = "It works on this machine only: to others, 127.0.0.1 is their own. Send them a file of those below."
ELSEWHERE = "It opens for whoever reaches {} over the network and has signed in with this server's token."

KEYS = (
    ("p", "pause or resume updates while the run grows"),
    ("j", "next sequence, on Tokens; a row down, on Sequences"),
    ("k", "previous sequence, on Tokens; a row up, on Sequences"),
    ("Enter", "opens the marked sequence, on Sequences"),
    ("n", "worst token, then the next worse, on Tokens; N goes back"),
    ("]", "the recorded step after this one, also J"),
    ("[", "the recorded step before this one, also K"),
    ("?", "this list"),
    ("r", "redraw the page"),
    ("g, then a letter", f"another page: {', '.join(f'{letter} {path}' for letter, path in LETTERS.items())}"),
    ("← and →", "from point to point of a chart that Tab has reached; Enter opens the point"),
    ("Tab", "from one control to the next; Enter or Space uses it, Escape closes a list"),
)

LONGEST = 2000
LAST = (1 << 53) - 1
"""The largest step that a field of a page can hold. A run with larger ones takes notes by `ratioscope note` only."""
SAID = "_note_said"

SAVED = "_view_said"
OF_HERE = ("run", "token")
"""Keys of an address that a view does not keep: the run's name may be another where the view is opened."""


def share(shown: PageContents, place: str) -> None:
    """A drawer with the link of the page, and with its downloads, which are made on request.

    place: the path or the address of the run, if it has steps to send as files.
    """
    with st.popover("", icon=":material/ios_share:", help="link and downloads", type="tertiary", key="share"):
        with st.container(key="link"):
            st.caption(
                f"This link opens exactly this view. {label(whom(urlsplit(st.context.url or '').hostname), 300)}"
            )
            link()
        _downloads(shown)
        if place:
            st.caption("This command writes the pages of the run as one file to send, which works without a server:")
            code(f"ratioscope bundle {shlex.quote(typed_path(place))} -o pages.html", "bundle_command")


def whom(host: str | None) -> str:
    """The sentence on who can open a link of this server. host: as the reader's address has it."""
    return ONLY_HERE if host in (None, *OWN) else ELSEWHERE.format(host)


def _downloads(shown: PageContents) -> None:
    theme = appearance()
    title = f"{shown.run} · {shown.page}"
    files = (
        ("all numbers, CSV", ".zip", "application/zip", partial(zip_of, shown.tables, shown.file)),
        ("all numbers, JSON", ".json", "application/json", partial(json_of, shown.tables)),
        ("all charts, HTML", ".html", "text/html", lambda: html_of(title, list(shown.charts.values()), theme)),
    )
    st.caption("Download this page. The HTML file works without a network.")
    with st.container(horizontal=True, gap="xsmall"):
        for words, ending, kind, made in files:
            name = shown.file(ending=ending)
            st.download_button(words, made, name, kind, key=f"share{ending}", on_click="ignore", width="content")
    st.segmented_control(
        "format of a chart's camera button", IMAGES, default=IMAGES[0], required=True, key="image", bind="query-params"
    )


def keys_button() -> None:
    """A button for the list of keys; `?` presses it, see browser/listener.py."""
    st.button("", icon=":material/keyboard:", key="keys", help="keys: ?", type="tertiary", on_click=_ask)
    if st.session_state.pop("_keys", False):
        _listed()


def _ask() -> None:
    st.session_state["_keys"] = True


@st.dialog("Keyboard")
def _listed() -> None:
    st.markdown("\n".join(("| key | does |", "| --- | --- |", *(f"| `{key}` | {does} |" for key, does in KEYS))))


def note_button(view: View) -> None:
    """A drawer with a field for the words, one for the step, and a button that writes them into the run."""
    newest = max(view.run.steps, default=0)
    if newest > LAST:
        return
    with st.popover("", icon=":material/edit_note:", help="note on a step", type="tertiary", key="note"):
        st.caption("The run keeps a note. Every chart over steps marks it, and the report lists it.")
        with st.form("note_form", border=False):  # Enter in either field keeps the note
            st.text_input(
                "note", key="note_text", max_chars=LONGEST, placeholder="what happened, e.g. restarted node 7"
            )
            st.number_input("at step", min_value=0, max_value=LAST, value=newest, key="note_step", width=160)
            st.form_submit_button("keep in the run", key="note_keep", on_click=_keep, args=(view.path,))
        if said := st.session_state.pop(SAID, ""):
            st.caption(label(said, 500))


def _keep(path: str) -> None:
    words, step = " ".join(str(st.session_state["note_text"]).split()), int(st.session_state["note_step"])
    if not words:
        st.session_state[SAID] = "A note needs words."
        return
    try:
        write_remark(path, NOTE, step, words)
    except SourceError as error:
        st.session_state[SAID] = f"The note was not kept: {error}"
        return
    st.session_state[SAID] = f"Noted at step {step}."
    st.session_state["note_text"] = ""
    show_newest()


def views_button(view: View, pages: Collection[str], moved: Collection[str]) -> None:
    """A drawer with the saved views of the run, and a field that saves the present one.

    pages: the paths that a view may have. moved: those that older views may have, which lead there too.
    """
    known = [each for each in view.of(saved_views) if each.page in pages or each.page in moved]
    title = f"{len(known)}" if known else ""
    with st.popover(title, icon=":material/bookmarks:", help="saved views", type="tertiary", key="views"):
        st.caption("A saved view is this page with its filters and choices. The run keeps it for every reader.")
        for place, each in enumerate(known):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.markdown(
                    f"[{label(each.name, LONGEST_NAME)}]({_link(each)}) · {each.page or 'overview'}", width="stretch"
                )
                st.button(
                    "",
                    icon=":material/close:",
                    key=f"view_off_{place}",
                    help="remove this view",
                    type="tertiary",
                    on_click=_remove,
                    args=(view, each.name),
                )
        st.text_input(
            "name of this view", key="view_name", max_chars=LONGEST_NAME, placeholder="e.g. stale tokens of node 7"
        )
        st.button("keep in the run", key="view_keep", on_click=_keep_view, args=(view,))
        if said := st.session_state.pop(SAVED, ""):
            st.caption(label(said, 500))


def _link(each: SavedView) -> str:
    """The address of the view on this server, relative to any page of it."""
    query = {"run": made_choices()["run"]} | {key: values for key, values in each.choices if key not in OF_HERE}
    return f"./{each.page}?{urlencode(query, doseq=True)}"


def _keep_view(view: View) -> None:
    name, page = str(st.session_state["view_name"]), str(st.session_state["_path"])
    query = {key: values for key, values in address().items() if key not in OF_HERE}
    if _change(view, lambda: view_to_save(view.run, name, page, query), f"Saved as {' '.join(name.split())}."):
        st.session_state["view_name"] = ""


def _remove(view: View, name: str) -> None:
    _change(view, lambda: view_to_remove(view.run, name), "Removed.")


def _change(view: View, change: Callable[[], SavedView], done: str) -> bool:
    """Writes the change into the run; False, with the reason on the page, where that fails."""
    try:
        view.run.refresh()
        write_remark(view.path, VIEW, 0, change().note)
    except (ConfigError, SourceError) as error:
        st.session_state[SAVED] = f"The view was not kept: {error}"
        return False
    st.session_state[SAVED] = done
    show_newest()
    return True
