"""Links that a reader keeps and points that a reader clicks: saved views, and the scatter of two metrics, in a real browser."""

import shutil
from pathlib import Path

import pytest
from support.browser import Chromium, Dashboard, Opened, chromium, is_well, query
from support.edge_runs import made

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
POINT = ".st-key-against_chart .scatterlayer .point"


def _stale(runs: Path) -> Path:
    """A copy of the stale run, because a saved view is written into its run."""
    return Path(shutil.copytree(made(runs, "stale"), runs / "of_views"))


SERVED = (_stale,)


def _shown(opened: Opened) -> list[str]:
    """The titles of the charts on the page, and the choices that its address keeps."""
    titles = opened.page.locator(".rs-chart").evaluate_all("charts => charts.map(chart => chart.ariaLabel)")
    return [*titles, *(f"{key}={value}" for key, value in sorted(query(opened).items()))]


def test_the_link_of_a_saved_view_opens_the_view_again(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/distributions?gap=total&steps=4:20&level=sequence&cap=5")
    wanted = _shown(opened)
    page = opened.page
    page.locator(".st-key-views button").first.click()
    field = page.locator(".st-key-view_name input")
    field.fill("tails of & a <b>long</b> run")
    with opened.rerun():
        field.press("Enter")
    with opened.rerun():
        page.locator(".st-key-view_keep button").click()
    link = page.get_by_role("link", name="tails of & a <b>long</b> run")
    link.wait_for()
    address = link.evaluate("link => link.href")
    another = browser.visit(f"{dashboard.url}/record")
    assert "cap" not in query(another)
    again = browser.visit(address)
    assert _shown(again) == wanted and query(again)["level"] == "sequence" and "/distributions?" in again.page.url
    for tab in (opened, another, again):
        is_well(tab)


@pytest.mark.parametrize(("points", "path", "key"), [("steps", "samples", "step"), ("sequences", "tokens", "sequence")])
def test_a_click_on_a_point_of_the_scatter_opens_what_it_stands_for(
    dashboard: Dashboard, browser: Chromium, points: str, path: str, key: str
) -> None:
    opened = browser.visit(f"{dashboard.url}/charts?against=true&points={points}", height=1600)
    page = opened.page
    chart = page.locator(".st-key-against_chart")
    chart.scroll_into_view_if_needed()
    page.locator(POINT).first.wait_for(state="attached")
    opened.settled()
    wanted = page.evaluate(
        "selector => document.querySelector(selector).data[0].customdata.at(0)", ".st-key-against_chart .rs-chart"
    )
    box = page.locator(POINT).first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.locator(".st-key-against_chart .hoverlayer .hovertext").first.wait_for()
    with opened.rerun():
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url(f"**/{path}?*")
    opened.settled()
    assert query(opened)[key] == wanted[0] and "step" in query(opened)
    is_well(opened)
