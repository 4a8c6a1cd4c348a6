"""`make chaos`: every scenario at full size; docs/reliability.md is written from what they return.

CHAOS_MINUTES (default 120) is how long the soak takes, CHAOS_SEED (default 5) the seed of all, CHAOS_SHARE (default 1) the
share of flips, cut runs and failing calls that is done.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .blocked import blocked
from .crowd import crowded
from .faults import faulted
from .figures import Figures
from .flips import flipped
from .forks import forked
from .full_disk import filled
from .kills import killed
from .page import page
from .soak import soaked
from .truncation import truncated

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
SEED = int(os.environ.get("CHAOS_SEED", "5"))
MINUTES = float(os.environ.get("CHAOS_MINUTES", "120"))

SHARE = float(os.environ.get("CHAOS_SHARE", "1"))
STRIDE = max(1, round(1 / SHARE))

SCENARIOS: dict[str, Callable[[Path], Figures]] = {
    "kills": lambda folder: killed(folder, kills=150, seed=SEED, is_synced=False),
    "kills on a disk": lambda folder: killed(folder, kills=50, seed=SEED + 1, is_synced=True),
    "truncation": lambda folder: truncated(folder, seed=SEED, stride=8 * STRIDE),
    "flips": lambda folder: flipped(folder, flips=round(1000 * SHARE), seed=SEED),
    "full disk": lambda folder: filled(folder, seed=SEED),
    "blocked": lambda folder: blocked(folder, calls=1000, seed=SEED),
    "faults": lambda folder: faulted(folder, seed=SEED, stride=STRIDE),
    "crowd": lambda folder: crowded(folder, writers=16, steps=12, seed=SEED),
    "forks": lambda folder: forked(folder, forks=40, seed=SEED),
    "soak": lambda folder: soaked(folder, minutes=MINUTES, seed=SEED),
}


def main(names: list[str]) -> int:
    """Runs the scenarios of these names, or all and then writes the page. 1 if any promise was broken."""
    logging.disable(logging.CRITICAL)  # what is logged about the damage that is done here on purpose
    found = []
    for name in names or list(SCENARIOS):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
            began = time.monotonic()
            figures = SCENARIOS[name](Path(folder))
        found.append(figures)
        print(f"{name}: {figures.counts} in {time.monotonic() - began:.0f} s", *figures.wrong, sep="\n  ", flush=True)
    if not names:
        PAGE.write_text(page(found, SEED))
    return int(any(figures.wrong for figures in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
