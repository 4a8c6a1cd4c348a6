"""Hours with the dashboard open on a run that grows: it follows, and what server and tab hold stays where it was. Long only."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.browser import Chromium, Dashboard, Opened, chromium  # noqa: E402
from support.live_writer import Writer  # noqa: E402

from ratioscope.app.pages.pages import PAGES  # noqa: E402

from .figures import Figures  # noqa: E402

MOST_GROWTH = 64.0
"""MB between the means of the second and the last fifth. Convention: a megabyte kept at every refresh shows in minutes."""
BEGUN = 500
"""Steps on record before the first look, so that what grows with the run is small beside what a leak would be."""
EVERY_SECONDS = 5.0
VISIT_SECONDS = 60.0
"""Between two visitors, who open another page and leave."""
LATEST_SECONDS = 30.0
"""Until a committed step must be on the screen at the latest, on a machine that does all the other scenarios meanwhile."""
NEWEST = (
    "step => [...document.querySelectorAll('.st-key-header p')].some(p => p.textContent.includes(`step ${step} `))"
    " || [...document.querySelectorAll('.st-key-header p')].some(p => p.textContent.endsWith(`step ${step}`))"
)


def watched(folder: Path, *, minutes: float) -> Figures:
    """One process records a step every few seconds, a tab stays open on it, and others come and go."""
    figures = Figures(
        "A dashboard on a growing run", remarks=[f"A step every {EVERY_SECONDS:g} s, a visitor every minute"]
    )
    if chromium() is None:
        figures.demand(False, "no chromium: install it with the system's packages")
        return figures
    run = folder / "run"
    with Writer(run) as writer:
        steps = writer.write(BEGUN)
        with Dashboard([run]) as dashboard, Chromium() as browser:
            opened = browser.visit(dashboard.url)
            _watch(figures, (writer, dashboard, browser, opened), steps, minutes * 60)
        figures.demand(not dashboard.log.strip(), f"the server said: {dashboard.log.strip()[-300:]}")
    return figures


def _watch(figures: Figures, actors: tuple[Writer, Dashboard, Chromium, Opened], steps: int, seconds: float) -> None:
    writer, dashboard, browser, opened = actors
    megabytes: list[float] = []
    heap: list[float] = []
    waits: list[float] = []
    began = time.monotonic()
    visits = 0
    while (passed := time.monotonic() - began) < seconds:
        steps = writer.write(1)
        waits.append(_until_shown(opened, steps - 1))
        if passed > visits * VISIT_SECONDS:
            visits += 1
            _visit(figures, browser, _address(dashboard, visits))
        megabytes.append(_resident(dashboard.pid))
        heap.append(_heap(opened))
        opened.page.wait_for_timeout(max(0.0, EVERY_SECONDS - (time.monotonic() - began - passed)) * 1000)
    server, tab = _fifths(megabytes), _fifths(heap)
    for what, fifths in (("memory", server), ("the tab's heap", tab)):
        growth = fifths[-1] - fifths[1]
        figures.demand(growth < MOST_GROWTH, f"{what} by fifths of the time: {[round(part) for part in fifths]} MB")
    late = sum(wait >= LATEST_SECONDS for wait in waits)
    figures.demand(not late, f"{late} of {len(waits)} steps were not on the screen within {LATEST_SECONDS:g} s")
    figures.demand(not opened.errors, f"errors in the browser: {opened.errors[:3]}")
    figures.demand(not opened.foreign, f"requests to elsewhere: {opened.foreign[:3]}")
    figures.add(
        minutes=round(seconds / 60),
        steps=steps,
        visitors=visits,
        median_ms_until_shown=round(1000 * float(np.median(waits))),
        MB_at_first=round(server[1]),
        MB_at_last=round(server[-1]),
        MB_of_a_new_server=round(_of_a_new_server(figures, browser, dashboard)),
        tab_MB_at_first=round(tab[1]),
        tab_MB_at_last=round(tab[-1]),
    )


def _of_a_new_server(figures: Figures, browser: Chromium, old: Dashboard) -> float:
    """MB of a server that has only just been asked for every page of the run, as it is by now: what the run itself takes."""
    with Dashboard([old.runs[0]]) as dashboard:
        for visit in range(len(PAGES)):
            _visit(figures, browser, _address(dashboard, visit))
        return _resident(dashboard.pid)


def _fifths(values: Sequence[float]) -> list[float]:
    return [float(np.mean(part)) for part in np.array_split(np.array(values), 5)]


def _address(dashboard: Dashboard, visit: int) -> str:
    page = PAGES[visit % len(PAGES)]
    return f"{dashboard.url}/{page.path if page is not PAGES[0] else ''}"


def _heap(opened: Opened) -> float:
    """MB that a tab's scripts hold once what is no longer needed was thrown away."""
    session = opened.page.context.new_cdp_session(opened.page)
    session.send("Performance.enable")
    session.send("HeapProfiler.collectGarbage")
    told = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return float(told["JSHeapUsedSize"]) / (1 << 20)


def _until_shown(opened: Opened, step: int) -> float:
    """Seconds until the step that has just been committed stands in the header."""
    began = time.monotonic()
    try:
        opened.page.wait_for_function(NEWEST, arg=step, timeout=LATEST_SECONDS * 1000)
    except Exception:
        return LATEST_SECONDS
    return time.monotonic() - began


def _visit(figures: Figures, browser: Chromium, url: str) -> None:
    try:
        visitor = browser.visit(url)
    except Exception as error:
        figures.demand(False, f"{url} was not drawn: {str(error).splitlines()[0]}")
        return
    figures.demand(visitor.exceptions == 0 and not visitor.errors, f"{url}: {visitor.errors[:3] or 'an exception'}")
    visitor.page.close()


def _resident(pid: int) -> float:
    """MB of a process in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
