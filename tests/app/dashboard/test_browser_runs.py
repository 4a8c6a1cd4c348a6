"""Runs and Metrics in a real browser: from the list to one run or to several laid over each other, and runs that begin later."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from support.browser import Chromium, Dashboard, Opened, chromium
from support.statistics_runs import write_statistics_run

from ratioscope.ingest.analysis.acknowledgements import tags_of
from ratioscope.ingest.run import open_run

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
ROW, FIRST = 31, 52
"""Height of a row of a table and the middle of its first one, in pixels; a table is drawn on a canvas."""
RING = """() => {
  const push = history.pushState.bind(history), tick = window.tickAgain;
  history.pushState = (...given) => { push(...given); tick(); [5, 30, 100].forEach(after => setTimeout(tick, after)) };
}"""
"""Whenever the URL changes, and shortly afterwards, the part of the page that draws itself asks for that once more."""


def test_from_the_list_to_one_run_and_to_several(server: Dashboard, browser: Chromium, tmp_path: Path) -> None:
    for number, name in enumerate("abc"):
        write_statistics_run(tmp_path / name, 20, seed=number)
    with server.with_runs([tmp_path]) as dashboard:
        opened = browser.visit(f"{dashboard.url}/runs")
        page = opened.page
        page.get_by_text("3 runs ·").wait_for()
        write_statistics_run(tmp_path / "d", 20, seed=3)
        page.get_by_text("4 runs ·").wait_for()
        page.get_by_text("not yet read").wait_for(state="detached")
        _click(opened, 14, 0)
        page.get_by_text("show its metrics").first.wait_for()
        _click(opened, 14, 1)
        page.get_by_text("compare 2 runs").first.wait_for()
        page.get_by_placeholder("tag", exact=True).fill("good")
        page.get_by_text("add tag").first.click()
        page.get_by_text("good 2").first.wait_for()
        assert [tags_of(open_run(tmp_path / name)) for name in "abc"] == [("good",), ("good",), ()]
        page.get_by_text("compare 2 runs").first.click()
        page.wait_for_url("**/charts?**")
        page.wait_for_url("**with=b**")
        opened.settled()
        assert _query(opened) == {"run": ["a"], "with": ["b"], "gap": ["mismatch"]}
        assert (
            page.locator(".rs-key-light span").all_inner_texts() and "b" in page.locator(".rs-key-light").inner_text()
        )
        assert opened.exceptions == 0 and opened.errors == [] and opened.foreign == []
        opened.go_to("Runs")
        _click(opened, 150, 2)
        page.wait_for_url("**run=c**")
        opened.settled()
        assert _query(opened)["run"] == ["c"] and opened.exceptions == 0


def test_timers_that_ring_while_a_page_is_left_take_nothing_out_of_its_link(
    server: Dashboard, browser: Chromium, tmp_path: Path
) -> None:
    for name in "ab":
        write_statistics_run(tmp_path / name, 20)
    with server.with_runs([tmp_path]) as dashboard:
        opened = browser.visit(f"{dashboard.url}/runs")
        page = opened.page
        page.get_by_text("not yet read").wait_for(state="detached")
        page.wait_for_function("() => window.tickAgain !== undefined")
        _click(opened, 14, 0)
        page.get_by_text("show its metrics").first.wait_for()
        _click(opened, 14, 1)
        page.get_by_text("compare 2 runs").first.wait_for()
        page.evaluate(RING)
        page.get_by_text("compare 2 runs").first.click()
        page.wait_for_url("**/charts?**")
        opened.settled()
        assert _query(opened) == {"run": ["a"], "with": ["b"], "gap": ["mismatch"]}
        opened.go_to("Sequences")
        assert "with" not in _query(opened), "the timers of the list have mixed two pages up"
        assert opened.exceptions == 0 and opened.errors == []


def _click(opened: Opened, x: int, row: int) -> None:
    table = opened.page.locator("[class*=st-key-runs_table] canvas").first
    table.click(position={"x": x, "y": FIRST + ROW * row}, force=True)


def _query(opened: Opened) -> dict[str, list[str]]:
    return parse_qs(urlsplit(opened.page.url).query)
