"""The first page of each package in a real browser, on equal data: from the call of its address until a chart is painted."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from .._painted import CHART_OF_TENSORBOARD, FIRST_CHART, seconds_until
from .measured import Table, told_in_turns
from .workers import PEERS

# pyright does not see what sys.path holds at run time; `_painted` puts tests/ there
from support.browser import Chromium, Dashboard, chromium  # type: ignore[import-not-found]  # isort: skip

OWN = "ratioscope"
START = 60.0
"""Seconds that a server may take to answer."""
SHOW_TRACKIO = "import sys, trackio; trackio.show(open_browser=False, server_port=int(sys.argv[1]), block_thread=True)"


@dataclass(frozen=True)
class Shown:
    """The first page of a package."""

    url: str
    is_painted: str
    """JavaScript that is true in the page once its first chart is there."""


def painted(folder: Path, counts: Sequence[int], rounds: int, about: str) -> Iterator[Table]:
    """A table for each number of runs. folder: as `beside` recorded the runs in it."""
    if chromium() is None:
        return
    with ExitStack() as stack:
        browser, shown = stack.enter_context(Chromium()), _servers(stack, folder, max(counts))
        for count in counts:
            works = {
                name: partial(_seconds, browser, of(count)) for name, of in shown.items() if count == 1 or name in MANY
            }
            words = f"{count} run{'s' * (count > 1)}"
            text = TEXT if count == 1 else f"{TEXT} martingale's page has one run."
            rows = told_in_turns(works, rounds)
            yield Table(f"paint_{count}", f"First page of {words} in a browser", f"{text} {about}", "s", OWN, rows)


TEXT = (
    "Seconds from the call of a page's address in a new tab until Chromium has painted its first chart; the servers are warm. "
    "rlprobe has no page. The page of ratioscope is Overview of one run, and Metrics of several."
)
MANY = (OWN, "TensorBoard", "trackio")
"""Packages whose page shows several runs beside each other."""


def _seconds(browser: Chromium, page: Shown) -> float:
    tab = browser.tab()
    tab.set_viewport_size({"width": 1280, "height": 900})
    taken = seconds_until(tab, page.is_painted, lambda: tab.goto(page.url))
    tab.close()
    return taken


def _servers(stack: ExitStack, folder: Path, most: int) -> Mapping[str, Callable[[int], Shown]]:
    """Package -> its page of so many runs. The servers end with the stack."""
    runs = [folder / f"run-{place}" for place in range(most)]
    kept = f"import os; os.environ['XDG_CACHE_HOME'] = {str(folder / 'cache')!r}\n"
    own = stack.enter_context(Dashboard(runs, before=kept))
    peers = {
        "one": stack.enter_context(_served("tensorboard", "--logdir", folder / "tensorboard" / "0")),
        "many": stack.enter_context(_served("tensorboard", "--logdir", folder / "tensorboard")),
        "trackio": stack.enter_context(_served("python", "-c", SHOW_TRACKIO, TRACKIO_DIR=str(folder / "trackio"))),
        "martingale": stack.enter_context(_served("martingale", "serve", "--dir", folder / "martingale" / "0")),
    }

    def of_ours(count: int) -> Shown:
        beside = "".join(f"&with={run.name}" for run in runs[1:count])
        return Shown(f"{own.url}/{'metrics' if beside else ''}?run={runs[0].name}{beside}", FIRST_CHART)

    def of_trackio(count: int) -> Shown:
        canvas = "() => !!document.querySelector('.vega-embed canvas')"
        return Shown(f"{peers['trackio']}/?project={'run' if count == 1 else 'runs'}", canvas)

    return {
        OWN: of_ours,
        "TensorBoard": lambda count: Shown(
            f"{peers['one' if count == 1 else 'many']}/#timeseries", CHART_OF_TENSORBOARD
        ),
        "trackio": of_trackio,
        "martingale": lambda _: Shown(peers["martingale"], "() => !!document.querySelector('.spark svg')"),
    }


@contextmanager
def _served(program: str, *options: object, **environment: str) -> Iterator[str]:
    """The address of a contender's server, once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    place = [str(port)] if program == "python" else ["--port", str(port)]
    process = subprocess.Popen(
        [PEERS / "bin" / program, *map(str, options), *place],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/", program)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def _wait_for(url: str, program: str) -> None:
    ends = time.monotonic() + START
    while time.monotonic() < ends:
        try:
            with urlopen(url):
                return
        except HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{program} did not answer within {START:g} s")
