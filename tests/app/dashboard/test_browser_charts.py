"""Charts in a real browser: drawn in place, what is on the screen first, as wide as their place."""

from typing import Any

import pytest
from playwright.sync_api import Route
from support.browser import Chromium, Dashboard, Opened, chromium, is_well

from ratioscope.app.browser.chart import SCRIPTS
from ratioscope.app.browser.library import PLACE
from ratioscope.app.browser.scripts import script

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
CHART = "document.querySelector('.st-key-chart_kl_k3 .rs-chart')"
RANGE = f"[...{CHART}._fullLayout.xaxis.range].map(Number)"
WATCH = """() => {
  window.drawn = [];
  const react = Plotly.react;
  Plotly.react = (div, ...given) => (drawn.push(div.getBoundingClientRect().top), react(div, ...given));
}"""

OVERTAKEN = """async text => {
  const { default: component } = await import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
  const place = document.body.appendChild(document.createElement("div"));
  const said = '{"alt": "", "state": "", "library": "/none.js"}\\n{"config": {}, "figure": {"data": [], "layout": {}}}';
  const bytes = new TextEncoder().encode(said);
  const data = text.includes("matchMedia") ? { narrow: false, address: {}, path: "", pages: {} } : bytes;
  const call = () => component({ parentElement: place, data, setTriggerValue() {}, setStateValue() {} });
  const pressed = () => {
    let clicks = 0;
    const button = document.querySelector(".st-key-keys button");
    button.click = () => (clicks += 1);
    document.dispatchEvent(new KeyboardEvent("keydown", { key: "?", bubbles: true }));
    delete button.click;
    return clicks;
  };
  const others = pressed();
  const first = call(), second = call();
  first();
  const between = [place.childElementCount, text.includes("matchMedia") ? pressed() - others : 1];
  second();
  return { between, after: [place.childElementCount, text.includes("matchMedia") ? pressed() - others : 0] };
}"""
OWN, DRAWER = ".rs-numbers", "[data-testid=stExpander] summary p"
"""A button of our own below a chart, and the words of a drawer."""


def test_another_choice_is_drawn_into_the_same_chart_without_the_zoom(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale")
    whole = opened.page.evaluate(RANGE)
    opened.page.evaluate(f"window.before = {CHART}")
    opened.zoom("chart_kl_k3")
    assert opened.page.evaluate(RANGE) != whole
    _choose(opened, "total")
    assert opened.page.evaluate(f"window.before === {CHART}")
    assert "total" in (opened.page.locator(".st-key-chart_kl_k3 .gtitle").text_content() or "")
    assert opened.page.evaluate(RANGE) == pytest.approx(whole)
    is_well(opened)


def test_a_chart_that_stays_as_it_is_is_not_drawn_and_keeps_its_zoom(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale")
    opened.zoom("chart_kl_k3")
    zoomed = opened.page.evaluate(RANGE)
    opened.page.evaluate(WATCH)
    with opened.rerun():
        opened.page.locator(".st-key-chart_kl_k3 .rs-numbers").click()
    assert opened.page.evaluate("drawn") == [] and opened.page.evaluate(RANGE) == zoomed
    is_well(opened)


def test_numbers_behind_a_chart_stay_open_while_the_page_is_redrawn(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale")
    page, numbers = opened.page, opened.page.get_by_role("dialog")
    sizes = [page.locator(each).first.evaluate("each => getComputedStyle(each).fontSize") for each in (OWN, DRAWER)]
    assert sizes[0] == sizes[1], "the button is written as the drawers of the page are"
    with opened.rerun():
        page.locator(".st-key-chart_kl_k3 .rs-numbers").click()
    rows = numbers.get_by_role("button", name="CSV, ").inner_text()
    assert numbers.get_by_test_id("stDataFrame").count() == 1
    with opened.rerun():
        page.keyboard.press("r")
    assert numbers.get_by_role("button", name="CSV, ").inner_text() == rows
    with opened.rerun():
        opened.close_dialog()
    assert numbers.count() == 0
    _choose(opened, "total")
    assert numbers.count() == 0
    is_well(opened)


def test_one_cursor_and_one_zoom_are_on_every_chart_over_steps(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale", height=1400)
    page, every = (
        opened.page,
        "[...document.querySelectorAll('.rs-chart')].map(c => c._fullLayout.xaxis.range.map(Number))",
    )
    whole = page.evaluate(every)
    middle = page.locator(".st-key-chart_kl_k3 .nsewdrag").first
    middle.hover()
    page.wait_for_function("() => document.querySelectorAll('.rs-cursor').length > 3")
    shown = page.evaluate(
        "[...document.querySelectorAll('.rs-cursor')].map(c => { const a = c.parentNode._fullLayout.xaxis;"
        " return Math.round(a.p2d(parseFloat(c.style.left) - a._offset)) })"
    )
    assert len(set(shown)) == 1, "one step on every chart"
    assert middle.evaluate("e => getComputedStyle(e).cursor") == "pointer"
    page.mouse.move(5, 5)
    page.wait_for_function("() => document.querySelectorAll('.rs-cursor').length === 0")
    opened.zoom("chart_kl_k3")
    page.wait_for_function(f"whole => {every}.every((range, at) => range[1] < whole[at][1])", arg=whole)
    zoomed = page.evaluate(every)
    assert all(range_ == pytest.approx(zoomed[0]) for range_ in zoomed)
    page.locator(".st-key-chart_kl_k3 .nsewdrag").first.dblclick()
    page.wait_for_function(f"whole => {every}.every((range, at) => range[1] === whole[at][1])", arg=whole)
    is_well(opened)


def test_what_is_on_the_screen_is_drawn_first_and_what_is_far_once_it_is_near(
    dashboard: Dashboard, browser: Chromium
) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale", height=400)
    page, charts = opened.page, opened.page.locator(".rs-chart")
    assert page.locator(".rs-chart[data-far]").count() > 0 == page.locator(".rs-chart[data-far] .main-svg").count()
    charts.last.scroll_into_view_if_needed()
    opened.settled()
    assert charts.last.locator(".main-svg").count()
    page.evaluate(WATCH)
    opened.resize(1100, 400)
    seen = [-250 < top < 400 for top in page.evaluate("drawn")]
    assert 2 <= len(seen) < 5 and seen[0] and seen == sorted(seen, reverse=True)
    opened.drawn_whole()
    assert len(page.evaluate("drawn")) == 5 == page.locator(".rs-chart .main-svg:first-child").count()
    is_well(opened)


def test_a_far_chart_is_printed_with_the_choice_of_the_page(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale")
    opened.page.locator(".rs-chart").last.scroll_into_view_if_needed()
    opened.settled()
    opened.page.evaluate("scrollTo(0, 0)")
    opened.resize(1280, 150)
    _choose(opened, "total")
    assert opened.page.locator(".st-key-chart_kl_k3 .rs-chart[data-far]").count() == 1
    before = opened.page.evaluate(f"{CHART}.layout.title.text")
    opened.drawn_whole()
    assert opened.page.evaluate(f"{CHART}.layout.title.text") != before
    is_well(opened)


def test_an_array_that_is_as_before_is_the_one_of_before(dashboard: Dashboard, browser: Chromium) -> None:
    """Then Plotly draws only what has changed: it compares arrays by what they are, not by what is in them."""
    opened = browser.visit(f"{dashboard.url}/distributions?run=stale")
    chart = "document.querySelector('.st-key-beyond .rs-chart')"
    opened.page.evaluate(f"window.before = {{ y: {chart}.data[0].y, limit: {chart}.layout.shapes[0].x0 }}")
    with opened.rerun():
        opened.page.locator(".st-key-cap").get_by_role("slider").focus()
        opened.page.keyboard.press("ArrowRight")
    assert opened.page.evaluate(f"{chart}.data[0].y === before.y && before.y instanceof Float64Array")
    assert opened.page.evaluate(f"{chart}.layout.shapes[0].x0 !== before.limit")
    is_well(opened)


def test_a_chart_is_as_wide_as_its_place_and_fills_the_screen_if_asked(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale")
    assert _size(opened)["svg"] == _size(opened)["place"] > 500
    opened.resize(800)
    narrow = _size(opened)
    assert narrow["svg"] == narrow["place"] > 700
    chart = opened.page.locator(".st-key-chart_kl_k3 .rs-chart")
    chart.hover()
    chart.locator("[data-title='Full screen']").click()
    opened.page.wait_for_function(f"() => {CHART}.querySelector('.main-svg').clientWidth === innerWidth")
    opened.settled()
    assert opened.page.evaluate(f"{CHART}.querySelector('.main-svg').clientHeight === innerHeight")
    opened.page.evaluate("document.exitFullscreen()")
    opened.page.wait_for_function(f"() => {CHART}.querySelector('.main-svg').clientWidth === {narrow['place']}")
    opened.settled()
    assert _size(opened) == narrow
    is_well(opened)


def test_where_the_library_does_not_come_the_chart_says_so_and_the_next_asks_again(
    dashboard: Dashboard, browser: Chromium
) -> None:
    page = browser.tab()
    page.route(f"**{PLACE}", lambda route: route.abort())
    page.goto(f"{dashboard.url}/?run=stale")
    page.get_by_text("This chart cannot be drawn").first.wait_for()
    assert (
        "Is the dashboard still running?"
        in page.locator(".rs-chart", has_text="This chart cannot be drawn").first.inner_text()
    )
    page.unroute(f"**{PLACE}")
    page.get_by_test_id("stButtonGroup").get_by_role("radio", name="total", exact=True).click()
    page.locator(".st-key-chart_kl_k3 .main-svg").first.wait_for(state="attached")
    page.wait_for_function("() => !document.querySelector('[data-waits]')")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")  # one that is far from the screen is drawn once it is near
    page.wait_for_function("() => !document.body.innerText.includes('This chart cannot be drawn')")


def test_a_chart_that_is_told_anew_while_it_waits_for_a_library_that_fails_is_drawn(
    dashboard: Dashboard, browser: Chromium
) -> None:
    page = browser.tab()
    held: list[Route] = []
    page.route(f"**{PLACE}", lambda route: held.append(route), times=1)
    page.goto(f"{dashboard.url}/?run=stale", wait_until="commit")
    page.locator(".st-key-chart_kl_k3 .rs-chart[data-waits]").wait_for(state="attached")
    before = page.evaluate(f"{CHART}.ariaLabel")
    page.get_by_test_id("stButtonGroup").get_by_role("radio", name="total", exact=True).click()
    page.wait_for_function(f"before => {CHART}.ariaLabel !== before", arg=before)
    held[0].abort()
    page.locator(".st-key-chart_kl_k3 .main-svg").first.wait_for(state="attached")
    page.wait_for_function("() => !document.querySelector('[data-waits]')")
    assert page.get_by_text("This chart cannot be drawn").count() == 0


ONE_IN_SIGHT = """window.IntersectionObserver = class extends IntersectionObserver {
  constructor(look, options) { super(look, options); this.look = look }
  observe(element) {
    if (!element.matches(".rs-chart")) super.observe(element)
    else if (!window.found) setTimeout(this.look, 0, window.found = [{ isIntersecting: true }])
  }
}"""
"""A browser that has looked for one chart, and not yet for the others."""


def test_a_chart_that_is_printed_before_it_was_looked_for_does_not_wait(
    dashboard: Dashboard, browser: Chromium
) -> None:
    page = browser.tab()
    page.add_init_script(ONE_IN_SIGHT)
    page.goto(f"{dashboard.url}/?run=stale")
    page.locator(".rs-chart .main-svg").first.wait_for(state="attached")
    page.locator(".rs-chart[data-waits]").first.wait_for(state="attached")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function("() => !document.querySelector('[data-waits]')")
    assert page.locator(".rs-chart:not(:has(.main-svg)):visible").count() == 0


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (tuple(f"{name}.js" for name in SCRIPTS), 1),
        (("library.js", "listener.js"), 0),
    ],
)
def test_clearing_up_after_a_call_takes_nothing_from_a_later_one(
    dashboard: Dashboard, browser: Chromium, names: tuple[str, ...], kept: int
) -> None:
    """Streamlit calls a component anew before the last call has come back, and then clears up after that one."""
    opened = browser.visit(f"{dashboard.url}/record?run=stale")
    assert opened.page.evaluate(OVERTAKEN, script(*names)) == {"between": [kept, 1], "after": [0, 0]}
    is_well(opened)


def _choose(opened: Opened, gap: str) -> None:
    with opened.rerun():
        opened.page.get_by_test_id("stButtonGroup").get_by_role("radio", name=gap, exact=True).click()


def _size(opened: Opened) -> dict[str, Any]:
    found = opened.page.evaluate(
        f"({{svg: {CHART}.querySelector('.main-svg').clientWidth, place: {CHART}.clientWidth}})"
    )
    assert isinstance(found, dict)
    return found
