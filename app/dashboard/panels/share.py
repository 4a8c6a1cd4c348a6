"""The drawer for sharing a page: its link, its numbers, its charts."""

from functools import partial

import streamlit as st

from ...browser.code import code
from ...browser.link import link
from ..model.export import PageContents, html_of, json_of, zip_of
from .charts import IMAGES, appearance


def share(shown: PageContents, *, has_steps: bool) -> None:
    """A drawer with the link of the page, and with its downloads, which are made on request.

    has_steps: whether the run has steps to send as files.
    """
    with st.popover("", icon=":material/ios_share:", help="link and downloads", type="tertiary", key="share"):
        with st.container(key="link"):
            st.caption("This link opens exactly this view on this server.")
            link()
        _downloads(shown)
        if has_steps:
            st.caption("This command writes all pages of the run as one file to send, which works without a server:")
            code("ratioscope bundle RUN -o pages.html", "bundle_command")


def _downloads(shown: PageContents) -> None:
    theme = appearance()
    title = f"{shown.run} · {shown.page}"
    files = (
        ("all numbers, CSV", ".zip", "application/zip", partial(zip_of, shown.tables, shown.file)),
        ("all numbers, JSON", ".json", "application/json", partial(json_of, shown.tables)),
        ("all charts, HTML", ".html", "text/html", lambda: html_of(title, list(shown.charts.values()), theme)),
    )
    st.caption("Download this page. The HTML file works without a network.")
    with st.container(horizontal=True, gap="xsmall"):
        for words, ending, kind, made in files:
            name = shown.file(ending=ending)
            st.download_button(words, made, name, kind, key=f"share{ending}", on_click="ignore", width="content")
    st.segmented_control(
        "format of a chart's camera button", IMAGES, default=IMAGES[0], required=True, key="image", bind="query-params"
    )
