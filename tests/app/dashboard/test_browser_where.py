"""Clicks on the bars of Where in a real browser: a bar becomes the filter of every page, and stops being it."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest
from support.browser import Chromium, Dashboard, Opened, chromium, is_well, query
from support.edge_runs import made

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")


def test_a_click_on_a_bar_filters_every_page_until_it_is_clicked_again(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/where?run=stale")
    page = opened.page
    _click(opened, "lag", 3)
    assert query(opened)["only"] == "lag=6" and page.get_by_text("▶ 6").count() == 1
    assert page.get_by_text("Other pages show only version lag 6").count() == 1
    opened.go_to("Sequences")
    opened.go_to("Where")
    assert query(opened)["only"] == "lag=6" and page.get_by_text("▶ 6").count() == 1
    _click(opened, "lag", 0)
    assert query(opened)["only"] == "lag=0" and page.get_by_text("▶ 0").count() == 1
    _click(opened, "lag", 0)
    assert "only" not in query(opened) and page.get_by_text("▶ 0").count() == 0
    assert page.locator(".st-key-only input").input_value() == ""
    is_well(opened)


def test_the_link_to_a_filtered_page_shows_it_and_an_emptied_field_takes_it_away(
    dashboard: Dashboard, browser: Chromium
) -> None:
    opened = browser.visit(f"{dashboard.url}/where?run=stale&only=position%3D4&heat=position")
    page = opened.page
    assert page.get_by_text("▶ [4, 8)").count() == 1 and page.locator(".st-key-slice_heat .hm").count() == 1
    field = page.locator(".st-key-only input")
    assert field.input_value() == "position=4"
    field.fill("")
    field.press("Enter")
    page.wait_for_url(lambda url: "only=" not in url)
    page.get_by_text("▶ [4, 8)").wait_for(state="detached")
    opened.settled()
    is_well(opened)


def test_asked_for_slices_are_measured_and_stay_in_the_link(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/where?run=stale")
    page = opened.page
    assert page.locator(".st-key-slice_token_class").count() == 0
    page.locator(".st-key-measured").get_by_text("token class", exact=True).click()
    page.locator(".st-key-slice_token_class .main-svg").first.wait_for(state="attached")
    opened.settled()
    assert "token_class" in page.url and page.get_by_text("word start").count() >= 1
    again = browser.visit(page.url)
    assert again.page.locator(".st-key-slice_token_class .main-svg").count() >= 1
    page.get_by_role("button", name="measure all").click()
    page.get_by_text("By minibatch: nothing to compare, every token has 0.").wait_for()
    opened.settled()
    assert page.locator(".rs-chart").count() == 8
    is_well(opened)


def test_a_hostile_key_that_stands_alone_is_said_and_is_a_filter_of_a_link(
    dashboard: Dashboard, browser: Chromium
) -> None:
    key = '" onmouseover="window.hacked=1" x="'
    opened = browser.visit(f"{dashboard.url}/where?run=hostile&measured=replica&only={quote(f'replica={key}')}")
    page = opened.page
    assert page.get_by_text(f"By engine replica: nothing to compare, every token has {key}.").count() == 1
    assert query(opened)["only"] == f"replica={key}"
    page.get_by_text("nothing to compare").hover()
    for title in ("Overview", "Where"):
        opened.go_to(title)
        assert page.evaluate("window.hacked") is None
        is_well(opened)


@pytest.mark.parametrize("name", ["group_id", "finish_reason"])
def test_a_hostile_key_is_a_filter_like_any_other(dashboard: Dashboard, browser: Chromium, name: str) -> None:
    opened = browser.visit(f"{dashboard.url}/where?run=hostile&measured={name}")
    page = opened.page
    _click(opened, name, 0)
    assert query(opened)["only"].startswith(f"{name}=") and page.get_by_text("▶ ").count() == 1
    for title in ("Overview", "Where"):
        opened.go_to(title)
        assert page.evaluate("window.hacked") is None
        is_well(opened)


def test_no_thread_that_works_ahead_keeps_the_interpreter_from_those_that_answer(
    dashboard: Dashboard, browser: Chromium
) -> None:
    """On a busy machine a thread of lower priority waits for a processor with the interpreter's lock in its hands."""
    browser.visit(f"{dashboard.url}/where?run=stale")
    priorities = set[int]()
    for thread in Path(f"/proc/{dashboard.pid}/task").iterdir():
        with suppress(ProcessLookupError):  # it has ended
            priorities.add(os.getpriority(os.PRIO_PROCESS, int(thread.name)))
    assert priorities == {os.getpriority(os.PRIO_PROCESS, 0)}


def _click(opened: Opened, slice_name: str, row: int) -> None:
    """A bar clicked, and all that follows of it: what the browser asks for, and the server's answer."""
    with opened.rerun():
        bars = opened.page.locator(f".st-key-slice_{slice_name} .bars").first
        bars.locator(".point path").nth(row).click(force=True)


FAILS = """
import ratioscope.app.pages.where as where
def fails(*_):
    raise ValueError("a bar that leads nowhere")
where._filtered = fails
"""


def test_a_click_that_fails_leaves_the_page_as_it_is(browser: Chromium, runs: Path, tmp_path: Path) -> None:
    renamed = Path(shutil.copytree(made(runs, "stale"), tmp_path / "picked"))
    with Dashboard([renamed], FAILS) as failing:
        opened = browser.visit(f"{failing.url}/where")
        _click(opened, "lag", 0)
        opened.page.get_by_text("This click failed: a bar that leads nowhere").wait_for()
        opened.page.get_by_role("link", name="Overview").first.click()
        opened.settled()
        assert "act · picked · ratioscope" in opened.page.title(), "the name of the tab is that of the picker"
        is_well(opened)
    assert "ValueError: a bar that leads nowhere" in failing.log
