"""A tour of every page of the dashboard, wide and narrow: what was seen is kept, and many tests read it.

A page that is opened costs half a second of a processor and more, reading it costs nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ratioscope.app.pages.pages import PAGES
from support.browser import Chromium, Opened, Theme

WIDE, NARROW = 1280, 400
FACTS = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const main = document.querySelector("[data-testid=stMain]"), root = document.documentElement;
  return {
    exceptions: all("[data-testid=stException]").map(box => box.innerText),
    alarms: all("[data-testid=stAlertContentError]").map(box => box.innerText),
    hints: all("[data-testid=stAlertContentInfo]").map(box => box.innerText),
    headings: all("h1, h2, h3, h4").map(heading => heading.innerText),
    labels: all(".rs-chart, [data-testid=stDataFrame]").map(
      shown => (shown.closest("[aria-label]") ?? shown.querySelector("[aria-label]"))?.ariaLabel ?? ""),
    background: getComputedStyle(document.querySelector("[data-testid=stApp]")).backgroundColor,
    language: root.lang,
    sideways: Math.max(root.scrollWidth - root.clientWidth, main.scrollWidth - innerWidth),
    hacked: window.hacked ?? null,
  };
}"""

OUTSIDE = """() => [...document.querySelectorAll(".js-plotly-plot")].flatMap(plot => {
  const sheet = plot.getBoundingClientRect()
  return [...plot.querySelectorAll(".g-gtitle text")].filter(text => text.getBoundingClientRect().right > sheet.right + 1)
    .map(text => text.textContent)
})"""
"""Notes that run out of their sheet."""
OPEN = "() => document.querySelectorAll('details:not([open]) > summary').forEach(drawer => drawer.click())"
"""The browser measures nothing anew within a closed drawer: a text there keeps the width of its first drawing."""


@dataclass(frozen=True)
class Sight:
    """One page in one window, once it was settled."""

    title: str
    """The page's name in the navigation."""
    width: int
    """The window's, in pixels."""
    first: bool
    """True if the page was opened in this width, and not in the other before."""
    exceptions: list[str]
    """Texts of boxes with a traceback."""
    alarms: list[str]
    """Texts of error boxes."""
    hints: list[str]
    """Texts of boxes that tell what is missing."""
    headings: list[str]
    """Texts of headings."""
    labels: list[str]
    """The text beside each chart and table for those who do not see it; empty where there is none."""
    background: str
    """The page's colour, as CSS."""
    language: str
    """The document's language."""
    sideways: int
    """Pixels by which the page, or its main part, is wider than the window."""
    hacked: Any
    """What a script in the data has left behind; None where none ran."""
    errors: list[str]
    """Errors of the console up to here."""
    foreign: list[str]
    """Requests to anything but this machine up to here."""
    more: dict[str, list[str]] = field(default_factory=dict)
    """What a closer look found, by its name."""


Look = Callable[[Opened, Sight], None]
"""A closer look at a page that was just seen; it puts what it found into `more`, and may open drawers."""


def toured(browser: Chromium, url: str, theme: Theme, look: Look | None = None) -> list[Sight]:
    """Every page from this URL on, wide and narrow. Each is opened in the width that the page before it was left in.

    A tour in the light begins wide, one in the dark narrow: together they open each page in both widths.
    """
    widths, seen = {"light": (WIDE, NARROW), "dark": (NARROW, WIDE)}[theme], list[Sight]()
    opened = browser.visit(url, theme=theme, width=widths[0])
    for card in PAGES:
        opened.go_to(card.title)
        for width in widths:
            if width != widths[0]:
                opened.resize(width)
            seen.append(_sight(opened, card.title, width, first=width == widths[0]))
            if look:
                look(opened, seen[-1])
        widths = widths[::-1]
    opened.page.close()
    return seen


def _sight(opened: Opened, title: str, width: int, *, first: bool) -> Sight:
    opened.computed()
    facts = opened.page.evaluate(FACTS)
    return Sight(title, width, first, errors=list(opened.errors), foreign=list(opened.foreign), **facts)


def notes_outside(opened: Opened) -> list[str]:
    """Notes under the titles of charts that run out of their sheet, once all drawers are open and all charts drawn."""
    opened.page.evaluate(OPEN)
    opened.page.wait_for_function(f"() => ({OUTSIDE})().length === 0")
    opened.settled()
    opened.whole()
    found: list[str] = opened.page.evaluate(OUTSIDE)
    return found
