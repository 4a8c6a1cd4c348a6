"""docs/reliability.md, from the figures of the long version."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import pyarrow as pa

from ratioscope import __version__

from .figures import Figures

INTRODUCTION = """# Reliability

What the chaos suite (`tests/chaos`) found when it was last run: `make chaos` writes this page. A small version of every
scenario but the soak is part of `make test`. `acknowledged` counts steps of which `flush` had returned True with nothing
dropped; `lost`, `torn` (a part of what was written at once) and `altered` (another number than was logged, or than a run that
nobody disturbed shows) must be 0. A SIGKILL leaves the page cache as it is, so that none of this speaks of a power cut.
"""


def page(found: Sequence[Figures], seed: int) -> str:
    """One table per scenario, and every promise that was broken."""
    versions = f"ratioscope {__version__}, Python {platform.python_version()}, pyarrow {pa.__version__}"
    lines = [INTRODUCTION, f"Seed {seed}; {versions}; {platform.system()}.\n"]
    for figures in found:
        lines += [f"## {figures.title}\n", *(f"{remark[0].upper()}{remark[1:]}.\n" for remark in figures.remarks)]
        names = list(figures.counts)
        lines += [_row([name.replace("_", " ") for name in names]), _row(["---"] * len(names))]
        lines += [_row([f"{figures.counts[name]:,}" for name in names]), ""]
        lines += [f"* broken: {wrong}" for wrong in figures.wrong]
    return "\n".join(lines).rstrip() + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
