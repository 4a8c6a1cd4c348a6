"""The HTML report in a real browser: it draws, changes its theme, prints, asks for nothing, and runs nothing foreign."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request
from support.browser import chromium
from support.hostile_report import hostile as hostile
from support.recorded import recorded

from ratioscope import open_run
from ratioscope.app.documents.material import Material, material
from ratioscope.app.documents.report import html_report

pytestmark = pytest.mark.skipif(chromium() is None, reason="needs Chromium: tests/support/install_chromium.sh")
UNDRAWN = (
    "[...document.querySelectorAll('.figure')].filter(e => e.checkVisibility() && !e.querySelector('.main-svg'))"
    ".map(e => e.dataset.figure)"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return material(open_run(recorded("trl_vllm_stale4", tmp_path_factory.mktemp("runs") / "run")))


@pytest.fixture(scope="module")
def report(data: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report that draws its charts by plotly.js."""
    path = tmp_path_factory.mktemp("report") / "live.html"
    path.write_text(html_report(data, interactive=True), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def still(data: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report as it is sent: without scripts."""
    path = tmp_path_factory.mktemp("report") / "still.html"
    path.write_text(html_report(data), encoding="utf-8")
    return path


@dataclass
class Visit:
    """A page, and what went wrong in it or was asked for."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def visited(chrome: Browser, path: Path, **context: Any) -> Visit:
    visit = Visit(chrome.new_context(**{"viewport": {"width": 1200, "height": 900}, **context}).new_page())

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            visit.errors.append(message.text)

    def ask(request: Request) -> None:
        if not request.url.startswith("data:") and request.url != path.as_uri():
            visit.requests.append(request.url)

    visit.page.on("console", note)
    visit.page.on("pageerror", lambda error: visit.errors.append(str(error)))
    visit.page.on("request", ask)
    visit.page.goto(path.as_uri())
    return visit


def through(page: Page) -> None:
    """Brings every chart in view near the window, one after another: each is drawn, however slow the machine is."""
    while names := undrawn(page):
        page.evaluate("name => document.querySelector(`[data-figure='${name}']`).scrollIntoView()", names[0])
        page.wait_for_selector(f"[data-figure='{names[0]}'] .main-svg", state="attached")


def undrawn(page: Page) -> list[str]:
    """The charts in view that hold no drawing."""
    found: list[str] = page.evaluate(UNDRAWN)
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_chart_is_drawn_without_an_error_or_a_request(chrome: Browser, report: Path, theme: str) -> None:
    visit = visited(chrome, report, color_scheme=theme)
    for summary in visit.page.locator("summary").all():
        if summary.is_visible():
            summary.click()
    through(visit.page)
    assert (visit.errors, visit.requests) == ([], [])
    background = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 21, 28)"}[theme]


def test_the_button_changes_the_theme_of_page_and_charts(chrome: Browser, report: Path) -> None:
    page = visited(chrome, report, color_scheme="light").page
    through(page)
    paper = "document.querySelector('.figure .main-svg').style.background"
    light = page.evaluate(paper)
    page.get_by_role("button", name="dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 21, 28)"
    page.wait_for_function(f"light => {paper} !== light", arg=light)
    page.get_by_role("button", name="light").click()
    page.wait_for_function(f"light => {paper} === light", arg=light)


def test_nothing_is_wider_than_a_phone_a_screen_or_a_sheet_of_paper(chrome: Browser, report: Path) -> None:
    for width, media in ((390, "screen"), (1200, "screen"), (703, "print")):  # 703: the text width of A4
        page = visited(chrome, report, viewport={"width": width, "height": 900}).page
        page.emulate_media(media="print" if media == "print" else "screen")
        through(page)
        if media == "print":
            page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_print_is_light_with_every_visible_chart_and_leaves_the_screen_as_it_was(chrome: Browser, report: Path) -> None:
    page = visited(chrome, report, color_scheme="dark").page
    through(page)
    opened = "document.querySelectorAll('details[open]').length"
    before = page.evaluate(opened)
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert undrawn(page) == [] and page.evaluate(opened) > before
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.querySelector('.figure .main-svg').style.background") == "rgb(255, 255, 255)"
    page.emulate_media(media="screen", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.querySelector('.figure .main-svg').style.background") == "rgb(17, 21, 28)"
    assert page.evaluate(opened) == before


def test_without_scripts_every_number_still_stands_in_a_table(chrome: Browser, report: Path) -> None:
    page = visited(chrome, report, java_script_enabled=False).page
    assert page.locator("noscript p").is_visible()
    assert page.get_by_text("the gap has grown since the run began").first.is_visible()
    assert page.locator("table:has(.spark)").first.is_visible()
    assert not page.get_by_role("button").is_visible()


SHOWN = "filter(e => e.checkVisibility())"
CHARTS = "[...document.querySelectorAll('.figure > .chart')]." + SHOWN


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_static_charts_have_the_colours_of_the_theme_without_an_error(chrome: Browser, still: Path, theme: str) -> None:
    visit = visited(chrome, still, color_scheme=theme)
    page = visit.page
    page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    assert (visit.errors, visit.requests) == ([], [])
    assert page.evaluate(f"{CHARTS}.every(e => e.clientHeight > 100 && e.getAttribute('aria-label').length > 20)")
    assert page.evaluate(f"{CHARTS}.length") == page.evaluate("document.querySelectorAll('.figure').length")
    line = "getComputedStyle(document.querySelector('[data-figure=mismatch-kl_k3] svg svg path[fill=none]')).stroke"
    assert page.evaluate(line) == {"light": "rgb(31, 102, 176)", "dark": "rgb(90, 167, 240)"}[theme]
    shown = page.evaluate(
        "[...document.querySelectorAll('image')].filter(e => e.getClientRects().length).map(e => e.classList[0])"
    )
    assert set(shown) == {theme}


def test_a_static_report_fits_a_phone_and_a_screen(chrome: Browser, still: Path) -> None:
    for width, kind in ((390, "slim"), (1200, "broad")):
        page = visited(chrome, still, viewport={"width": width, "height": 900}).page
        page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(f"{CHARTS}.filter(e => e.matches('.wide > *')).every(e => e.classList.contains('{kind}'))")


def test_no_chart_is_cut_by_the_end_of_a_sheet_of_paper(chrome: Browser, still: Path) -> None:
    """Each chart gets a link around it: a link that goes on behind a page's end has a box on both pages of the PDF."""
    page = visited(chrome, still, color_scheme="dark").page
    count = page.evaluate(
        """() => { const all = [...document.querySelectorAll('.figure')];
        all.forEach((e, at) => { const link = document.createElement('a'); link.href = 'https://chart.example/' + at;
        link.className = 'boxed'; link.style.display = 'block'; link.append(...e.childNodes);
        e.append(link); }); return all.length; }"""
    )
    page.emulate_media(media="print")
    seen = set(
        page.evaluate("[...document.querySelectorAll('a.boxed')].flatMap((e, at) => e.checkVisibility() ? [at] : [])")
    )
    pdf = page.pdf(format="A4", print_background=True)
    boxes = [int(at) for at in re.findall(rb"https://chart\.example/(\d+)", pdf)]
    assert pdf.startswith(b"%PDF") and len(pdf) > 100_000
    assert len(boxes) == len(set(boxes)) and seen <= set(boxes) and len(seen) > count / 3
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_the_first_half_page_has_the_answer_and_its_picture(chrome: Browser, still: Path) -> None:
    page = visited(chrome, still, viewport={"width": 703, "height": 1017}).page
    page.emulate_media(media="print")
    box = page.locator(".verdict").bounding_box()
    assert box is not None and box["y"] + box["height"] < 1017 * 0.62
    for words in ("since step", "explains", "do in trl", "ruled out", "noise floor"):
        assert page.locator(".verdict").get_by_text(words).first.is_visible()
    assert page.locator(".verdict .evidence svg.chart").is_visible()
    assert page.evaluate("[...document.fonts].map(face => face.family + ' ' + face.status)") == ["Source Sans loaded"]
    styles = "[...document.querySelectorAll('h2 + p, footer')].map(e => getComputedStyle(e))"
    alone = f"{styles}.map(style => [style.breakAfter, style.breakBefore])"
    assert all("avoid" in each for each in page.evaluate(alone)), "no heading and no footer stands alone on a page"
    assert page.locator("details.print:not([open]) table").first.evaluate("e => e.checkVisibility()")


def test_hostile_text_runs_nothing_and_loads_nothing(chrome: Browser, hostile: Material, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(html_report(hostile), encoding="utf-8")
    visit = visited(chrome, path)
    visit.page.locator(".rs-text i").first.hover()
    assert visit.page.evaluate("window.hacked") is None and (visit.errors, visit.requests) == ([], [])
    path.write_text(html_report(hostile, interactive=True), encoding="utf-8")
    visit = visited(chrome, path)
    through(visit.page)
    events = visit.page.locator("[data-figure=mismatch-kl_k3]")
    events.hover(position={"x": 200, "y": 100})
    visit.page.locator(".rs-text i").first.hover()
    assert visit.page.evaluate("window.hacked") is None
    assert (visit.errors, visit.requests) == ([], [])
    assert visit.page.locator("svg a, svg foreignObject").count() == 0
    images = visit.page.locator("svg image")  # a heat map is one
    assert all(str(image.get_attribute("href")).startswith("data:image/png") for image in images.all())
