"""`make chaos`: every scenario at full size, or those named; what they found is kept, and docs/reliability.md written from it.

The LONG run in processes of their own beside the others, so that the suite takes as long as the longest of them.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from .kept import keep, kept
from .page import page
from .scenarios import LONG, SCENARIOS, SEED, found_in

DOCS = Path(__file__).parents[2] / "docs"


def main(names: list[str]) -> int:
    """Runs the scenarios of these names, or all, and writes the page anew. 1 if any promise was broken."""
    wanted = names or [*SCENARIOS, *LONG]
    with ProcessPoolExecutor(len(LONG), mp_context=get_context("spawn")) as pool:
        alongside = {name: pool.submit(found_in, name) for name in wanted if name in LONG}
        found = {name: found_in(name) for name in wanted if name not in LONG}
        found |= {name: future.result() for name, future in alongside.items()}
    keep(DOCS / "reliability.json", found, SEED)
    (DOCS / "reliability.md").write_text(page(kept(DOCS / "reliability.json", [*SCENARIOS, *LONG])))
    return int(any(figures.wrong for figures in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
