"""What is done to a run, at full size: the scenarios by name, and how one is carried through.

CHAOS_MINUTES (default 120) is how long each of the LONG takes, CHAOS_SEED (default 5) the seed of all, CHAOS_SHARE (default 1)
the share of flips, cut runs and failing calls that is done.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from .aliasing import aliased
from .blocked import blocked
from .crowd import crowded
from .dead_writers import writers_killed
from .ends import ended
from .experiments import mixed
from .faults import faulted
from .figures import Figures
from .flips import flipped
from .forks import forked
from .full_disk import filled
from .handlers import handled
from .hung import hung
from .kills import killed
from .power_cut import power_cut
from .restarts import restarted
from .small_files import limited
from .soak import soaked
from .strangers import visited
from .tampering import tampered
from .threadless import threadless
from .truncation import truncated

SEED = int(os.environ.get("CHAOS_SEED", "5"))
MINUTES = float(os.environ.get("CHAOS_MINUTES", "120"))
SHARE = float(os.environ.get("CHAOS_SHARE", "1"))
STRIDE = max(1, round(1 / SHARE))

Scenarios = dict[str, Callable[[Path], Figures]]
"""By name: what is done in an empty folder."""

SCENARIOS: Scenarios = {
    "kills": lambda folder: killed(folder, kills=150, seed=SEED, is_synced=False),
    "kills on a disk": lambda folder: killed(folder, kills=50, seed=SEED + 1, is_synced=True),
    "truncation": lambda folder: truncated(folder, seed=SEED, stride=8 * STRIDE),
    "flips": lambda folder: flipped(folder, flips=round(1000 * SHARE), seed=SEED),
    "full disk": lambda folder: filled(folder, seed=SEED),
    "blocked": lambda folder: blocked(folder, calls=1000, seed=SEED),
    "hung folder": lambda folder: hung(folder, runs=80, seed=SEED),
    "no threads": lambda folder: threadless(folder, runs=120, seed=SEED),
    "raising handlers": lambda folder: handled(folder, runs=100, seed=SEED),
    "faults": lambda folder: faulted(folder, seed=SEED, stride=STRIDE),
    "crowd": lambda folder: crowded(folder, writers=16, steps=12, seed=SEED),
    "forks": lambda folder: forked(folder, forks=40, seed=SEED),
    "ends": lambda folder: ended(folder, trainers=30, seed=SEED),
    "aliasing": lambda folder: aliased(folder, calls=40, seed=SEED),
    "dead writers": lambda folder: writers_killed(folder, trainers=40, seed=SEED),
    "small files": lambda folder: limited(folder, limits=(1, 4, 16, 24, 32, 48, 64, 96, 128), seed=SEED),
    "tampering": lambda folder: tampered(folder, seed=SEED, stride=1),
    "power cut": lambda folder: power_cut(folder, steps=8, seed=SEED, stride=STRIDE),
    "restarts": lambda folder: restarted(folder, ranks=6, steps=80, seed=SEED),
    "experiments": lambda folder: mixed(folder, experiments=8, ranks=4, starts=8, seed=SEED),
    "strangers": lambda folder: visited(folder, seeds=range(SEED, SEED + max(1, round(2 * SHARE)))),
}

LONG: Scenarios = {
    "soak": lambda folder: soaked(folder, minutes=MINUTES, seed=SEED),
    "live": lambda folder: _watched(folder),
}
"""Paced, so that they leave the machine to the others."""


def _watched(folder: Path) -> Figures:
    from .live import watched  # the browser and all of the dashboard: not in a process from which others are forked

    return watched(folder, minutes=MINUTES)


def found_in(name: str) -> Figures:
    """What the scenario of this name found; one that raises has broken its promise, and takes nothing from the others."""
    logging.disable(logging.CRITICAL)  # what is logged about the damage that is done here on purpose
    os.environ.setdefault("RATIOSCOPE_WRITER", "thread")  # faults are played in the process that is looked at
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        began = time.monotonic()
        try:
            figures = (SCENARIOS | LONG)[name](Path(folder))
        except Exception as error:
            traceback.print_exc()
            figures = Figures(name.capitalize(), wrong=[f"it could not be carried through: {error!r}"[:300]])
    print(f"{name}: {figures.counts} in {time.monotonic() - began:.0f} s", *figures.wrong, sep="\n  ", flush=True)
    return figures
