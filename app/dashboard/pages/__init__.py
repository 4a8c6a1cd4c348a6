"""The pages of the dashboard: those of every face, as Streamlit draws them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ...pages.pages import PAGES as SHARED
from ...pages.pages import Page as SharedPage
from ...pages.pages import ScopeChoice
from ...pages.scope import Scope
from ...pages.view import CacheRequest, View
from ..blocks_drawn import drawn
from ..panels.charts import last_appearance


@dataclass(frozen=True)
class Page:
    """One page."""

    path: str
    """Its part of the URL."""
    title: str
    help: str
    """Tooltip in the navigation."""
    render: Callable[[Scope], None]
    """Draws the page for a scope."""
    choices: frozenset[ScopeChoice] = frozenset({"gap"})
    """Parts of a Scope that the page reads."""
    about: Literal["run", "runs"] = "run"
    """runs: the page is about all served runs. It is drawn even if the chosen run is unreadable or empty."""
    reads_tokens: bool = False
    """True if all that the page shows is read from tokens, of which a scalar log has none."""
    shows_empty: bool = False
    """True if the page has something to say of a run without a gap."""
    prefetch: Callable[[View], Iterable[CacheRequest]] = lambda _: ()
    """Frames and figures that the first visit needs; the server makes them while another page of the run is open."""


def _of(page: SharedPage) -> Page:
    return Page(
        page.path,
        page.title,
        page.help,
        partial(drawn, page.blocks),
        page.choices,
        reads_tokens=page.reads_tokens,
        shows_empty=page.shows_empty,
        prefetch=lambda view: page.ahead(view, last_appearance()),
        about="runs" if page.about == "runs" else "run",
    )


PAGES = tuple(map(_of, SHARED))
