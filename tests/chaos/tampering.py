"""Files that are emptied, removed, or replaced by sound ones of another run: what is shown is equal, or something is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from ratioscope.ingest.maintenance.verify import verify

from .figures import Figures
from .small_run import difference, shown, write_small_run

Act = Callable[[Path, Path], None]
ACTS: dict[str, Act] = {
    "emptied": lambda file, _: _write(file, b""),
    "removed": lambda file, _: file.unlink(),
    "replaced": lambda file, other: _write(file, other.read_bytes()),
}
"""What is done to a file, given also the one in its place of another run."""


def tampered(folder: Path, *, seed: int, stride: int) -> Figures:
    """Every `stride`-th file in every way; then a commit line together with the file that it names, for every writer."""
    figures = Figures("Files that are emptied, removed or replaced")
    figures.add(acts=0, equal=0, named=0, silent=0)
    run = write_small_run(folder / "run", seed=seed, steps=3, ranks=2)
    other = write_small_run(folder / "other", seed=seed + 1, steps=3, ranks=2)
    clean, victim = shown(run), folder / "victim"
    files = sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file())
    theirs = sorted(path.relative_to(other) for path in other.rglob("*") if path.is_file())
    figures.demand(len(files) == len(theirs), f"{len(files)} files of one run, {len(theirs)} of another")
    every = [(what, act, mine, place) for mine, place in zip(files, theirs, strict=False) for what, act in ACTS.items()]
    for what, act, mine, place in every[:: max(1, stride)]:
        shutil.copytree(run, victim)
        act(victim / mine, other / place)
        _examine(figures, victim, clean, f"{mine.parent.name or mine.name} {what}")
    for log in sorted((run / "commits").iterdir()):
        shutil.copytree(run, victim)
        _remove_a_line_and_its_file(victim, log.name)
        _examine(figures, victim, clean, f"a line of {log.name[:6]} removed with its file")
    return figures


def _examine(figures: Figures, victim: Path, clean: object, what: str) -> None:
    found = shown(victim)
    wrong = difference(found, clean)  # type: ignore[arg-type]
    is_told = not verify(victim).sound
    figures.add(
        acts=1, named=int(bool(found.named)), equal=int(not found.named), silent=int(wrong is not None or not is_told)
    )
    figures.demand(wrong is None, f"{what}: {wrong}")
    figures.demand(is_told, f"{what}: verify calls the run sound")
    shutil.rmtree(victim)


def _remove_a_line_and_its_file(root: Path, log: str) -> None:
    path = root / "commits" / log
    lines = path.read_bytes().splitlines(keepends=True)
    place = next(place for place, line in enumerate(lines) if b'"file": "tokens/' in line)
    file = lines[place].split(b'"file": "')[1].split(b'"')[0].decode()
    (root / file).unlink()
    path.write_bytes(b"".join(lines[:place] + lines[place + 1 :]))


def _write(file: Path, data: bytes) -> None:
    file.write_bytes(data)
