"""The report of a run of 10,000 steps: the time it takes, the size of its file, and the time a browser needs to show it.

    python benchmarks/report.py [--steps 10000] [--repeat 3]

Two runs: short sequences, and sequences a thousand times as long. The first report also condenses the run's statistics, which
later readers find done; it has rows of its own. Seconds of the processor stand beside those of the clock, because a busy machine
stretches the clock alone.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from _long_runs import long_runs
from _painted import machine, told

# pyright does not see what sys.path holds at run time
from support.browser import Chromium  # pyright: ignore[reportMissingImports]

from ratioscope.app.documents.material import material
from ratioscope.app.documents.report import html_report
from ratioscope.ingest.run import open_run

SECONDS, MEGABYTES, SHOWN = 3.0, 2.0, 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    print(f"reports of {chosen.steps:,} steps on {machine()}")
    with tempfile.TemporaryDirectory() as folder, Chromium() as browser:
        os.environ["XDG_CACHE_HOME"] = folder
        for run in long_runs(chosen.steps, 2):
            _reports(run, Path(folder), browser, chosen.repeat)


def _reports(run: Path, folder: Path, browser: Chromium, repeat: int) -> None:
    for kind in (False, True):
        took = [_made(run, folder / "report.html", interactive=kind) for _ in range(repeat + 1)]
        name = f"{run.name}, {'interactive' if kind else 'static'}"
        size = (folder / "report.html").stat().st_size / 1e6
        if not kind:
            print(told(f"{name}: first report, nothing condensed", [took[0][0]]))
        print(told(f"{name}: reading the run", [data for data, _, _ in took[1:]]))
        print(told(f"{name}: drawing and writing", [html for _, html, _ in took[1:]]))
        print(told(f"{name}: all of it", [data + html for data, html, _ in took[1:]], SECONDS))
        print(told(f"{name}: all of it, processor", [used for _, _, used in took[1:]], SECONDS))
        print(
            told(f"{name}: shown by Chromium", [_shown(browser, folder / "report.html") for _ in range(repeat)], SHOWN)
        )
        print(
            f"{f'{name}: size':58s} {size:6.2f} MB"
            + ("" if kind else f"   aim {MEGABYTES} MB   x {size / MEGABYTES:.2f}")
        )


def _made(run: Path, path: Path, *, interactive: bool) -> tuple[float, float, float]:
    """Seconds until the blocks are there, seconds from then until the file is, and seconds of the processor for both."""
    used, started = time.process_time(), time.perf_counter()
    report = material(open_run(run))
    assert report.printed
    read = time.perf_counter()
    path.write_text(html_report(report, interactive=interactive), encoding="utf-8")
    return read - started, time.perf_counter() - read, time.process_time() - used


def _shown(browser: Chromium, path: Path) -> float:
    """Seconds until the page is laid out."""
    page = browser.tab()
    started = time.perf_counter()
    page.goto(path.as_uri())
    page.evaluate("document.documentElement.scrollHeight")
    seconds = time.perf_counter() - started
    page.close()
    return seconds


if __name__ == "__main__":
    main()
