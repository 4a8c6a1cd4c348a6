"""The keyboard: what each key does, in a dialog that `?` opens."""

import streamlit as st

from ...presentation.page_letters import LETTERS

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
