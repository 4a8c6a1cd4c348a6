"""The drawer for sharing a page: its link, its numbers, its charts."""

import shlex
from functools import partial
from urllib.parse import urlsplit

import streamlit as st

from ...browser.code import code
from ...browser.link import link
from ...presentation.run_names import typed_path
from ..model.export import PageContents, html_of, json_of, zip_of
from .charts import IMAGES, appearance

OWN = ("127.0.0.1", "localhost", "::1")
ONLY_HERE = " It works on this machine only: to others, 127.0.0.1 is their own. Send them a file of those below."


def share(shown: PageContents, place: str) -> None:
    """A drawer with the link of the page, and with its downloads, which are made on request.

    place: the path or the address of the run, if it has steps to send as files.
    """
    with st.popover("", icon=":material/ios_share:", help="link and downloads", type="tertiary", key="share"):
        with st.container(key="link"):
            own = urlsplit(st.context.url or "").hostname in (None, *OWN)
            st.caption("This link opens exactly this view." + (ONLY_HERE if own else ""))
            link()
        _downloads(shown)
        if place:
            st.caption("This command writes the pages of the run as one file to send, which works without a server:")
            code(f"ratioscope bundle {shlex.quote(typed_path(place))} -o pages.html", "bundle_command")


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
