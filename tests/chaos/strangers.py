"""Folders of strangers, a few KB each and meant to do harm: every verb ends, with a code it documents, in bounded time and
memory, and touches nothing outside the folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.hostile_folders import SHAPES, elsewhere_of, hostile_folder

from .figures import Figures

MEGABYTES = 4096
"""Of addresses that a process may have, libraries and stacks of its threads included: about two gigabytes of memory."""
SECONDS = 300.0
"""For all verbs together, on a busy machine; alone they take ten."""
CODES = (0, 1, 3)
TESTS = Path(__file__).parents[1]


def visited(
    folder: Path, *, seeds: Sequence[int], names: Sequence[str] = tuple(SHAPES), quick: bool = False
) -> Figures:
    """Every verb on a run of each shape and seed. quick: without those that draw."""
    figures = Figures("A stranger's folder")
    figures.add(folders=0, verbs=0, refused=0, slowest_seconds=0, most_megabytes=0)
    figures.remarks.append(f"each process may take {MEGABYTES} MB of addresses, and {SECONDS:.0f} s for all verbs")
    for seed in seeds:
        for name in names:
            _visit(figures, folder / "here", name, seed, quick=quick)
            shutil.rmtree(folder / "here", ignore_errors=True)
    return figures


def _visit(figures: Figures, folder: Path, name: str, seed: int, *, quick: bool) -> None:
    folder.mkdir()
    root = hostile_folder(folder, name, seed)
    before = _seen(elsewhere_of(root))
    command = [sys.executable, "-m", "chaos.every_verb", str(root), str(MEGABYTES), *(["quick"] if quick else [])]
    places = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    surroundings = {**os.environ, "PYTHONPATH": places, "XDG_CACHE_HOME": str(folder / "cache")}
    figures.add(folders=1)
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=surroundings, check=False)
    except subprocess.TimeoutExpired as late:
        figures.wrong.append(f"{name} (seed {seed}): no end after {SECONDS:.0f} s, {(late.stdout or b'')[-200:]!r}")
        return
    for line in filter(lambda line: line.startswith('["'), ended.stdout.splitlines()):
        verb, code, seconds, megabytes = json.loads(line)
        figures.add(verbs=1, refused=code == 3)
        figures.counts["slowest_seconds"] = max(figures.counts["slowest_seconds"], round(seconds))
        figures.counts["most_megabytes"] = max(figures.counts["most_megabytes"], megabytes)
        figures.demand(code in CODES, f"{name} (seed {seed}): {verb} ended with {code}")
    told = ended.stderr[-400:]
    figures.demand(ended.returncode == 0, f"{name} (seed {seed}): the process ended with {ended.returncode}: {told}")
    figures.demand("Traceback" not in ended.stderr, f"{name} (seed {seed}): {told}")
    figures.demand(
        _seen(elsewhere_of(root)) == before, f"{name} (seed {seed}): something outside the folder was changed"
    )


def _seen(place: Path) -> dict[str, tuple[int, int, bytes]]:
    files = sorted(path for path in place.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in files}
