"""One sequence as JSON, to paste into an issue or to load again."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
import streamlit as st

from ratioscope.ingest.rows.sequence_json import SNIPPET, sequence_json

from ....browser.code import code
from ....presentation.digits import count

AROUND = 20
"""Tokens on either side of the chosen one."""
SHOWN = 40_000
"""Most characters of a document that is shown for copying; a longer one can be downloaded."""


def json_drawer(
    tokens: pl.DataFrame, about: Mapping[str, Any], at: int | None, prompt: Callable[[], list[int] | None]
) -> None:
    """A closed drawer with the document of the tokens around `at`, or of all of them. prompt: reads the prompt's tokens."""
    drawer = st.expander(
        "JSON of this sequence, to paste into an issue", key="json", on_change="rerun", bind="query-params"
    )
    if not drawer.open:
        return
    with drawer:
        with st.container(horizontal=True, vertical_alignment="center"):
            part = st.segmented_control(
                "part", ["around the token", "whole"], default="around the token", required=True, key="json_part",
                label_visibility="collapsed",
            )  # fmt: skip
            texts = st.toggle("with the text of the tokens and the prompt", key="json_text")
        first = 0 if part == "whole" else max(0, (at or 0) - AROUND)
        most = None if part == "whole" else 2 * AROUND + 1
        document = sequence_json(
            tokens, about, first=first, most=most, texts=texts, prompt_ids=prompt() if texts else None
        )
        st.download_button(
            "download sequence.json", document, "sequence.json", "application/json", on_click="ignore", key="json_file"
        )
        if len(document) <= SHOWN:
            code(document, "json", language="json", tallest=260)
        else:
            st.caption(f"{count(len(document), 'character')}: too long to show; download it.")
        st.caption("Recompute the metrics from the file:")
        code(SNIPPET, "snippet", language="python")
