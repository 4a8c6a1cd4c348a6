"""From one page to another with the view kept. Choices are widgets bound to the URL, so a choice made here is a query there."""

import streamlit as st


def go_to(path: str, **choices: str | int | list[str]) -> None:
    """Leave for another page of the dashboard, with these choices made there; those of this page stay as they are.

    A choice must not be one of this page: Streamlit lets nobody but the widget itself set what is bound to it.
    """
    query = {name: choice if isinstance(choice, list) else str(choice) for name, choice in choices.items()}
    st.switch_page(st.Page(_elsewhere, url_path=path), query_params=query)


def _elsewhere() -> None:
    """Stands for the page's own function: Streamlit finds a page by its path alone."""
