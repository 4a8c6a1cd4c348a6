"""The dashboard around its pages: which run, which gap, which page; and what to say where there is nothing to show."""

import json
import os
from collections.abc import Callable
from functools import partial

import streamlit as st

from ratioscope.errors import RatioscopeError

from .controls import gap_picker, run_picker
from .digits import count
from .escape import streamlit_label as label
from .pages import PAGES, Page
from .server import RUNS
from .view import View, view

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path d="M1 10 5 6l3 3 7-7" fill="none" '
    'stroke="#1f66b0" stroke-width="2"/><path d="M1 14h14" stroke="#c2540a" stroke-width="2"/></svg>'
)
EVERY = "2s"
"""Between two looks at a growing run; a look that finds nothing new reads a folder listing."""
ATTACH = """import ratioscope

ratioscope.attach(trainer, "runs/my-run")
trainer.train()"""


def main() -> None:
    """What runs on every interaction: the choices that all pages share, then the page.

    The choices are made outside the page, so that they keep their place in the URL when the page changes.
    """
    st.set_page_config(page_title="ratioscope", page_icon=ICON, layout="wide")
    draw: list[Callable[[], object]] = []
    pages = {
        card.path: st.Page(
            partial(_call_first, draw), title=card.title, url_path=card.path, help=card.help, default=card is PAGES[0]
        )
        for card in PAGES
    }
    current = st.navigation(list(pages.values()), position="top")
    card = next(card for card in PAGES if pages[card.path] is current)
    draw.append(prepared(card))
    current.run()


def _call_first(draw: list[Callable[[], object]]) -> None:
    draw[0]()


def prepared(card: Page) -> Callable[[], object]:
    """The header of a page, drawn; and what is left to draw: the page on the chosen run, or what is wrong with it."""
    paths = json.loads(os.environ.get(RUNS, "[]"))
    if not paths:
        return partial(st.info, "No run was given. Start the dashboard with one: `ratioscope dashboard RUN`")
    header = st.container(horizontal=True, vertical_alignment="center", gap="medium")
    with header:
        path = run_picker(paths)
    try:
        chosen = view(path)
    except RatioscopeError as error:
        return partial(st.error, label(str(error), 600))
    if not (chosen.run.steps and chosen.run.gaps):
        _watch(chosen)
        return _say_empty
    with header:
        gap = gap_picker(chosen.run.gaps) if card.by_gap else ""
        if chosen.is_growing:
            st.caption(f"live · {count(len(chosen.run.steps), 'step')}", width="content")
            _watch(chosen)
    return partial(card.render, chosen, gap)


@st.fragment(run_every=EVERY)
def _watch(shown: View) -> None:
    """Draws the page anew once more of the run is committed; what is chosen, zoomed and scrolled stays."""
    if view(shown.path).revision != shown.revision:
        st.rerun()


def _say_empty() -> None:
    """What to do about a run that has nothing to show yet."""
    st.info(
        "No step with the log-probs of two policies is on record yet. This page shows the run as soon as there is one."
    )
    st.code(ATTACH, language="python")
