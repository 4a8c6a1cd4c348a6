"""The background jobs of the server, shared by all sessions."""

import streamlit as st

from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.files.cache_folder import cache_folder

from ...pages.jobs import Jobs


@st.cache_resource(show_spinner=False)
def jobs() -> Jobs:
    """The jobs of this server."""
    return Jobs(Cache(cache_folder()))
