"""When a page of the dashboard is painted, as the browser sees it, and what machine it was painted on."""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from playwright.sync_api import Page

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

VERDICT = "() => !!document.querySelector('[class^=rs-verdict]')"
"""The first answer of the page."""
FIRST_CHART = "() => !!document.querySelector('.rs-chart .main-svg')"
WHOLE = """() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'
  && !document.querySelector('[data-testid=stSkeleton]')
  && [...document.querySelectorAll('[class*=_chart] .stBidiComponent')].every(e => e.querySelector('.main-svg, [data-far]'))
  && !document.querySelector('[data-waits]')"""
"""The script has run, and every chart near the screen is drawn."""
CHART_OF_TENSORBOARD = """() => {
  const found = [];
  const look = root => root.querySelectorAll('*').forEach(e => {
    if (e.shadowRoot) look(e.shadowRoot);
    if (e.tagName === 'LINE-CHART' || e.tagName === 'CANVAS' || e.classList.contains('line-chart')) found.push(e);
  });
  look(document);
  return found.some(e => e.getBoundingClientRect().height > 50);
}"""
PATIENCE = 120_000


def seconds_until(
    page: Page, condition: str, begin: Callable[[], object], argument: object = None, patience: float = PATIENCE
) -> float:
    """From just before `begin` until the condition holds in the page; it is looked at with every frame painted."""
    started = time.perf_counter()
    begin()
    page.wait_for_function(condition, arg=argument, timeout=patience)
    return time.perf_counter() - started


def machine() -> str:
    """Cores, CPU, load and versions, in a line."""
    model = next(
        (line.partition(":")[2].strip() for line in _cpu_lines() if line.startswith("model name")), platform.processor()
    )
    packages = ", ".join(f"{name} {version(name)}" for name in ("streamlit", "plotly", "polars", "pyarrow"))
    load = os.getloadavg()[0]
    busy = f"; others keep it busy (load {load:.1f}), so that these figures are too high" if load > 1.5 else ""
    return f"{os.cpu_count()} cores of {model}, Python {platform.python_version()}, {packages}{busy}"


def told(what: str, seconds: Sequence[float], aim: float | None = None) -> str:
    """A line of the table: the median, the worst, and how they stand to the aim."""
    middle = statistics.median(seconds)
    against = "" if aim is None else f"   aim {aim:.1f} s   x {middle / aim:.2f}"
    worst = f"  worst {max(seconds):6.2f} s" if len(seconds) > 1 else " " * 16
    return f"{what:58s} {middle:6.2f} s{worst}{against}"


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used so far, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _cpu_lines() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
