"""The pages in a real browser on a real server: nothing breaks, nothing leaves the machine, no data runs, links hold."""

import socket
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.browser import Chromium, Dashboard, chromium, is_well, query
from support.edge_runs import made
from support.serving import DEADLINE

from ratioscope.app.pages.pages import LETTERS, MOVED, PAGES, TOPICS
from ratioscope.collectors.collector import Collector

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")


def test_from_a_red_step_to_a_token_in_three_clicks(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=stale")
    page = opened.page
    page.locator(".st-key-chart_kl_k3 .bars .point path").nth(6).click(force=True)
    page.wait_for_url("**/samples?**")
    opened.settled()
    assert query(opened)["step"] == "12" and "step 12: ■ act" in page.content()

    table = page.locator(".st-key-sequence_rows_0 canvas").first
    table.click(position={"x": 300, "y": 52}, force=True)  # in the first row: a table is drawn on a canvas
    page.wait_for_url("**/tokens?**")
    opened.settled()
    asked = query(opened)
    assert asked["step"] == "12" and asked["sequence"].startswith("12-") and page.locator(".rs-text i").count() > 3

    token = page.locator(".rs-text i").nth(1)
    token.hover()
    facts = token.get_attribute("data-h") or ""
    assert "rollout" in facts and "weight" in facts
    shown = page.evaluate("getComputedStyle(document.querySelectorAll('.rs-text i')[1], '::after').content")
    assert "rollout" in shown
    with opened.rerun():
        token.click()
    assert query(opened)["at"] == "1" and "position 1" in (page.locator(".rs-text i.t").get_attribute("data-h") or "")
    page.locator(".st-key-strip").hover()
    page.wait_for_function("() => document.querySelector('.st-key-strip .hoverlayer').textContent.includes('rollout')")
    is_well(opened)


def test_a_growing_run_is_drawn_anew_by_itself(server: Dashboard, browser: Chromium, tmp_path: Path) -> None:
    with Collector(tmp_path / "run") as collector, server.with_runs([tmp_path / "run"]) as dashboard:
        opened = browser.visit(dashboard.url)
        opened.page.locator("pre", has_text="ratioscope.attach").wait_for()
        for step in range(3):
            collector.log(step=step, rollout_logprobs=[[-1.0, -2.0]], old_logprobs=[[-1.1, -2.0]])
            collector.flush(timeout=60)
            opened.page.get_by_text(f"live · step {step} ·").wait_for()
        opened.settled()
        opened.page.wait_for_function("() => document.title === '● healthy · run · ratioscope'")
        is_well(opened)


def test_the_keyboard_walks_through_sequences_and_the_link_follows(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/tokens?run=stale&step=6")
    page = opened.page
    first = page.locator(".rs-text").inner_text()
    page.keyboard.press("j")
    page.wait_for_url("**sequence=**")
    opened.settled()
    second = page.locator(".rs-text").inner_text()
    again = browser.visit(page.url)
    assert second != first and again.page.locator(".rs-text").inner_text() == second
    page.keyboard.press("k")
    page.wait_for_function(f"() => document.querySelector('.rs-text').innerText === {first!r}")


def test_g_and_a_letter_open_a_page_and_keep_the_run(dashboard: Dashboard, browser: Chromium) -> None:
    assert sorted(LETTERS.values()) == sorted(card.path for card in PAGES)
    opened = browser.visit(f"{dashboard.url}/?run=healthy")
    for letter, path in (("c", "fix"), ("w", "where"), ("t", "tokens"), ("r", "runs"), ("o", "")):
        opened.page.keyboard.press("g")
        opened.page.keyboard.press(letter)
        opened.page.wait_for_url(f"**/{path}?*run=healthy*")
        opened.settled()
    is_well(opened)


def test_the_navigation_has_seven_topics_and_each_page_is_a_tab_of_one(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/where?run=healthy")
    links = opened.page.get_by_test_id("stTopNavLink")
    assert [text.strip() for text in links.all_inner_texts()] == [*TOPICS] and len(TOPICS) == 7
    tabs = opened.page.locator(".st-key-tabs a:visible")
    assert tabs.all_inner_texts() == [page.title for page in PAGES if page.topic == "Why"]
    here = opened.page.locator("[aria-current]:visible")
    assert here.all_inner_texts() == ["Why", "Where"], "the reader sees the topic and the tab"
    opened.go_to("Fix")
    assert here.all_inner_texts() == ["Fix"] and not tabs.count(), "a topic of one page has no tabs"
    is_well(opened)


@pytest.mark.parametrize(("old", "path"), MOVED.items())
def test_an_address_of_an_earlier_release_leads_to_the_page_with_its_choices(
    dashboard: Dashboard, browser: Chromium, old: str, path: str
) -> None:
    opened = browser.visit(f"{dashboard.url}/{old}?run=healthy&gap=drift&groups=main&groups=tails&step=6")
    opened.page.wait_for_url(f"**/{path}?**")
    asked = query(opened)
    assert (asked["run"], asked["gap"]) == ("healthy", "drift") or path == "record"
    if path == "charts":
        assert "groups=main&groups=tails" in opened.page.url
    is_well(opened)


def test_the_address_of_many_runs_opens_the_list(browser: Chromium, dashboard: Dashboard, runs: Path) -> None:
    few = [made(runs, name) for name in ("stale", "healthy", "one_step")]
    with dashboard.with_runs(few):
        assert browser.visit(dashboard.url).page.locator("[aria-current]:visible").first.inner_text() == "Overview"
    with dashboard.with_runs([*few, made(runs, "bypass")]):
        opened = browser.visit(dashboard.url)
        opened.page.wait_for_url("**/runs*")
        opened.settled()
        opened.go_to("Overview")
        assert urlsplit(opened.page.url).path == "/", "the reader asks for it"
        assert urlsplit(browser.visit(f"{dashboard.url}/?run=stale").page.url).path == "/", (
            "a link to a run opens the run"
        )
        is_well(opened)


def test_the_gap_and_the_run_stay_when_the_page_changes(dashboard: Dashboard, browser: Chromium) -> None:
    opened = browser.visit(f"{dashboard.url}/?run=healthy&gap=drift")
    for title in ("Distributions", "Sequences", "Tokens", "Overview"):
        opened.go_to(title)
        assert query(opened) | {"run": "healthy", "gap": "drift"} == query(opened)
        assert "old" in opened.page.content() and opened.page.get_by_text("current − old").count() >= 1
    is_well(opened)


def test_the_server_listens_on_this_machine_alone(dashboard: Dashboard) -> None:
    port = urlsplit(dashboard.url).port
    assert port is not None
    wanted = f":{port:04X}"
    for table, loopback in (("tcp", "0100007F"), ("tcp6", "00000000000000000000000001000000")):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            assert not (local.endswith(wanted) and state == "0A") or local.startswith(loopback)
    with socket.create_connection(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize("path", ["/", "/_stcore/health", "/_stcore/stream", "/media/x", "/tokens"])
def test_a_forged_host_or_origin_is_refused_on_every_path(dashboard: Dashboard, path: str) -> None:
    port = urlsplit(dashboard.url).port
    for header in ({"Host": "evil.example"}, {"Host": f"evil.example:{port}"}, {"Origin": "http://evil.example"}):
        request = urllib.request.Request(dashboard.url + path, headers=header)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=DEADLINE)
        refused.value.close()
        assert refused.value.code in (403, 421)


@pytest.mark.parametrize(
    "header", ["Host: evil.example\r\nOrigin: http://evil.example", "Host: {host}\r\nOrigin: http://evil.example"]
)
def test_a_forged_websocket_is_refused(dashboard: Dashboard, header: str) -> None:
    parts = urlsplit(dashboard.url)
    assert parts.port is not None
    with socket.create_connection(("127.0.0.1", parts.port), timeout=DEADLINE) as connection:
        lines = (
            "GET /_stcore/stream HTTP/1.1", header.format(host=parts.netloc), "Connection: Upgrade", "Upgrade: websocket",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "\r\n",
        )  # fmt: skip
        connection.sendall("\r\n".join(lines).encode())
        assert connection.recv(64).split()[1] == b"403"


def test_every_answer_says_what_a_browser_may_do_with_it(dashboard: Dashboard) -> None:
    for path in ("/", "/_stcore/health", "/nothing"):
        with urllib.request.urlopen(dashboard.url + path, timeout=DEADLINE) as answer:
            assert "connect-src 'self'" in answer.headers["content-security-policy"]
            assert (
                answer.headers["x-content-type-options"] == "nosniff"
                and answer.headers["referrer-policy"] == "no-referrer"
            )
