"""A picker in a real browser: a reader types a metric's name or its title, and the address keeps the name."""

import pytest
from support.browser import Chromium, Dashboard, Opened, chromium, is_well, query

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")


def _pick(opened: Opened, key: str, typed: str) -> None:
    field = opened.page.locator(f".st-key-{key} input").first
    with opened.rerun():
        field.click()
        field.fill(typed)
        field.press("Enter")


def test_a_metric_is_found_by_its_name_and_by_its_title(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/where?run=stale")
    field = opened.page.locator(".st-key-metric input").first
    _pick(opened, "metric", "kl_direct")
    assert query(opened)["metric"] == "kl_direct" and field.input_value() == "KL, direct estimate · kl_direct"
    _pick(opened, "metric", "Largest |log")
    assert query(opened)["metric"] == "max_abs_log_ratio"
    again = browser.visit(opened.page.url)
    assert again.page.locator(".st-key-metric input").first.input_value() == "Largest |log-ratio| · max_abs_log_ratio"
    is_well(opened)


def test_a_choice_in_words_leaves_the_other_choices_and_back_restores_it(
    dashboard: Dashboard, browser: Chromium
) -> None:
    opened = browser.visit(f"{dashboard.url}/where?run=stale&heat=position&gap=total")
    page = opened.page
    _pick(opened, "metric", "kl_direct")
    assert query(opened).items() >= {"heat": "position", "gap": "total", "metric": "kl_direct"}.items()
    opened.go_to("Overview")
    assert "metric" not in query(opened) and query(opened)["gap"] == "total"
    page.go_back()
    page.wait_for_url(lambda url: "metric=kl_direct" in url)
    page.locator(".st-key-slice_heat .hm").wait_for(state="attached")
    opened.settled()
    assert page.locator(".st-key-metric input").first.input_value() == "KL, direct estimate · kl_direct"
    is_well(opened)


def test_metrics_picked_by_name_are_chips_in_words(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/charts?run=stale", width=420)
    _pick(opened, "metric", "pareto_k_seq")
    assert query(opened)["metric"] == "pareto_k_sequence"
    assert opened.page.get_by_text("Pareto k of sequence weights · pareto_k_sequence").count() >= 1
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    last = opened.page.locator(".st-key-groups button").last.bounding_box()
    assert last is not None and last["x"] + last["width"] <= 420  # no group of metrics is out of sight
    is_well(opened)


def test_a_link_is_followed_while_the_filter_is_open(dashboard: Dashboard, browser: Chromium) -> None:
    """The click closes the drawer too, and the page that was left is asked for once more."""
    opened = browser.visit(f"{dashboard.url}/?run=stale")
    with opened.rerun():
        opened.page.locator(".st-key-filter button").first.click()
    opened.go_to("Tokens")
    assert "/tokens" in opened.page.url
    is_well(opened)
