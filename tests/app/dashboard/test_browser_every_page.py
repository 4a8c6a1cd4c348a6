"""Every page, wide and narrow, in a real browser. One tour of a run is what all tests here read.

A real run is toured in both themes, and one whose every text is an attack. What pages say of the other edge runs is proved
without a browser, in test_pages.py.
"""

from collections.abc import Callable
from functools import cache
from typing import Literal

import pytest
from support.axe import grave
from support.browser import Chromium, Dashboard, Opened, Theme, chromium
from support.tour import NARROW, WIDE, Sight, notes_outside, toured

from ratioscope.app.pages.pages import PAGES
from ratioscope.app.presentation.theme import THEMES

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")

APPEARANCES: list[tuple[str, Theme]] = [("stale", "light"), ("stale", "dark"), ("hostile", "light")]
THEME: tuple[Theme, ...] = ("light", "dark")
NOTED = ("Verdict", "Distributions", "Fix", "Where", "Staleness and settings", "Alerts", "Compare")
"""Pages with notes under the titles of their charts; Charts over the steps are opened with its choices in test_narrow.py."""
STILL = ("Verdict", "Tokens", "All runs")
"""Pages that together hold every kind of element that could move."""
OURS = "[...document.querySelectorAll('[class*=rs-], .js-plotly-plot')].map(element => element.tagName)"
MOVING = """() => [...document.querySelectorAll("[class*=rs-], [class*=rs-] *, .js-plotly-plot, .js-plotly-plot *")].filter(e => {
  const style = getComputedStyle(e)
  const lasts = (style.transitionDuration + "," + style.animationDuration).split(",").some(time => parseFloat(time) > 0)
  return lasts && !e.closest(".modebar")
}).map(e => e.outerHTML.slice(0, 200))"""
"""Elements that our HTML and our charts hold and that would move; but for Plotly's buttons, which fade in."""
CLOSE = "[data-testid=stWidgetLabel], .st-key-newest button, .st-key-statements button"
UNEVEN = f"""() => [...document.querySelectorAll("{CLOSE}")].filter(e =>
  e.getBoundingClientRect().height > 30).map(e => e.innerText)"""
"""Labels that are higher than a line, so that they stand above their neighbours', and links that stand far apart."""
Tour = Callable[[str, Theme], list[Sight]]


@pytest.fixture(scope="module")
def tours(dashboard: Dashboard) -> Callable[[Chromium, str, Theme], list[Sight]]:
    """The sights of the tour of a run in a theme. Nobody writes into them."""
    looks = {"stale": _look_for_readers, "hostile": _touch_everything}

    @cache
    def tour(browser: Chromium, run: str, theme: Theme) -> list[Sight]:
        return toured(browser, f"{dashboard.url}/?run={run}", theme, looks.get(run))

    return tour


@pytest.fixture
def tour(tours: Callable[[Chromium, str, Theme], list[Sight]], browser: Chromium) -> Tour:
    return lambda run, theme: tours(browser, run, theme)


def _look_for_readers(opened: Opened, sight: Sight) -> None:
    """A dark page differs in its colours alone: of a wide one only the contrast is looked at."""
    is_light = sight.background == _rgb(THEMES["light"].background)
    if sight.width == WIDE:
        sight.more["grave"] = grave(opened.page, rules=() if is_light else ("color-contrast",))
        if is_light:
            sight.more["moving"] = _moving(opened) if sight.title in STILL else []
            sight.more["uneven"] = opened.page.evaluate(UNEVEN)
            sight.more["ours"] = opened.page.evaluate(OURS)
    elif sight.first:
        sight.more["grave when narrow"] = grave(opened.page)
        if sight.title in NOTED:
            sight.more["outside"] = notes_outside(opened)


def _moving(opened: Opened) -> list[str]:
    """Also where the reader has asked for less motion: what moves is Streamlit's (its status icon, its skeletons)."""
    page, found = opened.page, list[str]()
    motions: tuple[Literal["no-preference", "reduce"], ...] = ("no-preference", "reduce")
    for motion in motions:
        page.emulate_media(reduced_motion=motion)
        found += page.evaluate(MOVING)
    page.emulate_media(reduced_motion="null")
    return found


def _touch_everything(opened: Opened, sight: Sight) -> None:
    """Points at tokens and opens every drawer, as a reader of the data does."""
    if sight.width != WIDE:
        return
    for token in opened.page.locator(".rs-text i").all()[:12]:
        token.hover()
    for drawer in opened.page.locator("[data-testid=stExpander] summary").all():
        drawer.click()
        opened.settled()
    hacked = opened.page.evaluate("window.hacked")
    sight.more["touched"] = [*opened.foreign, *["hacked"] * (hacked is not None), *["exception"] * opened.exceptions]


@pytest.mark.parametrize(("run", "theme"), APPEARANCES)
def test_every_page_is_well_wide_and_narrow(tour: Tour, run: str, theme: Theme) -> None:
    sights = tour(run, theme)
    assert sorted((each.title, each.width) for each in sights) == sorted(
        (card.title, width) for card in PAGES for width in (WIDE, NARROW)
    )
    for each in sights:
        assert each.exceptions == [] and each.errors == [] and each.foreign == [], each
        assert not each.alarms and not each.hints, each
        assert each.background == _rgb(THEMES[theme].background)
        assert each.sideways <= 0, f"{each.title} scrolls sideways at {each.width} pixels"


def test_nothing_in_the_data_runs_or_is_fetched(tour: Tour) -> None:
    touched = {each.title: each.more["touched"] for each in tour("hostile", "light") if each.width == WIDE}
    assert touched == {card.title: [] for card in PAGES}
    assert all(each.hacked is None for each in tour("hostile", "light"))


@pytest.mark.parametrize("theme", THEME)
def test_no_page_of_the_dashboard_has_a_serious_violation(tour: Tour, theme: Theme) -> None:
    """axe-core's, of accessibility."""
    assert _more(tour("stale", theme), "grave") == {card.title: [] for card in PAGES}


def test_no_narrow_page_has_a_serious_violation(tour: Tour) -> None:
    """Each page is opened narrow in one of the two themes."""
    found = [_more(tour("stale", theme), "grave when narrow") for theme in THEME]
    assert found[0] | found[1] == {card.title: [] for card in PAGES}


@pytest.mark.parametrize("page", NOTED)
def test_no_note_runs_out_of_its_sheet(tour: Tour, page: str) -> None:
    """The page was opened narrow in one of the two themes."""
    assert [found[page] for theme in THEME if page in (found := _more(tour("stale", theme), "outside"))] == [[]]


def test_labels_stand_at_one_height_and_links_as_close_as_lines(tour: Tour) -> None:
    assert _more(tour("stale", "light"), "uneven") == {card.title: [] for card in PAGES}


@pytest.mark.parametrize("page", STILL)
def test_no_element_of_ours_moves_in_a_browser(tour: Tour, page: str) -> None:
    seen = tour("stale", "light")
    assert (_more(seen, "ours")[page] or page == "All runs") and _more(seen, "moving")[page] == []


def test_every_chart_and_table_has_words_for_those_who_do_not_see_it(tour: Tour) -> None:
    for each in tour("stale", "light"):
        assert each.language == "en"
        assert all(len(words) > 8 for words in each.labels), f"a chart or a table of {each.title} has no words"
    assert sum(len(each.labels) for each in tour("stale", "light")) > 60


def _more(sights: list[Sight], name: str) -> dict[str, list[str]]:
    return {each.title: each.more[name] for each in sights if name in each.more}


def _rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"
