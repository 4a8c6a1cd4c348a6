"""Facts side by side on a page."""

from collections.abc import Iterable

import streamlit as st

from ...figures.html.fact_cards import Fact
from ...figures.html.fact_cards import fact_cards as html_of
from .charts import appearance


def fact_cards(facts: Iterable[Fact], *, narrowest: int = 150) -> None:
    """Draws a card for each fact: name, value, meaning. narrowest: the least width of a card, in pixels."""
    st.html(html_of(facts, narrowest=narrowest, theme=appearance()))
