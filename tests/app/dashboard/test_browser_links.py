"""Every view is a link, every chart and page can be taken away, and the keyboard lists itself: in a real browser."""

import csv
import io
import json
import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.browser import Chromium, Dashboard, Opened, chromium, is_well, query
from support.edge_runs import made
from support.serving import refused, serving

from ratioscope.app.pages.pages import PAGES, Page
from ratioscope.ingest.run import open_run

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")

VIEWS = {
    "overview": "gap=total&more=true",
    "distributions": "gap=total&level=sequence&cap=5&how=masked",
    "samples": "gap=total&step=6&order=kl_k3",
    "tokens": "gap=total&step=6&sequence=6-100",
    "compare": "gap=total&b=two_policies",
}
"""page -> choices that are not its defaults; a page without a line here is opened at another gap and range of steps."""
SHOWN_STEPS = "document.querySelector('.st-key-chart_kl_k3 .js-plotly-plot')._fullLayout.xaxis.range.map(Number)"
ZOOMED_AND_BACK = """async () => {
  const plot = document.querySelector(".js-plotly-plot"), shown = () => [...plot._fullLayout.yaxis.range], begin = shown()
  await Plotly.relayout(plot, { "yaxis.range": [begin[0], begin[0] + (begin[1] - begin[0]) / 3] })
  await Plotly.relayout(plot, { "yaxis.autorange": true })
  return [begin, shown()]
}"""


@pytest.mark.slow
@pytest.mark.parametrize("card", PAGES, ids=lambda card: card.path)
def test_a_fresh_tab_on_the_url_of_a_view_shows_the_same(dashboard: Dashboard, browser: Chromium, card: Page) -> None:
    path = card.path
    asked = f"run=stale&{VIEWS.get(path, 'gap=total&steps=4:20')}"
    opened = browser.visit(f"{dashboard.url}/{'' if card is PAGES[0] else path}?{asked}")
    opened.page.get_by_text("this page keeps reading them").wait_for(state="hidden")
    again = browser.visit(opened.page.url)
    assert _said(again) == _said(opened) and again.page.url == opened.page.url
    kept = [
        pair for pair in asked.split("&") if pair.partition("=")[0] in ("run", *VIEWS.get(path, "").split("=")[::2])
    ]
    assert all(
        pair in again.page.url for pair in kept if pair.startswith(("run=", "step=", "sequence=", "level=", "cap="))
    )
    assert opened.errors == again.errors == [] and opened.exceptions == 0
    for tab in (opened, again):
        tab.page.close()


def test_the_command_opens_the_view_it_is_asked_for(browser: Chromium, runs: Path) -> None:
    run = str(made(runs, "stale"))
    with serving(run, "--page", "tokens", "--step", "6", "--sequence", "6-100", "--gap", "total") as started:
        assert started.url.endswith("/tokens?gap=total&step=6&sequence=6-100")
        opened = browser.visit(started.url)
        assert query(opened)["sequence"] == "6-100" and opened.page.locator(".rs-text i").count() > 3
        assert opened.page.get_by_text("current − rollout").count() >= 1 and opened.errors == []
        opened.page.close()
    code, said = refused(run, "--page", "token")
    assert code == 2 and all(card.path in said for card in PAGES)


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("?run=stale&", "gap=mismatch"),
        ("samples?", "run=stale&gap=mismatch&step=14"),
        ("tokens?", "run=stale&gap=mismatch&step=14&sequence="),
        ("charts?with=two_policies&with=hostile&", "run=stale&gap=mismatch"),
    ],
)
def test_what_was_chosen_for_the_reader_stands_in_the_address_and_in_the_link(
    dashboard: Dashboard, browser: Chromium, path: str, wanted: str
) -> None:
    """The worst step of a growing run is another one later."""
    opened = browser.visit(f"{dashboard.url}/{path}")
    assert f"/{path}{wanted}" in opened.page.url
    said = _said(opened)
    opened.page.locator(".st-key-share button").first.click()
    link = opened.page.locator(".st-key-link pre").inner_text()
    assert link == opened.page.url
    again = browser.visit(link)
    assert _said(again) == said and query(again) == query(opened)
    is_well(again)


def test_every_link_names_the_run_also_after_a_choice_that_changes_nothing_else(
    dashboard: Dashboard, browser: Chromium
) -> None:
    """Streamlit then writes an address without what was chosen for the reader, and the newest run may be another one tomorrow."""
    opened = browser.visit(f"{dashboard.url}/tokens?step=14")
    with opened.rerun():
        opened.page.keyboard.press("n")
    assert "run=stale" in opened.page.url and "&at=" in opened.page.url
    opened.page.locator(".st-key-share button").first.click()
    assert opened.page.locator(".st-key-link pre").inner_text() == opened.page.url
    opened.close_dialog()
    for title, path in (("Charts", "charts"), ("Sequences", "samples")):
        link = opened.page.get_by_role("link", name=title, exact=True)
        link.hover()
        assert (link.get_attribute("href") or "").endswith(f"/{path}?run=stale"), "for a window of its own"
    is_well(opened)


def test_a_zoom_stands_in_the_link_for_as_long_as_it_is_shown(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale")
    opened.zoom("chart_kl_k3")
    zoomed = opened.page.evaluate(SHOWN_STEPS)
    opened.page.locator(".st-key-share button").first.click()
    link = opened.page.locator(".st-key-link pre").inner_text()
    assert link == opened.page.url and "&zoom=" in link
    again = browser.visit(link)
    assert again.page.evaluate(SHOWN_STEPS) == pytest.approx(zoomed, rel=1e-4) and again.page.url.count("zoom=") == 1
    again.go_to("Charts")
    assert "zoom=" not in again.page.url
    for tab in (opened, again):
        is_well(tab)


OWN = """key => {
  const { xaxis, yaxis } = document.querySelector(`.st-key-${key} .js-plotly-plot`)._fullLayout
  return [...xaxis.range, ...yaxis.range].map(Number)
}"""


def test_the_zoom_of_every_chart_stands_in_the_link_and_leaves_it_with_the_chart(
    dashboard: Dashboard, browser: Chromium
) -> None:
    opened = browser.visit(f"{dashboard.url}/distributions?run=stale")
    keys = ("weights", "quantile_chart", "heat")
    for key in keys:
        opened.zoom(key)
    shown = [opened.page.evaluate(OWN, key) for key in keys]
    again = browser.visit(opened.page.url)
    again.drawn_whole()
    for key, ranges in zip(keys, shown, strict=True):
        assert again.page.evaluate(OWN, key) == pytest.approx(ranges, rel=1e-4), key
    assert query(again)["zoom"].count("~") == 2 and query(again) == query(opened)
    again.page.locator(".st-key-weights .nsewdrag").first.dblclick()
    again.settled()
    assert "weights" not in query(again)["zoom"] and "quantile_chart" in query(again)["zoom"]
    again.go_to("Samples")
    assert "zoom" not in query(again)
    for tab in (opened, again):
        is_well(tab)


def test_a_run_that_is_not_served_stays_in_the_address_and_opens_no_other(
    dashboard: Dashboard, browser: Chromium
) -> None:
    opened = browser.visit(f"{dashboard.url}/samples?run=stael&step=14")
    for _ in range(2):
        assert "run=stael" in opened.page.url, "a reload opens no other run in its place"
        opened.page.get_by_text("The run stael").wait_for()
        opened.page.reload()
        opened.settled()
    with opened.rerun():
        opened.page.locator(".st-key-served_here button").first.click()
    assert "run=stale" in opened.page.url, "the nearest name comes first"
    is_well(opened)


def test_back_leads_from_page_to_page_whatever_was_chosen_on_them(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale")
    visited = [opened.page.url]
    for title, gap in (("Samples", "total"), ("Tokens", "drift"), ("Charts", "total")):
        opened.go_to(title)
        with opened.rerun():
            opened.page.get_by_test_id("stButtonGroup").get_by_role("radio", name=gap, exact=True).click()
        visited.append(opened.page.url)
    assert opened.page.evaluate("history.length") == 1 + len(visited)
    for url in reversed(visited[:-1]):
        opened.page.go_back()
        opened.page.wait_for_url(re.compile(re.escape(url.split("?")[0]) + r"(\?|$)"))
        opened.settled()
    is_well(opened)


def test_a_choice_below_the_header_draws_that_part_alone_and_the_link_follows(
    dashboard: Dashboard, browser: Chromium
) -> None:
    opened = browser.visit(f"{dashboard.url}/distributions?run=stale&gap=total")
    page = opened.page
    with opened.rerun():
        page.locator(".st-key-over").get_by_role("radio", name="step", exact=True).click()
    assert page.evaluate("partAsked()") and "step=14" in page.url, "a step was chosen for the reader"
    with opened.rerun():
        page.locator(".st-key-cap").get_by_role("slider").focus()
        page.keyboard.press("ArrowRight")
    assert page.evaluate("partAsked()") and "cap=" in page.url
    page.locator(".st-key-share button").first.click()
    assert page.locator(".st-key-link pre").inner_text() == page.url
    page.keyboard.press("Escape")
    with opened.rerun():
        page.get_by_test_id("stButtonGroup").get_by_role("radio", name="mismatch", exact=True).click()
    assert page.evaluate("partAsked()") == "" and "cap=" in page.url
    is_well(opened)


def test_choices_survive_a_page_that_does_not_show_them(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/distributions?run=stale&gap=total&steps=4:20&level=sequence&cap=5")
    for title in ("Record", "Runs", "Distributions"):
        opened.go_to(title)
    assert all(choice in opened.page.url for choice in ("gap=total", "level=sequence", "cap=5"))
    opened.page.close()


def test_a_page_can_be_taken_away(dashboard: Dashboard, browser: Chromium, runs: Path) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale&gap=total")
    opened.page.locator(".st-key-share button").first.click()
    opened.page.get_by_text("all numbers, JSON").wait_for()
    assert "gap=total" in opened.page.locator(".st-key-link pre").inner_text()
    wanted = open_run(made(runs, "stale")).metrics()
    tables = json.loads(_downloaded(opened, "all numbers, JSON", "stale-overview.json"))
    assert [row["step"] for row in tables["overview_numbers"]] == wanted["step"].to_list()
    with zipfile.ZipFile(io.BytesIO(_downloaded(opened, "all numbers, CSV", "stale-overview.zip"))) as archive:
        rows = list(csv.DictReader(io.StringIO(archive.read("stale-overview-overview_numbers.csv").decode())))
    assert [float(row["total/kl_k3"]) for row in rows] == pytest.approx(wanted["total/kl_k3"].to_list())
    page = runs / "charts.html"
    page.write_bytes(_downloaded(opened, "all charts, HTML", "stale-overview.html"))
    alone = browser.file(page)
    assert alone.locator(".js-plotly-plot .main-svg").count() >= 3
    begin, end = alone.evaluate(ZOOMED_AND_BACK)
    assert begin == end, "a double click after a zoom shows the axis as it was"
    opened.page.close()
    alone.close()


def test_a_chart_can_be_taken_away_as_the_picture_that_was_chosen(dashboard: Dashboard, browser: Chromium) -> None:
    for image, starts in (("svg", b"<svg"), ("png", b"\x89PNG")):
        opened = browser.visit(f"{dashboard.url}/?run=stale&image={image}")
        chart = opened.page.locator(".st-key-chart_kl_k3")
        chart.hover()
        with opened.page.expect_download() as waiting:
            chart.locator(".modebar-btn[data-title*='ownload']").click()
        assert waiting.value.suggested_filename == f"stale-overview-chart_kl_k3.{image}"
        data = Path(waiting.value.path()).read_bytes()
        assert data.startswith(starts)
        if image == "svg":
            texts = "".join(ElementTree.fromstring(data).itertext())
            assert "kl_k3" in texts and re.search(r'@font-face .*"Source Sans".*url\("data:font/woff2;base64,', texts)
        else:
            size = chart.locator(".rs-chart").evaluate("chart => [chart._fullLayout.width, chart._fullLayout.height]")
            assert [int.from_bytes(data[at : at + 4]) for at in (16, 20)] == [2 * side for side in size]
        opened.page.close()


def test_what_is_taken_away_of_a_hostile_run_does_nothing(dashboard: Dashboard, browser: Chromium, runs: Path) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=hostile")
    for title in ("Overview", "Tokens", "Sequences", "Record"):
        opened.go_to(title)
        opened.page.locator(".st-key-share button").first.click()
        opened.page.get_by_text("all charts, HTML").wait_for()
        page = runs / "hostile.html"
        with opened.page.expect_download() as waiting:
            opened.page.get_by_text("all charts, HTML").click()
        assert re.fullmatch(r"[A-Za-z0-9._-]+", waiting.value.suggested_filename)
        page.write_bytes(Path(waiting.value.path()).read_bytes())
        alone = browser.file(page)
        for plot in alone.locator(".js-plotly-plot").all():
            plot.hover()
        assert alone.evaluate("window.hacked") is None and opened.page.evaluate("window.hacked") is None
        for chart in opened.page.locator(".js-plotly-plot .nsewdrag").all()[:6]:
            chart.hover(force=True)
        assert opened.page.evaluate("window.hacked") is None and opened.foreign == [] and opened.exceptions == 0
        alone.close()
        opened.close_dialog("all charts, HTML")  # it lies over the navigation once the page is scrolled
    opened.page.close()


def test_a_question_mark_lists_the_keys_and_is_typed_where_text_is_typed(
    dashboard: Dashboard, browser: Chromium
) -> None:
    opened = browser.visit(f"{dashboard.url}/distributions?run=stale")
    field = opened.page.get_by_role("textbox", name="steps", exact=True)
    if field.count():
        field.press("?")
        opened.settled()
        assert field.input_value() == "?" and opened.page.get_by_role("dialog").count() == 0
        field.fill("")
        field.blur()
        opened.settled()
    opened.page.keyboard.press("?")
    opened.page.get_by_role("dialog").get_by_text("next sequence").wait_for()
    opened.close_dialog()
    assert opened.errors == [] and opened.exceptions == 0
    opened.page.close()


def _said(opened: Opened) -> str:
    """The words of the page, without what tells the time, and the numbers of its charts; with the diagnosis, once it is there."""
    opened.computed()
    opened.drawn_whole()
    words = opened.page.locator("[data-testid=stMain]").inner_text()
    charts = opened.page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].map(p => p.querySelector('svg').textContent)"
    )
    return re.sub(r"\d+ (second|minute|hour|day)s?", "AGO", words) + "\n".join(charts)


def _downloaded(opened: Opened, words: str, name: str) -> bytes:
    with opened.page.expect_download() as waiting:
        opened.page.get_by_text(words).click()
    assert waiting.value.suggested_filename == name
    return Path(waiting.value.path()).read_bytes()
