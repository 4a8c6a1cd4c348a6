"""From a distribution to a token in a real browser: clicks, keys, scrolling, deep links, and a response of 32,768 tokens."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Position
from support.browser import Chromium, Dashboard, Opened, chromium, is_well, query
from support.edge_runs import made

from ratioscope.collectors.collector import Collector

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
LENGTH = 32_768


def long_run(folder: Path) -> Path:
    """One response of LENGTH tokens with text, all policies, and one token that stands out, at 20,000."""
    draws = np.random.default_rng(0)
    rollout = -draws.exponential(0.6, LENGTH)
    old = np.minimum(-1e-6, rollout + draws.normal(0, 0.03, LENGTH))
    rollout[20_000], old[20_000] = -0.01, -7.0
    words = np.array(["The", " answer", " is", "\n", " 42", ",", " so", " we"])[draws.integers(0, 8, LENGTH)]
    with Collector(folder) as collector:
        collector.log(
            step=3,
            minibatch=0,
            rollout_logprobs=[rollout.tolist()],
            old_logprobs=[old.tolist()],
            current_logprobs=[(old - 0.001).tolist()],
            entropy=[np.abs(rollout).tolist()],
            token_texts=[words.tolist()],
            mask=[(np.arange(LENGTH) // 700 % 7 != 3).tolist()],
            sequence_ids=["a long response"],
        )
    return folder


SERVED = (partial(made, name="stale"), partial(made, name="hostile"), lambda runs: long_run(runs / "long"))


@pytest.mark.parametrize("over", ["run", "step&step=0"])
def test_from_a_cell_of_the_heat_map_to_its_tokens(dashboard: Dashboard, browser: Chromium, over: str) -> None:
    opened = browser.visit(f"{dashboard.url}/distributions?run=stale&over={over}")
    page = opened.page
    points = page.locator(".st-key-heat .scatterlayer .trace .points path")
    points.nth(points.count() // 2).click(force=True)
    page.wait_for_url("**/samples?**")
    opened.settled()
    asked = query(opened)
    assert ":" in asked["within"] and int(asked["step"]) in range(2, 23, 2)
    assert "with tokens of log-ratio" in page.content()
    is_well(opened)


def test_from_a_cell_of_the_token_heat_or_a_search_to_its_token(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/samples?run=stale&step=14&list=token+heat")
    page = opened.page
    cells = page.locator(".st-key-token_heat .nsewdrag").first
    cells.scroll_into_view_if_needed()
    cells.click(position={"x": 3, "y": 3})
    page.wait_for_url("**/tokens?**")
    opened.settled()
    assert query(opened)["at"] == "0" and "is not in this step" not in page.content()
    opened = browser.visit(f"{dashboard.url}/samples?run=long&search=%2Fthe+so+we%2F")
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_url("**/tokens?**at=**")
    opened.settled()
    assert "The" in (opened.page.locator(".rs-text i.t").text_content() or "")
    is_well(opened)


def test_a_bar_of_one_step_leads_to_its_sequences(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/distributions?run=stale&over=step&step=14&level=sequence")
    bars = opened.page.locator(".st-key-weights .bars .point path")
    bars.nth(0).click(force=True)
    opened.page.wait_for_url("**/samples?**")
    opened.settled()
    asked = query(opened)
    assert asked["step"] == "14" and asked["column"] == "log_ratio_sum" and "most" in asked
    is_well(opened)


def test_keys_walk_the_list_and_open_a_row(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/samples?run=stale&step=14")
    page = opened.page
    page.keyboard.press("j")
    page.get_by_text("row 2 of 32").wait_for()
    page.keyboard.press("Shift+K")
    page.wait_for_url("**step=12**")
    opened.settled()
    page.keyboard.press("]")
    page.wait_for_url("**step=14**")
    opened.settled()
    page.keyboard.press("Enter")
    page.wait_for_url("**/tokens?**")
    opened.settled()
    second = query(opened)["sequence"]
    assert second.startswith("14-") and page.locator(".rs-text i").count() > 3
    third = _row_clicked(opened, 2)
    with opened.rerun():
        page.keyboard.press("k")
    assert query(opened)["sequence"] == second != third == _row_clicked(opened, 2), "the same cell, a second time"
    is_well(opened)


def _row_clicked(opened: Opened, row: int) -> str:
    """The sequence that is shown after a click on this row of the list."""
    box = opened.page.locator(".st-key-list_rows canvas").first.bounding_box()
    assert box is not None
    with opened.rerun():
        opened.page.mouse.click(box["x"] + 60, box["y"] + 35 * (row + 1.5))
    return query(opened)["sequence"]


def test_the_worst_token_is_one_key_away_and_scrolled_to(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/tokens?run=long")
    page = opened.page
    page.keyboard.press("n")
    page.wait_for_url("**at=20000**")
    opened.settled()
    _wait_until_in_sight(opened)
    assert "position 20000" in (page.locator(".rs-text i.t").get_attribute("data-h") or "")
    page.keyboard.press("n")
    page.get_by_text("2nd of").wait_for()
    page.keyboard.press("Shift+N")
    page.wait_for_url("**at=20000**")
    opened.settled()
    is_well(opened)


def test_a_link_to_a_token_scrolls_to_it_and_a_click_on_the_strip_to_another(
    dashboard: Dashboard, browser: Chromium
) -> None:
    link = f"{dashboard.url}/tokens?run=long&step=3&sequence=a+long+response&gap=total&at=20000&from=19520"
    opened = browser.visit(link)
    page = opened.page
    _wait_until_in_sight(opened)
    assert page.locator(".rs-text").evaluate("e => e.scrollTop") > 0
    page.locator(".st-key-strip .main-svg").first.click(position={"x": 300, "y": 120}, force=True)
    page.wait_for_function("() => !location.search.includes('at=20000')")
    opened.settled()
    _wait_until_in_sight(opened)
    assert int(query(opened)["at"]) < 12_000
    is_well(opened)


def test_ticked_sequences_stand_side_by_side(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/samples?run=stale&step=14")
    for row in (0, 1):
        with opened.rerun():
            place: Position = {"x": 17, "y": 35 * (row + 1.5)}
            opened.page.locator(".st-key-sequence_rows_0 canvas").first.click(position=place, force=True)
    opened.page.get_by_role("button", name="2 side by side").click()
    opened.page.wait_for_url("**/tokens?**beside=**")
    opened.settled()
    assert opened.page.locator(".st-key-side_by_side_cells .rs-text").count() == 2
    is_well(opened)


def test_hostile_ids_open_their_own_sequence(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/samples?run=hostile&step=1")
    opened.page.keyboard.press("j")
    opened.page.get_by_text("row 2 of").wait_for()
    opened.settled()
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_url("**/tokens?**")
    opened.settled()
    assert "is not in this step" not in opened.page.content()
    assert opened.page.evaluate("window.hacked") is None
    opened.page.get_by_role("button", name="all samples of this prompt").click()
    opened.page.wait_for_url("**/samples?**")
    opened.settled()
    assert "1 sample of one prompt" in opened.page.content()
    is_well(opened)


def test_a_sequence_can_be_downloaded_as_json(dashboard: Dashboard, browser: Chromium, tmp_path: Path) -> None:
    opened = browser.visit(f"{dashboard.url}/tokens?run=stale&step=14&json=true")
    with opened.page.expect_download() as download:
        opened.page.get_by_role("button", name="download sequence.json").click()
    download.value.save_as(tmp_path / "sequence.json")
    assert '"schema": "ratioscope.sequence/1"' in (tmp_path / "sequence.json").read_text()


def _wait_until_in_sight(opened: Opened) -> None:
    """Until the chosen token lies in the part of the text that is shown."""
    opened.page.wait_for_function(
        "() => { const t = document.querySelector('.rs-text i.t').getBoundingClientRect(),"
        " s = document.querySelector('.rs-text').getBoundingClientRect();"
        " return t.top >= s.top && t.bottom <= s.bottom }"
    )
