"""The layout of a page: rows of controls, columns and grids. Each has a key.

A place without a key is known by its number. When something appears above it, the browser takes it for another place: it draws
its charts anew and, as the old place goes after the new one has come, forgets that its controls are in the URL.
"""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator


def control_row(key: str) -> DeltaGenerator:
    """A row of controls, on one line where there is room."""
    return st.container(horizontal=True, vertical_alignment="bottom", key=f"{key}_row")


def columns(number: int, key: str) -> list[DeltaGenerator]:
    """Columns beside each other, each filled by itself; below each other in a narrow window."""
    with st.container(key=f"{key}_columns"):
        return st.columns(number, gap="small")


def cells(number: int, key: str) -> list[DeltaGenerator]:
    """Places for so many charts, two beside each other where there is room.

    All are made before any is filled: a chart that is alone in its row so far is drawn at full width, and then again.
    """
    with st.grid(2, min_column_width=420, gap="small", key=f"{key}_cells"):
        return [st.container() for _ in range(number)]
