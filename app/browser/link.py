"""The link of the page that a reader sees, as the browser knows it."""

from typing import Any

import streamlit as st
from streamlit.components import v2

from .listener import made_choices
from .scripts import script


def link() -> None:
    """Shows the address of this page and a button that copies it. It must lie in a drawer: it is made when the drawer opens."""
    _component()(key="page_link", data={"made": made_choices()})


@st.cache_resource(show_spinner=False)
def _component() -> Any:
    return v2.component("ratioscope_link", js=script("copied.js", "link.js"), isolate_styles=False)
