"""Questions of a newcomer, answered in a browser from the dashboard's address alone, in few steps and with no dead end.

The docs hold the table of the questions (docs/develop/dashboard.md); this file holds it to what the pages really take.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest
from playwright.sync_api import Position
from support.browser import Chromium, Dashboard, Opened, chromium, query
from support.paths import ROOT

from ratioscope.app.cli.commands.demo import sample_runs
from ratioscope.app.presentation.escape import visible
from ratioscope.app.presentation.theme import LIGHT
from ratioscope.ingest.run import open_run

pytestmark = pytest.mark.skipif(chromium() is None, reason="needs Chromium: tests/support/install_chromium.sh")
SERVED = (lambda runs: sample_runs()["stale"], lambda runs: sample_runs()["healthy"])
ICON = "document.querySelector('link[rel*=icon]').href"
TOP = "document.querySelector('[data-line]').getBoundingClientRect().top"
FIRST_ROW: Position = {"x": 300, "y": 52}
"""A place in the first row of a table, which is drawn on a canvas."""


@dataclass(frozen=True)
class Task:
    """A question, and how a newcomer gets to the answer."""

    question: str
    way: tuple[str, ...]
    """Actions from the address on: `page NAME` of the navigation, `button KEY`, `numbers KEY` below a chart, `row KEY` the first
    row of a table, `type KEY TEXT` into a field, `enter KEY TEXT` with the enter key behind it."""
    answer: str | Callable[[str], str]
    """Words that answer it and can be read in the window then; or what they are, by the address of the page."""


def worst_token(address: str) -> str:
    """The text of the token with the largest log-ratio in the sequence that the page shows, read from the run itself."""
    asked = parse_qs(urlsplit(address).query)
    tokens = open_run(sample_runs()["stale"]).sequence(int(asked["step"][0]), asked["sequence"][0])
    sizes = (tokens["old_logprob"] - tokens["rollout_logprob"]).abs()
    worst = tokens.filter(tokens["mask"]).item(sizes.filter(tokens["mask"]).arg_max(), "token_text")
    return f"“{visible(worst)}”"


TASKS = (
    Task("Since when?", (), "since step 21"),
    Task("What do I do?", ("page Why",), "Look at what happened at this step"),
    Task("Is it over now?", (), "act since step 21"),
    Task("What was not checked?", (), "17 of 18 checks ran"),
    Task("Is it my trainer or vLLM?", (), "Which side is off?"),
    Task("Which replica?", ("page Why", "page Where"), "By engine replica: not available, because"),
    Task("Did the weights arrive?", ("page Why", "page Staleness and settings"), "Did the weights arrive?"),
    Task("How does it compare with a pinned run?", ("page Runs", "page Compare"), "47 times"),
    Task("What is the worst token's text?", ("button to_worst", "row sequence_rows_0"), worst_token),
    Task("How do I send it to a colleague?", ("button share",), "-o pages.html"),
    Task("Which setting is it?", ("page Why",), "settings none on record differs"),
    Task("Was anything dropped or lost?", (), "0 dropped"),
    Task("Is my correction enough?", ("page Fix",), "The run's own truncate token at 3 clips"),
    Task("What if I sync every two updates?", ("page Fix",), "With a sync every 2 updates the mean K3 would be 0.0020"),
    Task("How do I get these numbers as CSV?", ("numbers chart_kl_k3",), "CSV, 60 rows"),
)
NOTE = ("button note", "type note_text restarted node 7", "enter note_step 30")


@dataclass(frozen=True)
class Found:
    """The page that a newcomer sees at the end of a way."""

    address: str
    """The page's."""
    words: str
    """The text that can be read in the window, without the joiners that keep a text from being read as Markdown."""
    wrong: list[str]
    """Tracebacks, and errors of the console."""


@pytest.fixture(scope="module")
def ends(dashboard: Dashboard) -> Callable[[Chromium, tuple[str, ...]], Found]:
    """The page at the end of a way from the address that the dashboard prints.

    The ways that only follow the navigation are gone in one tab: each page is one click away from each other page.
    """
    navigated = sorted({task.way for task in TASKS if all(step.startswith("page") for step in task.way)}, key=len)

    @cache
    def by_navigation(browser: Chromium) -> dict[tuple[str, ...], Found]:
        opened = _arrived(browser, dashboard.url)
        return {way: _end_of(opened, way) for way in navigated}

    def end(browser: Chromium, way: tuple[str, ...]) -> Found:
        return by_navigation(browser)[way] if way in navigated else _end_of(_arrived(browser, dashboard.url), way)

    return end


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.question)
def test_a_newcomer_finds_the_answer(
    ends: Callable[[Chromium, tuple[str, ...]], Found], browser: Chromium, task: Task
) -> None:
    found = ends(browser, task.way)
    assert (task.answer if isinstance(task.answer, str) else task.answer(found.address)) in found.words
    assert found.wrong == []


def test_a_newcomer_notes_what_happened_in_three_actions(browser: Chromium, server: Dashboard, tmp_path: Path) -> None:
    shutil.copytree(sample_runs()["stale"], tmp_path / "tonight")
    with server.with_runs([tmp_path / "tonight"]) as dashboard:
        found = _end_of(_arrived(browser, dashboard.url), NOTE)
    assert "Noted at step 30." in found.words and found.wrong == [] and len(NOTE) == 3
    assert open_run(tmp_path / "tonight").events.filter(step=30, event="note")["note"].to_list() == ["restarted node 7"]


def _arrived(browser: Chromium, address: str) -> Opened:
    opened = browser.visit(address, width=1440, height=900)
    opened.computed()
    return opened


def _end_of(opened: Opened, way: tuple[str, ...]) -> Found:
    for step in way:
        _go(opened, *step.split(" ", 1))
    opened.computed()
    words = opened.page.locator("body").inner_text().replace("\u2060", "")
    return Found(opened.page.url, words, [*["traceback"] * opened.exceptions, *opened.errors])


@pytest.mark.parametrize("run", ["trl-vllm-stale", "trl-vllm-healthy"])
def test_the_answer_and_its_pictures_are_on_the_first_screen(dashboard: Dashboard, browser: Chromium, run: str) -> None:
    opened = _arrived(browser, f"{dashboard.url}/?run={run}")
    for part in ("[class^=rs-verdict]", ".st-key-to_checks", ".st-key-chart_kl_k3 .rs-chart", "[class^=rs-samples]"):
        assert _end(opened, part) < 900, part
    word = run.rsplit("-", 1)[-1].replace("stale", "act")
    icon = urlopen(opened.page.evaluate(ICON)).read().decode()
    assert word in opened.page.title() and LIGHT.severity[word] in icon, "the tab tells it too"
    opened.awaits("the worst samples", "document.querySelector('[data-line]')")
    assert opened.page.locator("[data-line]").count() == 5
    assert opened.page.evaluate(f"{TOP} < 900"), "the first of them begins on the first screen"
    opened.page.locator("[data-line]").first.click()
    opened.page.wait_for_url("**/tokens?**")
    opened.settled()
    assert {"step", "sequence", "at"} <= {*query(opened)} and not opened.exceptions


def _end(opened: Opened, part: str) -> float:
    """The lower end of a part of the page, in pixels below the top of the window."""
    return float(opened.page.evaluate(f"document.querySelector('{part}').getBoundingClientRect().bottom"))


def _go(opened: Opened, kind: str, name: str) -> None:
    if kind == "page":
        opened.go_to(name)
    elif kind == "row":
        opened.page.locator(f".st-key-{name} canvas").first.click(position=FIRST_ROW, force=True)
        opened.page.wait_for_url("**/tokens?**")
    elif kind == "numbers":
        opened.page.locator(f".st-key-{name} .rs-numbers").click()
        opened.page.get_by_role("dialog").wait_for()
    elif kind in ("type", "enter"):
        key, words = name.split(" ", 1)
        opened.page.locator(f".st-key-{key} input").fill(words)
        opened.page.keyboard.press("Enter" if kind == "enter" else "Tab")
    else:
        opened.page.locator(f".st-key-{name} button").first.click()
        if name.startswith("to_"):
            opened.page.wait_for_url("**/samples?**")
    opened.settled()


def test_the_docs_have_the_table_of_the_tasks() -> None:
    page = (ROOT / "docs" / "develop" / "dashboard.md").read_text(encoding="utf-8")
    for task in TASKS:
        assert f"| {task.question} | {len(task.way)} |" in page, task.question
