"""The diagnosis in a real browser: it arrives by itself, and its steps lead on."""

import pytest
from support.browser import Chromium, Dashboard, chromium, is_well, query

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
ANSWER = "The sampler's weights are older than the trainer's"


def test_the_answer_arrives_on_the_first_page_and_leads_to_its_proof(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale")
    opened.page.get_by_text(ANSWER).first.wait_for()
    with opened.rerun():
        opened.page.get_by_role("button", name="whole diagnosis").click()
    opened.page.wait_for_url("**/why?*")
    opened.page.get_by_role("heading", name="Likely cause").wait_for()
    opened.settled()
    assert opened.page.locator(".st-key-undoing_0 .js-plotly-plot").count() == 1
    assert opened.page.get_by_role("heading", name="Ruled out").count() == 1
    with opened.rerun():
        opened.page.get_by_role("button", name="14", exact=True).click()
    opened.page.wait_for_url("**/samples?*")
    assert query(opened)["step"] == "14"
    is_well(opened)
