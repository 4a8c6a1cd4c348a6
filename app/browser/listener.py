"""The script that listens in the browser, and the values that the page gives it; see listener.js.

It reports a narrow window: Plotly breaks no line, so the page is drawn anew for it. It listens to `?`, `[`, `]` and `g`:
Streamlit's shortcuts know letters and digits only. It completes the address: Streamlit leaves out choices made for the
reader, such as the worst step, and a link without them leads elsewhere once the run has grown. It leaves one entry in the
browser's history per visited page. It tells the token of a text that was clicked, and the chart
whose numbers are asked for, and the page whose letter was typed after `g`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st
from streamlit.components import v2

from .library import PLACE
from .scripts import script

NUMBERS = "_numbers"
"""The state that holds the key of the chart whose numbers are shown."""


def page_begins(path: str, topic: str) -> None:
    """Notes that the page of this path, in the URL, is about to be drawn; what was drawn before is forgotten.

    topic: path of the entry of the navigation that the page belongs to.
    """
    if st.session_state.get("_path") != path:
        hide_numbers()
    st.session_state["_path"], st.session_state["_topic"] = path, topic
    st.session_state["_drawn_narrow"] = is_narrow()
    body_begins({})


def body_begins(made: Mapping[str, str]) -> None:
    """Notes that all below the header is about to be drawn. made: the choices that the header made for the reader."""
    st.session_state["_address"] = dict(made)
    st.session_state["_choose_token"] = None


def made_choices() -> dict[str, str]:
    """The choices made for the reader so far."""
    return dict(st.session_state["_address"])


def in_address(key: str, value: object) -> None:
    """Notes a choice that the address must tell, also where it was made for the reader. key: of its widget."""
    st.session_state["_address"][key] = str(value)


def address() -> dict[str, list[str]]:
    """The query of the address of the drawn page: the reader's choices, then those made for the reader."""
    chosen = {key: st.query_params.get_all(key) for key in st.query_params}
    made = st.session_state["_address"]
    return chosen | {key: [value] for key, value in made.items() if key not in chosen}


def state() -> str:
    """The drawn page and its choices as text. A zoom is kept as long as this text stays the same."""
    return f"{st.session_state['_path']}?{sorted(each for each in address().items() if each[0] != 'zoom')}"


def is_narrow() -> bool:
    """True if the window is too narrow for charts side by side; False until the browser has reported its width."""
    return st.session_state.get("_narrow") is True


@st.fragment
def listen(
    pages: Mapping[str, str], titles: Mapping[str, str], show_numbers: Callable[[str], None], go: Callable[[str], None]
) -> None:
    """Puts the script on the page; below all that is drawn, for it has a place of its own there.

    pages: letter that follows `g` -> path of the page that it opens; the path of the first page is empty. titles: path -> the
    words behind a link to the page, as a title: Streamlit's own tooltips lie over the tabs below. show_numbers: called with the
    key of the chart whose numbers are asked for, as long as they are. go: called with the path of a page that the navigation
    does not list, when its letter was typed.
    """
    if is_narrow() != st.session_state["_drawn_narrow"] or st.session_state.pop("_token_clicked", False):
        st.rerun()
    path, address = st.session_state["_path"], st.session_state["_address"]
    data = {
        "library": PLACE, "narrow": is_narrow(), "address": address, "path": path, "topic": st.session_state["_topic"],
        "pages": dict(pages), "titles": dict(titles),
    }  # fmt: skip
    _component()(
        key="listener",
        data=data,
        on_narrow_change=_note_narrow,
        on_token_change=_note_token,
        on_numbers_change=_note_numbers,
        on_page_change=lambda: go(st.session_state["listener"].page),
        height=0,
    )
    if key := st.session_state.get(NUMBERS):
        show_numbers(key)


@st.cache_resource(show_spinner=False)
def _component() -> Any:
    return v2.component("ratioscope_listener", js=script("library.js", "listener.js"))


def hide_numbers() -> None:
    st.session_state.pop(NUMBERS, None)


def listen_to_tokens(choose: Callable[[int], None]) -> None:
    """Has `choose` called with the position of a token of the text on this page when it is clicked."""
    st.session_state["_choose_token"] = choose


def _note_numbers() -> None:
    st.session_state[NUMBERS] = st.session_state["listener"].numbers


def _note_token() -> None:
    token, choose = st.session_state["listener"].token, st.session_state.get("_choose_token")
    if isinstance(token, int) and callable(choose):
        choose(token)
        st.session_state["_token_clicked"] = True


def _note_narrow() -> None:
    st.session_state["_narrow"] = st.session_state["listener"].narrow is True


def link() -> None:
    """Shows the address of this page and a button that copies it. It must lie in a drawer: it is made when the drawer opens."""
    _link_component()(key="page_link", data={"made": made_choices()})


@st.cache_resource(show_spinner=False)
def _link_component() -> Any:
    return v2.component("ratioscope_link", js=script("copied.js", "link.js"), isolate_styles=False)
