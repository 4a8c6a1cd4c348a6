"""The buttons, with keys, for the recorded step before or after the shown one."""

import streamlit as st

from ...pages.view import View

LATER, EARLIER = "shift+j", "shift+k"
"""Shortcuts beside `]` and `[`, which browser/listener.js handles because Streamlit's shortcuts know letters and digits only."""


def step_buttons(view: View, step: int) -> None:
    """Two buttons for the recorded steps before and after this one; also by `[` and `]`."""
    steps = view.steps
    at = steps.index(step)
    _button("‹", "step_before", EARLIER, steps[max(0, at - 1)], step)
    _button("›", "step_after", LATER, steps[min(len(steps) - 1, at + 1)], step)


def _button(mark: str, key: str, shortcut: str, to: int, step: int) -> None:
    about = f"{key.replace('_', ' ')}: step {to}" if to != step else "there is no further step"
    st.button(mark, key=key, shortcut=shortcut, on_click=_go, args=(to,), disabled=to == step, help=about)


def _go(step: int) -> None:
    st.session_state["step"] = step
