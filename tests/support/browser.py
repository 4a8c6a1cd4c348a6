"""A real server and a real browser for tests and for the gallery: Debian's Chromium, driven by Playwright.

`Dashboard` serves runs in a process of its own on a free port; `Chromium` opens its pages and keeps what went wrong in them:
errors of the console, exceptions, and every request to anything but this machine.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qs, urljoin, urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg, ForwardMsgMetadata, RunIdentity

from ratioscope.app.pages.pages import PAGES
from support.paths import SUPPORT
from support.serving import DEADLINE, killed_after

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--font-render-hinting=none", "--process-per-site",
)  # fmt: skip
SERVE = """
import os, sys
from pathlib import Path
from threading import Thread
from ratioscope.app.dashboard.model.opened_runs import RUNS
from ratioscope.app.dashboard.server.server import serve

def follow():
    while line := os.read(0, 1 << 16):
        os.environ[RUNS] = line.decode()
        print('served', flush=True)

def ready(url):
    print(url, flush=True)
    Thread(target=follow, daemon=True).start()

serve([Path(run) for run in sys.argv[1:]], on_ready=ready)
"""
"""A line that comes in names the runs that are served from then on; a line that goes out says that they are."""
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
NUMBERS = {
    "rerun": BackMsg.RERUN_SCRIPT_FIELD_NUMBER,
    "auto": ClientState.IS_AUTO_RERUN_FIELD_NUMBER,
    "fragment": ClientState.FRAGMENT_ID_FIELD_NUMBER,
    "begins": ForwardMsg.NEW_SESSION_FIELD_NUMBER,
    "ends": ForwardMsg.SCRIPT_FINISHED_FIELD_NUMBER,
    "early": ForwardMsg.FINISHED_EARLY_FOR_RERUN,
    "metadata": ForwardMsg.METADATA_FIELD_NUMBER,
    "run": ForwardMsgMetadata.RUN_FIELD_NUMBER,
    "fragments": RunIdentity.FRAGMENT_IDS_FIELD_NUMBER,
}
AT_REST = f"({(SUPPORT / 'at_rest.js').read_text()})({json.dumps(NUMBERS)})"
LOOKS = count(1)
Theme = Literal["light", "dark"]
SHOWN = ":is([data-testid=stTopNav], [data-testid=stSidebar]) [aria-current]"
EVERY_CHART = """!document.querySelector("[data-waits]") &&
  [...document.querySelectorAll(".rs-chart")].every(chart => chart.querySelector(".main-svg") || !chart.clientWidth)"""
COMPUTED = "!/is being computed|are being read/.test(document.body.innerText)"
PROBES = ("/_stcore/health", "/_stcore/host-config")
"""Below a page's path Streamlit's own front end asks for these in vain before it finds them at the root."""


def chromium() -> str | None:
    """Where the browser is, None where there is none. The headless shell has no windows to draw: it costs a quarter less."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


class Dashboard:
    """The dashboard of these runs, served while the context is open. before: code that its process runs first."""

    def __init__(self, runs: Sequence[Path], before: str = "") -> None:
        self.runs = list(runs)
        self._command = [sys.executable, "-c", before + SERVE, *map(str, runs)]

    def __enter__(self) -> Self:
        self._errors = TemporaryFile("w+")  # a pipe that nobody reads stops the dashboard once it is full
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self.url = self._answer()
        if not self.url:
            self._process.wait()
            raise RuntimeError(f"the dashboard did not print its address within {DEADLINE} s: {self._said()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.communicate()  # closes the pipes
        self.log = self._said()

    @contextmanager
    def with_runs(self, runs: Sequence[Path]) -> Iterator[Self]:
        """The same server, which serves these runs as long as the context is open: another would take 7 s of a processor."""
        before = self.runs
        self._serve(runs)
        try:
            yield self
        finally:
            self._serve(before)

    def _serve(self, runs: Sequence[Path]) -> None:
        assert self._process.stdin is not None
        print(json.dumps([str(run.resolve()) for run in runs]), file=self._process.stdin, flush=True)
        assert self._answer() == "served", "the dashboard has ended"
        self.runs = list(runs)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        with killed_after(DEADLINE, self._process):
            return self._process.stdout.readline().strip()

    def _said(self) -> str:
        with self._errors as errors:
            errors.seek(0)
            return errors.read()

    @property
    def pid(self) -> int:
        return self._process.pid


@dataclass
class Opened:
    """A page in the browser, and what went wrong in it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def awaits(self, what: str, condition: str, given: Any = None) -> None:
        """Waits for a condition on `given` in the page. Past the deadline the error says what was awaited, and what was there."""
        try:
            self.page.wait_for_function(f"given => {condition}", arg=given)
        except PlaywrightTimeout as error:
            there = self.page.evaluate("window.unrest?.()")
            raise AssertionError(f"{self.page.url} was awaited in vain: {what}. What is there: {there}") from error

    def settled(self) -> None:
        """Waits until the script has run as often as the page has asked for it, all is drawn, and nothing moves."""
        self.awaits("that its script has run, all is drawn and nothing moves", "isAtRest(given)", next(LOOKS))

    def computed(self) -> None:
        """Waits for what a page computes or reads after it is shown, as the diagnosis and the worst samples."""
        if not self.page.evaluate(COMPUTED):
            self.awaits("what it computes after it is shown", COMPUTED)
            self.settled()

    def looked_again(self) -> None:
        """Waits until the part that follows the run has begun and ended anew: then it knows what was written before the call."""
        ended = self.page.evaluate("runsEnded()")
        self.awaits("two more looks at the run", "runsEnded() > given", ended + 1)

    def drawn_whole(self) -> None:
        """Has every chart of the page drawn, however far from the screen it is, as a browser asks for before it prints."""
        self.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        self.awaits("every chart to be drawn", EVERY_CHART)

    @contextmanager
    def rerun(self) -> Iterator[None]:
        """What is done within asks for a run of the script, perhaps a moment later; the page is settled afterwards."""
        asked = self.page.evaluate("runsAsked()")
        yield
        self.awaits("a run of its script to be asked for", "runsAsked() > given", asked)
        self.settled()

    def go_to(self, title: str) -> None:
        """Follows the navigation to another page of the dashboard: to a topic, or to a tab of one."""
        topic = next((page.topic for page in PAGES if page.title == title), title)
        if title == topic or self.page.evaluate(f"document.querySelector('{SHOWN}')?.innerText.trim()") != topic:
            self._follow(topic, SHOWN)
        if title != topic:
            self._follow(title, ".st-key-tabs [aria-current=page]")

    def _follow(self, title: str, shown: str) -> None:
        """shown: the link of what is shown. In a narrow window the drawer of the navigation stays closed."""
        link = self.page.get_by_role("link", name=title, exact=True)
        if self.page.get_by_test_id("stTopNav").count():
            link.click()
        else:
            link.dispatch_event("click")
        self.awaits(f"the page {title}", f"document.querySelector('{shown}')?.innerText.trim() === given", title)
        self.settled()

    def zoom(self, key: str) -> None:
        """Draws a box over the middle of the chart of this key, as a reader does."""
        self.page.locator(f".st-key-{key} .rs-chart").first.scroll_into_view_if_needed()
        area = self.page.locator(f".st-key-{key} .nsewdrag").first
        area.scroll_into_view_if_needed()
        box = area.bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        self.page.mouse.move(box["x"] + 0.3 * box["width"], middle)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + 0.7 * box["width"], middle, steps=5)
        self.page.mouse.up()
        self.settled()

    def resize(self, width: int, height: int = 900) -> None:
        self.page.set_viewport_size({"width": width, "height": height})
        self.settled()

    def close_dialog(self, text: str = "") -> None:
        """Presses Escape until the dialog, or the drawer with this text, is gone, and the script has heard that it is.

        One that has just come does not listen yet, and one of which the script has not heard comes back with the next run.
        """
        dialog = self.page.get_by_text(text) if text else self.page.get_by_role("dialog")
        dialog.first.wait_for()
        for seconds in range(DEADLINE):
            self.page.keyboard.press("Escape")
            try:
                dialog.first.wait_for(state="hidden", timeout=1000)
                self.settled()
                if not dialog.first.is_visible():
                    return
            except PlaywrightTimeout:
                pass
            assert seconds < DEADLINE - 1, f"{self.page.url}: the dialog stays"

    @property
    def exceptions(self) -> int:
        """Boxes with a traceback."""
        return self.page.locator("[data-testid=stException]").count()

    def whole(self, tallest: int = 4000) -> None:
        """Makes the window as tall as the page, so that a picture holds all of it."""
        height = self.page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
        size = self.page.viewport_size
        assert size is not None
        self.resize(size["width"], min(int(height) + 8, tallest))


def is_well(opened: Opened) -> None:
    assert opened.exceptions == 0, opened.page.locator("[data-testid=stException]").first.inner_text()
    assert opened.errors == [] and opened.foreign == []


def query(opened: Opened) -> dict[str, str]:
    """What the URL of the tab says; of what stands there several times the first."""
    return {name: values[0] for name, values in parse_qs(urlsplit(opened.page.url).query).items()}


class Chromium:
    """The browser, running while the context is open."""

    def __enter__(self) -> Self:
        self._playwright: Playwright = sync_playwright().start()
        self._contexts: dict[str, BrowserContext] = {}
        self._held: dict[str, Page] = {}
        self._browser: Browser = self._playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._browser.close()
        self._playwright.stop()

    def visit(self, url: str, *, theme: Theme = "light", width: int = 1280, height: int = 900) -> Opened:
        """A new tab on this URL, settled: a session of its own. Tabs of one appearance share what the browser caches."""
        opened = Opened(self.tab(theme))
        opened.page.set_viewport_size({"width": width, "height": height})
        opened.page.on("console", lambda message: _note_message(opened, message))
        opened.page.on("pageerror", lambda error: opened.errors.append(f"pageerror: {error}"))
        opened.page.on("request", lambda request: _note_request(opened, request))
        self._hold_process(theme, url)
        opened.page.goto(url)
        opened.settled()
        return opened

    def _hold_process(self, theme: Theme, url: str) -> None:
        """Keeps a tab of this machine open. All tabs share its process, and with it the scripts that it has compiled."""
        if theme not in self._held:
            self._held[theme] = self.tab(theme)
            self._held[theme].goto(urljoin(url, PROBES[0]))

    def file(self, path: Path, *, theme: Theme = "light", width: int = 1100, height: int = 900) -> Page:
        """A new tab on a file of this machine, once its charts are drawn."""
        page = self.tab(theme)
        page.set_viewport_size({"width": width, "height": height})
        page.goto(path.as_uri())
        Opened(page).settled()
        return page

    def tab(self, theme: Theme = "light") -> Page:
        """An empty tab of this appearance."""
        if theme not in self._contexts:
            self._contexts[theme] = self._browser.new_context(color_scheme=theme)
            self._contexts[theme].set_default_timeout(1000 * DEADLINE)
            self._contexts[theme].add_init_script(AT_REST)
        return self._contexts[theme].new_page()

    def close_tabs(self) -> None:
        for context in self._contexts.values():
            for page in context.pages:
                if page not in self._held.values():
                    page.close()


def _note_message(opened: Opened, message: ConsoleMessage) -> None:
    probe = any(message.location.get("url", "").endswith(path) for path in PROBES)
    if message.type == "error" and not probe:
        opened.errors.append(message.text)


def _note_request(opened: Opened, request: Request) -> None:
    if not request.url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")):
        opened.foreign.append(request.url)
