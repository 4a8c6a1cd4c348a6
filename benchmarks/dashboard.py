"""How long the dashboard takes to paint, in a real browser: 8 runs of 10,000 steps, and a sequence of 32,768 tokens.

    python benchmarks/dashboard.py [--steps 10000] [--runs 8] [--repeat 3] [--peers]

Half of the runs are of sequences of 60 tokens, half of 60,000: what a page reads does not depend on it. --peers installs
TensorBoard into .venv/peers unless it is there, and shows as many runs, steps and series in the same browser. Runs are kept in
the system's temporary folder; making them takes minutes the first time.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import numpy as np
from _interactions import OF_A_LONG_SEQUENCE, OF_A_RUN, answers
from _long_runs import FOLDER, Shape, long_runs, records
from _painted import CHART_OF_TENSORBOARD, FIRST_CHART, VERDICT, WHOLE, machine, processor_seconds, seconds_until, told
from _served import served
from playwright.sync_api import Page

# pyright does not see what sys.path holds at run time
from support.browser import Chromium, Dashboard  # pyright: ignore[reportMissingImports]
from support.run_folders import FakeWriter, by_step  # pyright: ignore[reportMissingImports]

from ratioscope.app.pages.pages import TOPICS
from ratioscope.app.presentation.metric_places import names_at
from ratioscope.ingest.run import open_run

FIRST_PAINT, SWITCH, INTERACTION, LONG_SEQUENCE, LAID_OVER = 2.0, 0.7, 0.3, 1.0, 1.0
TOKENS = 32_768
PEERS = Path(__file__).parent.parent / ".venv" / "peers"
SERIES = 6
"""Series of each run that the peer is given: as many charts as the first page paints."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peers", action="store_true")
    chosen = parser.parse_args()
    runs = long_runs(chosen.steps, chosen.runs)
    long_sequence = _long_sequence()
    print(f"{chosen.runs} runs of {chosen.steps} steps on {machine()}")
    with Chromium() as browser, tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        for start in ("nothing kept from earlier starts", "a second start"):
            with Dashboard([*runs, long_sequence]) as dashboard:
                _visits(browser, dashboard.url, runs, chosen.repeat, start)
                if start == "a second start":
                    _pages(browser, dashboard.url, runs, chosen.steps - 1, chosen.repeat)
                    _laid_over(browser, dashboard.url, runs, chosen.repeat)
                    _tokens(browser, dashboard.url, long_sequence, chosen.repeat)
                _wait_for_warmth(dashboard.pid)
        if chosen.peers or (PEERS / "bin" / "tensorboard").exists():
            _peer(browser, runs, chosen.repeat)
        else:
            print("no peer is installed; --peers installs one and shows the same scalars in it")


def _visits(browser: Chromium, url: str, runs: Sequence[Path], repeat: int, start: str) -> None:
    """The first page: right after the server has answered, and in later sessions."""
    place = f"{url}/?run={quote(runs[0].name)}"
    page = _tab(browser)
    first = seconds_until(page, FIRST_CHART, lambda: page.goto(place))
    whole = first + seconds_until(page, WHOLE, lambda: None)
    print(told(f"first page, {start}: first chart", [first], FIRST_PAINT))
    print(told(f"first page, {start}: whole", [whole]))
    page.close()
    for root in (runs[0], runs[-1]):
        verdict, chart, painted = [], [], []
        for _ in range(repeat + 1):
            page = _tab(browser)
            verdict.append(seconds_until(page, VERDICT, lambda: page.goto(f"{url}/?run={quote(root.name)}")))  # noqa: B023
            chart.append(verdict[-1] + seconds_until(page, FIRST_CHART, lambda: None))
            painted.append(chart[-1] + seconds_until(page, WHOLE, lambda: None))
            page.close()
        print(told(f"first page, {start}, {root.name}: first visit", chart[:1], FIRST_PAINT))
        print(told(f"first page, {start}, {root.name}: later visits, verdict", verdict[1:], FIRST_PAINT))
        print(told(f"first page, {start}, {root.name}: later visits, first chart", chart[1:], FIRST_PAINT))
        print(told(f"first page, {start}, {root.name}: later visits, whole", painted[1:]))


def _pages(browser: Chromium, url: str, runs: Sequence[Path], step: int, repeat: int) -> None:
    """From page to page by the navigation, each first once and then again; and what is done to a page.

    step: one with token rows, so that there are sequences and tokens to show.
    """
    for root in (runs[0], runs[-1]):
        page = _tab(browser)
        page.goto(f"{url}/samples?run={quote(root.name)}&step={step}")
        page.wait_for_function(WHOLE)
        titles = [*TOPICS[2:], TOPICS[1]]
        took: dict[str, list[float]] = {title: [] for title in titles}
        for _ in range(repeat + 1):
            for title in titles:
                took[title].append(_switched(page, title))
        for title in titles:
            print(told(f"{root.name}, to {title}: first time", took[title][:1]))
            print(told(f"{root.name}, to {title}: again", took[title][1:], SWITCH))
        for act in OF_A_RUN:
            print(told(f"{root.name}, {act.about}", answers(page, url, root.name, step, act, repeat), INTERACTION))
        page.close()


def _laid_over(browser: Chromium, url: str, runs: Sequence[Path], repeat: int) -> None:
    """All runs in the charts of one page: on a visit, and when the last of them is added to the others."""
    names = [root.name for root in runs[:8]]
    took = []
    for _ in range(repeat + 1):
        page = _tab(browser)
        place = _beside(url, names)
        took.append(seconds_until(page, FIRST_CHART, lambda: page.goto(place)))  # noqa: B023
        page.close()
    print(told(f"{len(names)} runs laid over each other: first visit", took[:1]))
    print(told(f"{len(names)} runs laid over each other: later visits", took[1:], FIRST_PAINT))
    page = _tab(browser)
    added = []
    for _ in range(repeat + 1):
        page.goto(_beside(url, names[:-1]))
        page.wait_for_function(WHOLE)
        page.locator(".st-key-with input").click()
        option = page.get_by_role("option", name=names[-1], exact=True)
        option.wait_for()
        asked = page.evaluate("runsAsked()")
        added.append(seconds_until(page, f"asked => hasRun(asked) && ({WHOLE})()", option.click, asked))
    page.close()
    print(told(f"run {len(names)} added to the others in all charts", added, LAID_OVER))


def _beside(url: str, names: Sequence[str]) -> str:
    """The address of the first of these runs with the others in its charts."""
    return f"{url}/charts?run={quote(names[0])}&{'&'.join(f'with={quote(name)}' for name in names[1:])}"


def _tokens(browser: Chromium, url: str, root: Path, repeat: int) -> None:
    took = []
    for _ in range(repeat + 1):
        page = _tab(browser)
        page.goto(f"{url}/record?run={quote(root.name)}")
        page.wait_for_function(WHOLE)
        took.append(_switched(page, "Samples"))
        page.close()
    print(told(f"sequence of {TOKENS:,} tokens: first time", took[:1], LONG_SEQUENCE))
    print(told(f"sequence of {TOKENS:,} tokens: again", took[1:], LONG_SEQUENCE))
    page = _tab(browser)
    for act in OF_A_LONG_SEQUENCE:
        print(told(act.about, answers(page, url, root.name, 0, act, repeat), INTERACTION))
    page.close()


def _switched(page: Page, title: str) -> float:
    """Seconds from the click until the page of this title is painted."""
    link = page.get_by_role("link", name=title, exact=True)
    if not link.is_visible():  # in a narrow window the last pages stand in a menu
        page.locator("[data-testid=stTopNavDropdownLink], [data-testid=stTopNavSection]").last.click()
    asked = page.evaluate("runsAsked()")
    return seconds_until(page, f"asked => hasRun(asked) && ({WHOLE})()", lambda: link.click(), asked)


def _tab(browser: Chromium) -> Page:
    page = browser.tab()
    page.set_viewport_size({"width": 1280, "height": 900})
    return page


def _wait_for_warmth(pid: int) -> None:
    """Until the server has stopped working for what it keeps for the next start."""
    before, quiet = -1.0, 0
    for _ in range(600):
        used = processor_seconds(pid)
        quiet = quiet + 1 if used - before < 0.1 else 0
        if quiet >= 4:
            return
        before = used
        time.sleep(1)


def _long_sequence() -> Path:
    """A run of one step with one very long sequence."""
    root = FOLDER / "sequence-32k"
    if not (root / "done").exists():
        shutil.rmtree(root, ignore_errors=True)
        fake = FakeWriter(root).open()
        for rows in by_step(records(Shape("one", 4, TOKENS, 1), 0, range(2))):
            fake.step(rows)
        fake.close()
        (root / "done").touch()
    return root


def _peer(browser: Chromium, runs: Sequence[Path], repeat: int) -> None:
    """TensorBoard on the same scalars: from the click on a link until the first chart is painted."""
    if not (PEERS / "bin" / "tensorboard").exists() and not _installed():
        return
    folder, names = _events(runs)
    with _tensorboard(folder) as (url, seconds):
        print(f"TensorBoard answered {seconds:.1f} s after its start; {len(runs)} runs of {len(names)} series")
        took = []
        for _ in range(repeat + 1):
            page = _tab(browser)
            took.append(seconds_until(page, CHART_OF_TENSORBOARD, lambda: page.goto(f"{url}/#timeseries")))  # noqa: B023
            page.close()
        print(told("TensorBoard, first chart: first visit", took[:1], FIRST_PAINT))
        print(told("TensorBoard, first chart: later visits", took[1:], FIRST_PAINT))


def _installed() -> bool:
    for command in ([sys.executable, "-m", "venv", PEERS], [PEERS / "bin" / "pip", "install", "-q", "tensorboard"]):
        if subprocess.run(command).returncode:
            print("TensorBoard cannot be installed here; going on without a peer")
            return False
    return True


def _events(runs: Sequence[Path]) -> tuple[Path, list[str]]:
    """Event files with the series of the first page, written by TensorBoard's own writer in its own Python."""
    names = [f"mismatch/{name}" for name in names_at("chart", "mismatch")[:SERIES]]
    folder = FOLDER / f"tensorboard-{len(runs)}-{runs[0].name}"
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        for root in runs:
            frame = open_run(root).metrics()
            (folder / root.name).mkdir(parents=True)
            np.savez(folder / root.name / "values.npz", **_columns(frame, names))
            subprocess.run([PEERS / "bin" / "python", "-c", WRITE, folder / root.name, json.dumps(names)], check=True)
        (folder / "done").touch()
    return folder, names


def _columns(frame: Any, names: Sequence[str]) -> dict[str, Any]:
    return {"step": frame["step"].to_numpy(), **{str(i): frame[name].to_numpy() for i, name in enumerate(names)}}


WRITE = """
import json, sys
import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
folder, names = sys.argv[1], json.loads(sys.argv[2])
values = np.load(folder + "/values.npz")
writer = EventFileWriter(folder, max_queue_size=1000)
for row, step in enumerate(values["step"].tolist()):
    summary = Summary(value=[Summary.Value(tag=name, simple_value=float(values[str(i)][row])) for i, name in enumerate(names)])
    writer.add_event(Event(wall_time=1.79e9 + row, step=step, summary=summary))
writer.close()
"""


@contextmanager
def _tensorboard(folder: Path) -> Iterator[tuple[str, float]]:
    started = time.perf_counter()
    with served((PEERS / "bin" / "tensorboard", "--logdir", folder, "--load_fast", "false")) as url:
        while len(_answer(f"{url}/data/runs")) < 4:
            time.sleep(0.1)
        yield url, time.perf_counter() - started


def _answer(url: str) -> str:
    try:
        with urlopen(url) as response:
            return str(response.read().decode())
    except OSError:
        return ""


if __name__ == "__main__":
    main()
