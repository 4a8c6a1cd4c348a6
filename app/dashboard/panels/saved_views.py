"""The menu of saved views: a name for the present page and its choices, kept in the run; each is a link."""

from collections.abc import Callable, Collection
from urllib.parse import urlencode

import streamlit as st

from ratioscope.collectors.writing.remark import write_remark
from ratioscope.errors import ConfigError, SourceError
from ratioscope.ingest.analysis.saved_views import LONGEST_NAME, SavedView, saved_views, view_to_remove, view_to_save
from ratioscope.layout import VIEW

from ...browser.listener import address, made_choices
from ...pages.view import View
from ...presentation.escape import streamlit_label as label
from ..model.live import show_newest

SAID = "_view_said"
OF_HERE = ("run", "token")
"""Keys of an address that a view does not keep: the run's name may be another where the view is opened."""


def views_button(view: View, pages: Collection[str]) -> None:
    """A drawer with the saved views of the run, and a field that saves the present one. pages: the paths that a view may have."""
    known = [each for each in view.of(saved_views) if each.page in pages]
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
        st.button("keep in the run", key="view_keep", on_click=_keep, args=(view,))
        if said := st.session_state.pop(SAID, ""):
            st.caption(label(said, 500))


def _link(each: SavedView) -> str:
    """The address of the view on this server, relative to any page of it."""
    query = {"run": made_choices()["run"]} | {key: values for key, values in each.choices if key not in OF_HERE}
    return f"./{each.page}?{urlencode(query, doseq=True)}"


def _keep(view: View) -> None:
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
        st.session_state[SAID] = f"The view was not kept: {error}"
        return False
    st.session_state[SAID] = done
    show_newest()
    return True
