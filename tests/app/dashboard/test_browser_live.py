"""A dashboard on a run that a process is writing: it follows by itself, and takes nothing from its reader."""

import shutil
import time
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page
from support.browser import Chromium, Dashboard, Opened, chromium
from support.live_writer import Writer

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")

CHART = "chart_share_outside_0-5_2"
"""A key with a dot in it, which is a hyphen in the page."""
PLOT = f"document.querySelector('.st-key-{CHART} .js-plotly-plot')"
RANGE = f"() => [...{PLOT}._fullLayout.xaxis.range].map(Number)"
NEWEST = f"""() => {{
  dispatchEvent(new Event("beforeprint"))
  return Math.max(...({PLOT}?._fullData ?? []).flatMap(d => Array.from(d.x || [])))
}}"""
"""The newest step of the chart, which may be far from the screen: what would be printed now."""


OF_ALL = """() => Math.max(...[...document.querySelectorAll('.js-plotly-plot')]
  .flatMap(plot => plot._fullData ?? []).flatMap(d => Array.from(d.x ?? [])).filter(Number.isFinite))"""
"""The same over all charts of the page."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_zoom_scroll_drawers_and_typed_text_outlive_a_refresh(browser: Chromium, server: Dashboard, run: Path) -> None:
    with Writer(run) as writer, server.with_runs([run]) as dashboard:
        writer.write(12)
        opened = browser.visit(dashboard.url, height=700)
        page = opened.page
        page.locator("[data-testid=stExpander] summary").first.click()
        opened.settled()
        opened.zoom(CHART)
        zoomed = page.evaluate(RANGE)
        assert 1 < zoomed[0] < zoomed[1] < 11
        page.get_by_role("textbox", name="steps", exact=True).fill("3:")
        scrolled = page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop")
        assert scrolled > 50
        began = time.monotonic()
        writer.write(1)
        page.wait_for_function(f"() => ({NEWEST})() === 12")
        print(f"drawn {time.monotonic() - began:.1f} s after the step began")
        opened.settled()
        assert page.evaluate(RANGE) == zoomed
        assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop") == scrolled
        assert page.get_by_role("textbox", name="steps", exact=True).input_value() == "3:"
        assert page.locator("[data-testid=stExpander] details[open]").count() == 1
        assert opened.errors == [] and opened.exceptions == 0


def test_nothing_is_drawn_anew_while_a_row_is_selected_or_the_tab_is_paused(
    browser: Chromium, server: Dashboard, run: Path
) -> None:
    with Writer(run) as writer, server.with_runs([run]) as dashboard:
        writer.write(3)
        opened = browser.visit(dashboard.url)
        page = opened.page
        page.keyboard.press("p")
        page.get_by_text("paused · ").wait_for()
        writer.write(2)
        _newer(page, "2 newer steps").wait_for()
        opened.looked_again()
        assert page.evaluate(NEWEST) == 2
        _newer(page, "2 newer steps").click()
        page.wait_for_function(f"() => ({NEWEST})() === 4")
        writer.write(1)
        _newer(page, "1 newer step").wait_for()
        opened.settled()
        page.keyboard.press("p")
        page.wait_for_function(f"() => ({NEWEST})() === 5")
        assert page.get_by_text("paused · ").count() == 0 and opened.errors == [] and opened.exceptions == 0


def test_a_run_laid_over_is_followed_and_held_with_the_page(
    browser: Chromium, server: Dashboard, tmp_path: Path
) -> None:
    front, beside = tmp_path / "front", tmp_path / "beside"
    with Writer(front) as ended:
        ended.write(3)
    with Writer(beside) as writer, server.with_runs([front, beside]) as dashboard:
        writer.write(3)
        opened = browser.visit(f"{dashboard.url}/charts?run=front&with=beside")
        page = opened.page
        assert page.evaluate(OF_ALL) == 2
        writer.write(2)
        page.wait_for_function(f"() => ({OF_ALL})() === 4")
        opened.settled()  # a key that is pressed while the page is drawn anew may be lost
        page.keyboard.press("p")
        page.get_by_text("paused · ").wait_for()
        writer.write(1)
        _newer(page, "new data").wait_for()
        opened.looked_again()
        assert page.evaluate(OF_ALL) == 4
        page.keyboard.press("p")
        page.wait_for_function(f"() => ({OF_ALL})() === 5")
        assert opened.errors == [] and opened.exceptions == 0


def test_a_selected_row_holds_the_page_until_it_is_taken_back(browser: Chromium, server: Dashboard, run: Path) -> None:
    with Writer(run, noise=0.8) as writer, server.with_runs([run]) as dashboard:
        writer.write(8)
        opened = browser.visit(f"{dashboard.url}/alerts")
        page = opened.page
        _select_alert(opened)
        page.get_by_text("sequences at the peak").wait_for()
        detail = page.locator(".st-key-to_peak").locator("xpath=../..").inner_text()
        writer.write(2)
        _newer(page, "2 newer steps").wait_for()
        page.get_by_text("step 7 · ").wait_for()
        opened.looked_again()
        assert page.locator(".st-key-to_peak").locator("xpath=../..").inner_text() == detail
        _newer(page, "2 newer steps").click()
        page.get_by_text("step 9 · ").wait_for()
        page.locator(".st-key-to_peak").wait_for(state="detached")
        writer.write(1)
        page.get_by_text("step 10 · ").wait_for()
        opened.settled()
        _select_alert(opened)
        page.get_by_text("sequences at the peak").wait_for()
        writer.write(1)
        _newer(page, "1 newer step").wait_for()
        page.locator(".st-key-close_alert button").click()
        page.locator(".st-key-to_peak").wait_for(state="detached")
        page.get_by_text("step 11 · ").wait_for()
        assert opened.errors == [] and opened.exceptions == 0


def test_a_late_look_does_not_bring_a_selection_back_that_has_ended(
    browser: Chromium, server: Dashboard, run: Path
) -> None:
    """The browser asks for a look each second, with all that is selected, as long as it has not heard of the new table."""
    with Writer(run, noise=0.8) as writer, server.with_runs([run]) as dashboard:
        writer.write(8)
        opened = browser.visit(f"{dashboard.url}/alerts")
        page = opened.page
        _select_alert(opened)
        page.get_by_text("sequences at the peak").wait_for(timeout=30_000)
        opened.settled()
        page.evaluate("delete window.tickAgain")
        page.wait_for_function("() => window.tickAgain")
        page.evaluate("window.lateLook = tickAgain")
        page.locator(".st-key-close_alert button").click()
        page.locator(".st-key-to_peak").wait_for(state="detached", timeout=30_000)
        opened.settled()
        page.evaluate("lateLook()")
        writer.write(1)
        page.get_by_text("step 8 · ").wait_for(timeout=30_000)
        assert opened.errors == [] and opened.exceptions == 0


def test_a_page_that_is_held_keeps_its_steps_while_another_tab_follows_the_run(
    browser: Chromium, server: Dashboard, run: Path
) -> None:
    with Writer(run) as writer, server.with_runs([run]) as dashboard:
        writer.write(4)
        held = browser.visit(dashboard.url)
        held.computed()  # the worst samples are read after the page is shown
        held.page.keyboard.press("p")
        held.page.get_by_text("paused · ").wait_for()
        other = browser.visit(dashboard.url)
        for steps in (6, 8, 10):  # more than the two revisions that are kept of any run
            writer.write(2)
            other.page.wait_for_function(f"() => ({NEWEST})() === {steps - 1}")
        held.page.bring_to_front()  # what lies behind draws no chart
        _newer(held.page, "6 newer steps").wait_for()
        assert "some parts show newer steps" not in held.page.content()
        held.page.locator(f".st-key-{CHART} .rs-numbers").click()
        held.page.get_by_text("CSV, 4 rows").wait_for()
        held.close_dialog()
        held.page.get_by_role("textbox", name="steps", exact=True).fill("-2:")
        held.page.keyboard.press("Enter")
        held.page.get_by_text("some parts show newer steps").wait_for()
        assert held.page.evaluate(NEWEST) == 3
        _newer(held.page, "6 newer steps").click()
        held.page.wait_for_function(f"() => ({NEWEST})() === 9")
        assert "some parts show newer steps" not in held.page.content()
        for opened in (held, other):
            assert opened.errors == [] and opened.exceptions == 0


def test_a_dead_writer_an_ended_run_and_a_deleted_folder_are_told_apart(
    browser: Chromium, server: Dashboard, run: Path
) -> None:
    with Writer(run) as first, server.with_runs([run]) as dashboard:
        first.write(2)
        opened = browser.visit(dashboard.url)
        page = opened.page
        page.get_by_text("● live · step 1 · ").wait_for()
        page.locator(".st-key-body_place").get_by_text("● healthy", exact=True).first.wait_for()
        listed = browser.visit(f"{dashboard.url}/runs")
        first.kill()
        page.get_by_text("■ dead: no commit for ").wait_for()
        assert "its process is gone" in page.content()
        page.wait_for_function("() => document.title.includes('■ dead · partly measured · ')")
        page.get_by_text("◐ partly measured", exact=True).wait_for()
        listed.page.get_by_text("1 partly measured").wait_for()
        listed.page.close()
        page.locator(".st-key-pause").wait_for(state="detached")
        assert (
            page.get_by_text("dead (1 writer), 1 of 1 ended without closing").count() and " ago" not in page.content()
        )
        with Writer(run) as writer:
            writer.write(4)
            page.get_by_text("● live · step 3 · ").wait_for()
        page.get_by_text("ended · step 3 · ").wait_for()
        page.locator(".st-key-pause").wait_for(state="detached")
        shutil.rmtree(run)
        page.get_by_text("folder was deleted or moved").wait_for()
        assert opened.errors == [] and opened.exceptions == 0


def _newer(page: Page, words: str) -> Locator:
    return page.get_by_role("button", name=f"{words} · show")


def _select_alert(opened: Opened) -> None:
    """Selects the first row of the table of alerts; a table is drawn on a canvas."""
    opened.page.locator("[class*=st-key-alert_rows] canvas").first.click(position={"x": 14, "y": 52}, force=True)
