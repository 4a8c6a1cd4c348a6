"""Pickers of the Where page: the metric, the slice of the heat map, and the slices to measure from token rows."""

from collections.abc import Sequence

import streamlit as st

from ....presentation.metric_places import in_words, names_at
from ....presentation.slice_names import BY_NAME, UNFILTERED, SliceWords
from ...panels.choices import dropdown, words_of_pills
from ...panels.layout import control_row

NOWHERE = "no heat map"


def metric_picker(gap: str) -> str:
    about = "The metric that the dots show for each bucket."
    return dropdown("metric", names_at("bars", gap), "metric", width=340, help=about, shown=in_words)


def heat_picker(offered: Sequence[SliceWords]) -> str | None:
    names = [NOWHERE, *(words.name for words in offered if words.name not in UNFILTERED)]
    about = "Draws a heat map of a slice over the steps. A slice that needs token rows reads those of all steps."
    chosen = dropdown("over the steps", names, "heat", width=300, help=about, shown=_title)
    return None if chosen == NOWHERE else chosen


def measured_picker(offered: Sequence[SliceWords]) -> list[str]:
    """The slices that the reader chose to measure."""
    if not offered:
        return []
    names = [words.name for words in offered]
    with control_row("measured"):
        chosen = st.pills(
            "measure from token rows, by",
            format_func=_title,
            **words_of_pills(names, "measured"),
            wrap=True,
            help="Statistics do not contain these slices. The token rows are read once, and the result is kept.",
        )
        if set(names) - set(chosen):
            st.button("measure all", on_click=_measure_all, args=(names,), width="content")
    return [name for name in chosen if name in names]


def _title(name: str) -> str:
    return BY_NAME[name].title if name in BY_NAME else name


def _measure_all(names: list[str]) -> None:
    st.session_state["measured"] = names
