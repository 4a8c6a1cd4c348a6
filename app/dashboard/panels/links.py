"""Links from one page to another that keep the choices. Choices are widgets bound to the URL: a link has them as a query."""

import streamlit as st

IN_HEADER = ("run", "gap", "steps", "only", "baseline", "logx", "with")
"""The choices in the header, by their keys in the session."""


def go_to(path: str, **choices: str | int | list[str]) -> None:
    """Goes to another page of the dashboard with these choices. Shared choices of this page stay as they are.

    A choice must not be one of this page, because Streamlit lets only the widget set its bound value.
    """
    query = {name: choice if isinstance(choice, list) else str(choice) for name, choice in choices.items()}
    st.switch_page(st.Page(_elsewhere, url_path=path), query_params=query)


def _elsewhere() -> None:
    """A placeholder for the page's function: Streamlit finds a page by its path alone."""
