"""The cost of the first page of a run, in a real browser: the server's processor time, and seconds until the page shows it."""

import os
import tempfile
from pathlib import Path
from urllib.parse import quote

from _painted import FIRST_CHART, VERDICT, WHOLE, processor_seconds, seconds_until

# pyright does not see what sys.path holds at run time
from support.browser import Chromium, Dashboard  # pyright: ignore[reportMissingImports]

PATIENCE = 1_800_000
"""Milliseconds. A busy machine reads a long run for minutes."""


def overview(run: Path) -> None:
    """Three visits to Overview: the server has kept nothing, then has the run open, and then has been started again."""
    with Chromium() as browser, tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        for starts in (("first visit", "again"), ("first visit after another start",)):
            with Dashboard([run]) as dashboard:
                for visit in starts:
                    began, page = processor_seconds(dashboard.pid), browser.tab()
                    place = f"{dashboard.url}/?run={quote(run.name)}"
                    seconds = [
                        seconds_until(page, VERDICT, lambda: page.goto(place), patience=PATIENCE),  # noqa: B023
                        *(
                            seconds_until(page, shown, lambda: None, patience=PATIENCE)
                            for shown in (FIRST_CHART, WHOLE)
                        ),
                    ]
                    page.close()
                    print(
                        f"Overview, {visit:<32} {processor_seconds(dashboard.pid) - began:8.1f} s of CPU; "
                        f"verdict {seconds[0]:.1f} s, first chart {sum(seconds[:2]):.1f} s, whole {sum(seconds):.1f} s",
                        flush=True,
                    )
