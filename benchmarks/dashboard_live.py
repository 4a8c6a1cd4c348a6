"""How long after a step was committed the dashboard shows it, in a real browser, while a process writes the run.

    python benchmarks/dashboard_live.py [--steps 12] [--before 2000] [--every 3]

A run of 2,000 steps goes on: a process of its own appends a step every three seconds through the collector and says when
`flush` returned. The page is the Overview; its last chart is zoomed before, and must stay so. Prints the delay from then until a
chart of the page reaches the new step: median and worst.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _long_runs import SHORT, write
from _painted import WHOLE, machine, told
from playwright.sync_api import Page

# pyright does not see what sys.path holds at run time
from support.browser import Chromium, Dashboard  # pyright: ignore[reportMissingImports]

AIM = 2.0
WRITER = """
import sys, time
import numpy as np
from ratioscope.collectors.collector import Collector

folder, first, steps, every = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
draws = np.random.default_rng(0)
with Collector(folder) as collector:
    sys.stdin.readline()
    for step in range(first, first + steps):
        rollout = -draws.exponential(0.8, (64, 60)).astype(np.float32)
        old = np.minimum(rollout + 0.02 * draws.normal(size=rollout.shape).astype(np.float32), -1e-6)
        collector.log(step=step, rollout_logprobs=rollout.tolist(), old_logprobs=old.tolist())
        collector.flush(timeout=60)
        print(step, time.time(), flush=True)
        time.sleep(every)
"""
DRAWN = """steps => !document.querySelector('[data-waits]') && [...document.querySelectorAll('.rs-chart')]
  .map(chart => / over ([0-9,]+) steps$/.exec(chart.ariaLabel ?? '')?.[1] ?? '0')
  .filter(told => Number(told.replaceAll(',', '')) >= steps).length > 2"""
"""Whether the charts over steps tell so many, and are drawn."""
RANGE = """() => {
  const charts = document.querySelectorAll('.rs-chart');
  const axis = charts.length && charts[charts.length - 1]._fullLayout?.xaxis;
  return axis ? Array.from(axis.range).map(Number) : null;
}"""
"""The steps between which the last chart shows its lines."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--before", type=int, default=2000)
    parser.add_argument("--every", type=float, default=3.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "growing"
        write(root, SHORT, 0, chosen.before)
        print(f"a run of {chosen.before} steps that grows, on {machine()}")
        with Dashboard([root]) as dashboard, Chromium() as browser:
            page = browser.tab()
            page.goto(dashboard.url)
            page.wait_for_function(WHOLE, timeout=120_000)
            _follow(page, root, chosen)


def _follow(page: Page, root: Path, chosen: argparse.Namespace) -> None:
    command = [sys.executable, "-c", WRITER, str(root), str(chosen.before), str(chosen.steps), str(chosen.every)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdin is not None and writer.stdout is not None
    _zoom(page)
    before = page.evaluate(RANGE)
    writer.stdin.write("\n")
    writer.stdin.flush()
    delays = []
    for line in writer.stdout:
        step, at = line.split()
        page.wait_for_function(DRAWN, arg=int(step) + 1, timeout=120_000)
        delays.append(time.time() - float(at))
    writer.wait(60)
    print(told("a committed step is in the charts", delays, AIM))
    page.wait_for_function(WHOLE, timeout=120_000)
    after = page.evaluate(RANGE)
    print(f"the zoom was {'kept' if after == before else f'lost: {before} became {after}'}")


def _zoom(page: Page) -> None:
    """Zooms into the last chart as a reader does, with the mouse."""
    chart = page.locator(".rs-chart").last
    chart.scroll_into_view_if_needed()
    chart.locator(".main-svg").first.wait_for()
    box = chart.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] * 0.6
    page.mouse.move(box["x"] + box["width"] * 0.4, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, y, steps=5)
    page.mouse.up()
    page.wait_for_function(WHOLE, timeout=120_000)


if __name__ == "__main__":
    main()
