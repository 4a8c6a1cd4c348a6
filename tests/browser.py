"""A real server and a real browser for tests and for the gallery: Debian's Chromium, driven by Playwright.

`Dashboard` serves runs in a process of its own on a free port; `Chromium` opens its pages and keeps what went wrong in them:
errors of the console, exceptions, and every request to anything but this machine.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request, sync_playwright

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--font-render-hinting=none",
)  # fmt: skip
SERVE = """
import sys
from pathlib import Path
from ratioscope.app.server import serve
serve([Path(run) for run in sys.argv[1:]], on_ready=lambda url: print(url, flush=True))
"""
Theme = Literal["light", "dark"]
PROBES = ("/_stcore/health", "/_stcore/host-config")
"""Below a page's path Streamlit's own front end asks for these in vain before it finds them at the root."""


def chromium() -> str | None:
    """Where the browser is; None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Dashboard:
    """The dashboard of these runs, served while the context is open."""

    def __init__(self, runs: Sequence[Path]) -> None:
        self._command = [sys.executable, "-c", SERVE, *map(str, runs)]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError(f"the dashboard did not start: {self._process.communicate()[1]}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self.log = self._process.communicate(timeout=20)[1]
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.log = self._process.communicate()[1]

    @property
    def pid(self) -> int:
        return self._process.pid


@dataclass
class Opened:
    """A page in the browser, and what went wrong in it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def settled(self) -> None:
        """Waits until the script has run, no chart waits to be drawn, and nothing moves."""
        self.page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=60_000)
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('[data-testid=stPlotlyChart]')].every(e => e.querySelector('.main-svg'))"
            " && !document.querySelector('[data-testid=stSkeleton]')",
            timeout=60_000,
        )
        self.page.wait_for_timeout(400)  # Plotly's own fade-in; nothing in the page tells its end

    def go_to(self, title: str) -> None:
        """Follows the navigation to another page of the dashboard."""
        self.page.get_by_role("link", name=title, exact=True).click()
        self.page.wait_for_function(
            "title => document.querySelector('[data-testid=stTopNav] [aria-current=page]')?.innerText.trim() === title",
            arg=title,
        )
        self.page.wait_for_timeout(150)  # until the script has started: nothing in the page tells that it is about to
        self.settled()

    def resize(self, width: int, height: int = 900) -> None:
        self.page.set_viewport_size({"width": width, "height": height})
        self.settled()

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


class Chromium:
    """The browser, running while the context is open."""

    def __enter__(self) -> Self:
        self._playwright: Playwright = sync_playwright().start()
        self._contexts: dict[str, BrowserContext] = {}
        self._browser: Browser = self._playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._browser.close()
        self._playwright.stop()

    def visit(self, url: str, *, theme: Theme = "light", width: int = 1280, height: int = 900) -> Opened:
        """A new tab on this URL, settled: a session of its own. Tabs of one appearance share what the browser caches."""
        opened = Opened(self._tab(theme))
        opened.page.set_viewport_size({"width": width, "height": height})
        opened.page.on("console", lambda message: _note_message(opened, message))
        opened.page.on("pageerror", lambda error: opened.errors.append(f"pageerror: {error}"))
        opened.page.on("request", lambda request: _note_request(opened, request))
        opened.page.goto(url)
        opened.settled()
        return opened

    def file(self, path: Path, *, theme: Theme = "light", width: int = 1100, height: int = 900) -> Page:
        """A new tab on a file of this machine, once its charts are drawn."""
        page = self._tab(theme)
        page.set_viewport_size({"width": width, "height": height})
        page.goto(path.as_uri())
        page.wait_for_function(
            "() => [...document.querySelectorAll('.js-plotly-plot')].every(e => e.querySelector('.main-svg'))"
        )
        page.wait_for_timeout(500)
        return page

    def _tab(self, theme: Theme) -> Page:
        if theme not in self._contexts:
            self._contexts[theme] = self._browser.new_context(color_scheme=theme)
        return self._contexts[theme].new_page()


def _note_message(opened: Opened, message: ConsoleMessage) -> None:
    probe = any(message.location.get("url", "").endswith(path) for path in PROBES)
    if message.type == "error" and not probe:
        opened.errors.append(message.text)


def _note_request(opened: Opened, request: Request) -> None:
    if not request.url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")):
        opened.foreign.append(request.url)
