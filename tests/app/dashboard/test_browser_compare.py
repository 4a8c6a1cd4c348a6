"""From a bar, a point or an alert to its step, and comparisons as links, in a real browser."""

import pytest
from support.browser import Chromium, Dashboard, chromium, is_well, query

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
HOVERED = "document.querySelector('.st-key-chart_kl_k3 .js-plotly-plot')._hoverdata?.length"
"""Plotly looks for the point under the mouse a moment after it has moved, and a click means the point that was found."""


def test_a_bar_of_the_ribbon_leads_to_its_step(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale")
    opened.page.locator(".st-key-chart_kl_k3 .bars .point path").nth(6).click(force=True)
    opened.page.wait_for_url("**/samples?**")
    opened.settled()
    assert query(opened)["step"] == "12" and query(opened)["run"] == "stale"
    is_well(opened)


@pytest.mark.parametrize(("run", "slack"), [("stale", 1), ("many_steps", 200)])
def test_a_click_in_a_chart_leads_to_the_step_under_it(
    dashboard: Dashboard, browser: Chromium, run: str, slack: int
) -> None:
    """Also where the line is thinned, and so has no markers that can be seen."""
    opened = browser.visit(f"{dashboard.url}/?run={run}")
    chart = opened.page.locator(".st-key-chart_kl_k3 .nsewdrag").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    x, y = box["x"] + 0.6 * box["width"], box["y"] + 0.5 * box["height"]
    opened.page.mouse.move(x, y)
    opened.awaits("the point under the mouse", HOVERED)
    opened.page.mouse.click(x, y)
    opened.page.wait_for_url("**/samples?**")
    opened.settled()
    last = {"stale": 22, "many_steps": 9999}[run]
    assert abs(int(query(opened)["step"]) - 0.6 * last) <= slack
    is_well(opened)


def test_an_alert_leads_to_its_peak_and_from_the_page_of_alerts_to_its_steps(
    dashboard: Dashboard, browser: Chromium
) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale")
    opened.page.locator(".st-key-newest_0 button").first.click()
    opened.page.wait_for_url("**/samples?**")
    opened.settled()
    assert int(query(opened)["step"]) >= 0
    opened = browser.visit(f"{dashboard.url}/alerts?run=stale&moved=kl_k3&watch_kl_k3=0.02")
    assert opened.page.get_by_text("With these rules").count() == 1
    table = opened.page.locator("[class*=st-key-alert_rows] canvas").first
    table.click(position={"x": 14, "y": 52}, force=True)
    opened.page.locator(".st-key-to_overview button").first.wait_for()
    opened.settled()
    opened.page.locator(".st-key-to_overview button").first.click()
    opened.page.get_by_text("The verdict and the alerts cover the whole run").wait_for()
    opened.settled()
    assert ":" in query(opened)["steps"]
    is_well(opened)


def test_a_bar_of_the_timeline_leads_to_the_peak_without_a_mouse(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/alerts?run=stale")
    page = opened.page
    page.locator("body").press("Tab")
    while not page.evaluate("document.activeElement.matches('.st-key-lanes .rs-chart')"):
        page.keyboard.press("Tab")
    for key in ("End", "Home", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    page.locator(".st-key-lanes .hoverlayer .hovertext").first.wait_for(state="attached")
    page.keyboard.press("Enter")
    page.wait_for_url("**/samples?**")
    opened.settled()
    assert "step" in query(opened)
    is_well(opened)


def test_a_comparison_is_a_link_and_swapping_changes_it(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/compare?run=stale&a=healthy&a_steps=0:10&b=stale&course=ess_token")
    page = opened.page
    said = page.locator("h4").inner_text()
    assert "times higher" in said and page.get_by_text("A: healthy, steps 0").count() == 1
    page.locator(".st-key-swap button").first.click()
    page.wait_for_url("**b_steps=**")
    opened.settled()
    asked = query(opened)
    assert (asked["a"], asked["b"], asked["b_steps"], asked["course"]) == ("stale", "healthy", "0:10", "ess_token")
    assert "a_steps" not in asked and "times lower" in page.locator("h4").inner_text()
    said, place = page.locator("h4").inner_text(), page.url
    page.close()
    again = browser.visit(place)
    assert again.page.locator("h4").inner_text() == said
    again.page.locator(".st-key-pair button").first.click()
    again.page.get_by_text("no partner").wait_for()
    is_well(again)


def test_two_runs_a_side_stand_in_the_link(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/compare?run=stale&a=stale&a=healthy&b=healthy")
    assert opened.page.get_by_text("A: stale, healthy").count() == 1
    assert opened.page.get_by_text("Errors come from the spread between the runs").count() == 1
    is_well(opened)
