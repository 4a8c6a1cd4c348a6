"""The pages of a run in a real browser, from disk and without a network: they draw, lead to each other, and run nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from support.browser import chromium
from support.site import material_of

from ratioscope.app.documents.document import FIRST, PATHS, files, folder_of, one_file
from ratioscope.app.documents.material import material
from ratioscope.app.export.site_folder import write_folder
from ratioscope.app.pages.pages import PAGES as EVERY
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.run import open_run

pytestmark = pytest.mark.skipif(chromium() is None, reason="needs Chromium: tests/support/install_chromium.sh")
PAGES = [page for page in EVERY if page.path in PATHS]
VISIBLE = "[...document.querySelectorAll('.figure')].filter(figure => figure.checkVisibility())"
ALL_DRAWN = f"() => {VISIBLE}.every(figure => figure.querySelector('.main-svg'))"
PASS_BY = f"""async () => {{
  for (const figure of {VISIBLE}) {{
    figure.scrollIntoView({{ behavior: "instant" }})
    await new Promise(requestAnimationFrame)
  }}
}}"""

UNDER_THE_MARK = """() => [...document.querySelectorAll(".js-plotly-plot")].filter(plot => plot.clientWidth).flatMap(plot => {
  const mark = [...plot.querySelectorAll(".annotation")].find(note => note.textContent === "?")?.getBoundingClientRect()
  const lines = [...plot.querySelectorAll(".g-gtitle tspan.line, .g-gtitle text:not(:has(tspan.line))")]
  return lines.filter(line => {
    const box = line.getBoundingClientRect()
    return mark && box.right > mark.left && box.bottom > mark.top + 2 && box.top < mark.bottom - 2
  }).map(line => line.textContent)
})"""
"""Words of a chart's title that its ? covers."""
CUT_TITLES = f"""() => {VISIBLE}.flatMap(figure => [...figure.querySelectorAll(".gtitle, .gtitle-subtitle")]
  .filter(title => title.getBoundingClientRect().right > figure.getBoundingClientRect().right).map(title => title.textContent))"""


@pytest.fixture(scope="module")
def pages(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `pages` of a stale run, `one.html` of the same, `hostile.html`, and a folder `several` with a run of one token."""
    root = tmp_path_factory.mktemp("bundle")
    stale = material_of(runs, "stale")
    write_folder(root / "pages", files(stale).items())
    write_folder(root / "several", folder_of([material_of(runs, "one_token"), stale]))
    (root / "one.html").write_text(one_file(stale))
    (root / "hostile.html").write_text(one_file(material_of(runs, "hostile")))
    return root


@pytest.fixture
def tab(chrome: Browser) -> Iterator[Page]:
    """A tab without a network. What went wrong in it is an error of the test."""
    context = chrome.new_context(offline=True, viewport={"width": 1200, "height": 900})
    page, wrong = context.new_page(), list[str]()
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(("file:", "data:")) else None)
    yield page
    context.close()
    assert wrong == []


def drawn(page: Page) -> None:
    """Scrolls through the page until every chart in it is drawn."""
    page.evaluate(PASS_BY)
    page.wait_for_function(ALL_DRAWN)


def _go_to(tab: Page, topic: str, title: str) -> None:
    """Follows the navigation to a page: to its topic, unless its tab is in sight, and to the tab."""
    link = tab.get_by_role("link", name=title, exact=True)
    if title != topic and not link.is_visible():
        tab.get_by_role("link", name=topic, exact=True).click()
    link.click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_of_a_folder_draws_its_charts_at_420_pixels_too(tab: Page, pages: Path, scheme: str) -> None:
    tab.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    tab.set_viewport_size({"width": 420 if scheme == "dark" else 1200, "height": 900})
    tab.goto((pages / "pages" / FIRST).as_uri())
    for page in PAGES:
        _go_to(tab, page.topic, page.title)
        assert tab.get_by_role("heading", level=2, name=page.topic, exact=True).is_visible()
        drawn(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") <= tab.evaluate("innerWidth")
        assert tab.evaluate(CUT_TITLES) == [] and tab.evaluate(UNDER_THE_MARK) == []
        background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 21, 28)"}[scheme]


def test_words_of_lanes_lose_names_that_do_not_fit_and_not_letters(tab: Page, pages: Path) -> None:
    lanes = "[...document.querySelectorAll('.annotation-text')].map(each => each.textContent).filter(words => words.length > 1)"
    edges = """[...document.querySelectorAll('.annotation-text')].map(words => words.getBoundingClientRect().right
      - words.closest('.js-plotly-plot, .rs-chart, .figure').getBoundingClientRect().right)"""
    told = {}
    for width in (1200, 420):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.goto((pages / "pages" / "alerts.html").as_uri())
        drawn(tab)
        assert max(tab.evaluate(edges)) <= 0
        told[width] = tab.evaluate(lanes)
    assert any("kl_k3" in words for words in told[1200]) and not any("chi2_of_ess" in words for words in told[420])
    assert [words.split(" · ")[0] for words in told[420]] == [words.split(" · ")[0] for words in told[1200]]


def test_a_chart_can_be_zoomed(tab: Page, pages: Path) -> None:
    tab.goto((pages / "pages" / "charts.html").as_uri())
    chart = tab.locator("[data-figure=main_kl_k3]")
    chart.scroll_into_view_if_needed()
    chart.locator(".main-svg").first.wait_for()
    before = tab.evaluate("document.querySelector('[data-figure=main_kl_k3]')._fullLayout.xaxis.range")
    box = chart.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    tab.mouse.move(box["x"] + 0.3 * box["width"], middle)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 0.7 * box["width"], middle, steps=5)
    tab.mouse.up()
    tab.wait_for_function(
        "before => document.querySelector('[data-figure=main_kl_k3]')._fullLayout.xaxis.range[0] > before[0]",
        arg=before,
    )


def test_the_question_mark_of_a_chart_is_reached_by_keyboard(tab: Page, pages: Path) -> None:
    tab.goto((pages / "pages" / "charts.html").as_uri())
    chart = tab.locator("[data-figure=main_kl_k3]")
    chart.scroll_into_view_if_needed()
    mark = chart.locator(".annotation [role=note]")
    mark.focus()
    chart.locator(".hoverlayer").get_by_text("every unmasked token").wait_for()
    assert "this chart every unmasked token" in (mark.get_attribute("aria-label") or "")


def test_keys_lead_to_pages_and_the_chosen_theme_stays(tab: Page, pages: Path) -> None:
    tab.goto((pages / "pages" / FIRST).as_uri())
    tab.keyboard.press("t")
    tab.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    tab.keyboard.press("g")
    tab.keyboard.press("w")
    tab.wait_for_url("**/where.html")
    tab.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    tab.keyboard.press("g")
    tab.keyboard.press("z")
    tab.keyboard.press("w")
    assert tab.url.endswith("where.html")


def test_one_file_shows_one_page_at_a_time(tab: Page, pages: Path) -> None:
    tab.goto((pages / "one.html").as_uri())
    for page in PAGES:
        _go_to(tab, page.topic, page.title)
        tab.wait_for_function("path => !document.getElementById(path).hidden", arg=page.path)
        shown = tab.evaluate("[...document.querySelectorAll('section.page')].filter(e => !e.hidden).map(e => e.id)")
        assert shown == [page.path]
    drawn(tab)
    tab.go_back()
    tab.wait_for_function("path => !document.getElementById(path).hidden", arg=PAGES[-2].path)


def test_a_list_of_runs_leads_to_each_and_back(tab: Page, pages: Path) -> None:
    tab.set_viewport_size({"width": 420, "height": 900})
    tab.goto((pages / "several" / FIRST).as_uri())
    assert tab.locator(".runs a").all_inner_texts() == ["stale", "one_token"]
    assert tab.evaluate("document.documentElement.scrollWidth") <= 420
    tab.get_by_role("link", name="one_token", exact=True).click()
    tab.wait_for_url("**/one_token.html")
    tab.keyboard.press("g")
    tab.keyboard.press("r")
    tab.wait_for_url(f"**/{FIRST}")
    tab.get_by_role("link", name="stale", exact=True).click()
    tab.get_by_role("link", name="‹ All runs").click()
    tab.wait_for_url(f"**/{FIRST}")


def test_nothing_foreign_runs_and_another_script_is_refused(chrome: Browser, pages: Path) -> None:
    page = chrome.new_page()
    page.goto((pages / "hostile.html").as_uri())
    for path in ("where", "alerts", "record", "samples"):
        page.goto(f"{(pages / 'hostile.html').as_uri()}#{path}")
        drawn(page)
    assert page.evaluate("window.hacked") is None
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hacked = 2'}))"
    )
    assert page.evaluate("window.hacked") is None
    page.close()


def test_long_names_do_not_widen_a_page(tab: Page, tmp_path: Path) -> None:
    long = f"https://data.internal.example/{'x' * 80}"
    with Collector(tmp_path / "run") as collector:
        old, rollout = [[-1.0, -2.0]], [[-1.1, -2.3]]
        collector.log(
            step=0, rollout_logprobs=rollout, old_logprobs=old, sequence_ids=[long], group_ids=[long], replica=[long]
        )
    (tmp_path / "one.html").write_text(one_file(material(open_run(tmp_path / "run"))))
    tab.set_viewport_size({"width": 420, "height": 900})
    for page in PAGES:
        tab.goto(f"{(tmp_path / 'one.html').as_uri()}#{page.path}")
        tab.wait_for_function("path => !document.getElementById(path).hidden", arg=page.path)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 420, page.path
