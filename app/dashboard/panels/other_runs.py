"""The other runs on a page. A run that cannot be opened is left out, with a warning."""

from collections.abc import Iterable

import streamlit as st

from ratioscope.errors import RatioscopeError

from ...pages.view import View
from ...presentation.escape import streamlit_label as label
from ..model.live import beside
from ..model.served_runs import Served


def runs_beside(served_runs: Served, names: Iterable[str]) -> dict[str, View]:
    """Name -> run, for the runs that can be read."""
    opened = {}
    for name in names:
        try:
            opened[name] = beside(served_runs.runs[name])
        except (RatioscopeError, KeyError) as error:
            st.warning(f"{label(name, 80)} is left out: {label(str(error), 300)}", icon=":material/warning:")
    return opened
