"""One bit of one file of a run is flipped: the run shows the same, or names what is wrong; it never shows another number."""

from __future__ import annotations

import random
from pathlib import Path

from ratioscope.errors import SourceError

from .figures import Figures
from .small_run import Shown, difference, shown, write_small_run


def flipped(folder: Path, *, flips: int, seed: int) -> Figures:
    """Every file is as likely to be hit as any other, so that the small ones, logs and run.json, are hit often."""
    figures, chance = Figures("One flipped bit"), random.Random(seed)
    root = write_small_run(folder / "run", seed=seed, steps=2, ranks=1)
    clean = shown(root)
    figures.demand(not clean.named, f"the clean run names {clean.named}")
    files = sorted(path for path in root.rglob("*") if path.is_file())
    figures.add(flips=0, named=0, refused=0, equal_data=0, altered=0)
    for _ in range(flips):
        victim = chance.choice(files)
        content = victim.read_bytes()
        place, bit = chance.randrange(len(content)), chance.randrange(8)
        victim.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
        _examine(figures, root, clean, f"{victim.relative_to(root)}: bit {bit} of byte {place}")
        victim.write_bytes(content)
    return figures


def _examine(figures: Figures, root: Path, clean: Shown, what: str) -> None:
    figures.add(flips=1)
    try:
        found = shown(root)
    except SourceError:
        figures.add(refused=1)
        return
    wrong = difference(found, clean)
    if wrong is not None:
        figures.wrong.append(f"{what}: {wrong}")
    figures.add(**{"altered" if wrong else "named" if found.named else "equal_data": 1})
