"""The layout of a page: rows of controls, columns and grids. Each has a key.

Streamlit knows a place without a key by its number. If something appears above it, the number changes: the browser redraws its
charts, and removes its controls from the URL, because the old place is deleted after the new one was added.
Links from one page to another that keep the choices. Choices are widgets bound to the URL: a link has them as a query.
"""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

IN_HEADER = ("run", "gap", "steps", "only", "baseline", "logx", "with")
"""The choices in the header, by their keys in the session."""


def control_row(key: str, *, labelled: bool = True) -> DeltaGenerator:
    """A row of controls, on one line where there is room. labelled: a control has a label above it."""
    return st.container(horizontal=True, vertical_alignment="bottom" if labelled else "center", key=f"{key}_row")


def cells(number: int, key: str, narrowest: int = 420) -> list[DeltaGenerator]:
    """Places for so many charts, two side by side if there is room. narrowest: the least width of one, in pixels.

    All are made before any is filled: a chart that is still alone in its row would be drawn at full width, and then again.
    """
    with st.grid(2, min_column_width=narrowest, gap="small", key=f"{key}_cells"):
        return [st.container(key=f"{key}_cell_{at}") for at in range(number)]


def go_to(path: str, **choices: str | int | list[str]) -> None:
    """Goes to another page of the dashboard with these choices. Shared choices of this page stay as they are.

    A choice must not be one of this page, because Streamlit lets only the widget set its bound value.
    """
    query = {name: choice if isinstance(choice, list) else str(choice) for name, choice in choices.items()}
    st.switch_page(st.Page(elsewhere, url_path=path), query_params=query)


def elsewhere() -> None:
    """A placeholder for the page's function: Streamlit finds a page by its path alone."""
