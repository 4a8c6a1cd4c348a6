"""The page Fix in a real browser: a threshold is dragged, a job is started, a configuration is copied, the link holds."""

import pytest
from support.browser import Chromium, Dashboard, chromium, is_well

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")


def test_a_dragged_cap_moves_the_numbers_and_the_link(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/fix?try=true")
    page = opened.page
    clipped = page.locator(".rs-fact-cards-light dd").first
    before = clipped.inner_text()
    thumb = page.locator(".st-key-cap_at [data-testid=stSliderThumbValue]").locator("xpath=..")
    thumb.scroll_into_view_if_needed()
    box = thumb.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] - 120, box["y"] + box["height"] / 2, steps=8)
    page.mouse.up()
    cap = thumb.inner_text()
    page.wait_for_url(f"**cap_at={cap}**")
    page.locator(".st-key-threshold_left").get_by_text(f"truncate token at {cap}").first.wait_for()
    opened.settled()
    assert float(cap) < 2 and clipped.inner_text() != before
    again = browser.visit(page.url)
    assert again.page.locator(".rs-fact-cards-light dd").first.inner_text() == clipped.inner_text()
    is_well(opened)
    is_well(again)


def test_the_keyboard_moves_a_threshold_too(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/fix?try=true")
    thumb = opened.page.locator(".st-key-cap_at").get_by_role("slider")
    thumb.focus()
    thumb.press("ArrowLeft")
    opened.page.wait_for_url("**cap_at=1.8**")
    opened.settled()
    is_well(opened)


def test_a_job_is_started_and_its_weights_and_settings_are_shown_and_copied(
    dashboard: Dashboard, browser: Chromium
) -> None:
    opened = browser.visit(f"{dashboard.url}/fix?lab=truncate:token:1.5,verl:decoupled_k3_rs_token_tis&trainer=trl")
    page = opened.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="from token rows").click()
    page.get_by_text("computed from the tokens of all 12 steps").wait_for()
    page.locator(".rs-compare-light", has_text="not computed yet").wait_for(state="detached")
    opened.settled()
    code = page.locator(".st-key-config_code").last
    code.hover()
    code.get_by_role("button", name="copy").click()
    page.wait_for_function(
        "async (wanted) => { const copied = await navigator.clipboard.readText();"
        " return wanted.every((part) => copied.includes(part)) }",
        arg=["GRPOConfig(", "vllm_importance_sampling_clip_max=1.5"],
    )
    page.locator(".st-key-trainer").get_by_role("radio", name="verl").click()
    page.wait_for_url("**trainer=verl**")
    page.locator(".rs-copied", has_text="rollout_is_threshold: 1.5").wait_for()
    opened.settled()
    is_well(opened)


def test_a_pasted_configuration_travels_in_the_link(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/fix?lab=none")
    page = opened.page
    page.get_by_role("button", name="your configuration").click()
    page.locator(".st-key-pasted textarea").fill("rollout_is: token\nrollout_is_threshold: 1.7")
    with opened.rerun():
        page.locator(".st-key-pasted textarea").press("Control+Enter")
    page.locator(".st-key-add_pasted button").click()
    page.wait_for_url("**verl%3D**")
    opened.settled()
    again = browser.visit(page.url)
    assert "rollout_is token" in again.page.locator(".rs-compare-light").inner_text()
    is_well(again)
