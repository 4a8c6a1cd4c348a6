"""The first page of each package in a real browser, on equal data: from the call of its address until a chart is painted."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .._painted import CHART_OF_TENSORBOARD, FIRST_CHART, seconds_until
from .._served import served
from .measured import Table, told_in_turns
from .workers import PEERS

# pyright does not see what sys.path holds at run time; `_painted` puts tests/ there
from support.browser import Chromium, Dashboard, chromium  # type: ignore[import-not-found]  # isort: skip

OWN = "ratioscope"
SHOW_TRACKIO = "import sys, trackio; trackio.show(open_browser=False, server_port=int(sys.argv[-1]), block_thread=True)"
QUIET = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}


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
        absent = tuple(f"{name}: not measured, because it is not installed." for name in PACKAGES if name not in shown)
        for count in counts:
            works = {
                name: partial(_seconds, browser, of(count)) for name, of in shown.items() if count == 1 or name in MANY
            }
            words = f"{count} run{'s' * (count > 1)}"
            text = TEXT if count == 1 else f"{TEXT} martingale's page has one run."
            rows = told_in_turns(works, rounds)
            yield Table(
                f"paint_{count}", f"First page of {words} in a browser", f"{text} {about}", "s", OWN, rows, absent
            )


TEXT = (
    "Seconds from the call of a page's address in a new tab until Chromium has painted its first chart; the servers are warm. "
    "rlprobe has no page. The page of ratioscope is Overview of one run, and Metrics of several."
)
PACKAGES = ("TensorBoard", "trackio", "martingale")
MANY = (OWN, "TensorBoard", "trackio")
"""Packages whose page shows several runs beside each other."""


def _seconds(browser: Chromium, page: Shown) -> float:
    tab = browser.tab()
    tab.set_viewport_size({"width": 1280, "height": 900})
    taken = seconds_until(tab, page.is_painted, lambda: tab.goto(page.url))
    tab.close()
    return taken


def _servers(stack: ExitStack, folder: Path, most: int) -> Mapping[str, Callable[[int], Shown]]:
    """Package -> its page of so many runs, for each that is installed. The servers end with the stack."""
    runs = [folder / f"run-{place}" for place in range(most)]
    kept = f"import os; os.environ['XDG_CACHE_HOME'] = {str(folder / 'cache')!r}\n"
    own = stack.enter_context(Dashboard(runs, before=kept))

    def started(program: str, *options: object, **environment: str) -> str:
        return stack.enter_context(served((PEERS / "bin" / program, *options), **QUIET, **environment))

    def of_ours(count: int) -> Shown:
        beside = "".join(f"&with={run.name}" for run in runs[1:count])
        return Shown(f"{own.url}/{'metrics' if beside else ''}?run={runs[0].name}{beside}", FIRST_CHART)

    shown: dict[str, Callable[[int], Shown]] = {OWN: of_ours}
    if _is_installed("tensorboard"):
        one = started("tensorboard", "--logdir", folder / "tensorboard" / "0")
        many = started("tensorboard", "--logdir", folder / "tensorboard")
        shown["TensorBoard"] = lambda count: Shown(f"{one if count == 1 else many}/#timeseries", CHART_OF_TENSORBOARD)
    if _is_installed("trackio"):
        trackio = started("python", "-c", SHOW_TRACKIO, TRACKIO_DIR=str(folder / "trackio"))
        canvas = "() => !!document.querySelector('.vega-embed canvas')"
        shown["trackio"] = lambda count: Shown(f"{trackio}/?project={'run' if count == 1 else 'runs'}", canvas)
    if _is_installed("martingale"):
        martingale = started("martingale", "serve", "--dir", folder / "martingale" / "0")
        shown["martingale"] = lambda _: Shown(martingale, "() => !!document.querySelector('.spark svg')")
    return shown


def _is_installed(program: str) -> bool:
    """True if `make bench` could install the package of this program."""
    return (PEERS / "bin" / program).exists()
