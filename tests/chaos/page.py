"""docs/reliability.md, from the figures of the long version."""

from __future__ import annotations

from collections.abc import Sequence

from .figures import Figures

INTRODUCTION = """# Reliability

This page has the results of the chaos suite (`tests/chaos`), each scenario at full size. `make chaos` writes it. A
small version of every scenario but the two long ones is part of `make test`. These columns return in many tables:

* `acknowledged`: steps after which `flush` returned True with nothing dropped.
* `lost`, `torn` (a part of what was written at once) and `altered` (another number than was logged, or than an undisturbed run
  has) must be 0.
* `longest call`: the longest time that a call into the collector kept the trainer, beyond the timeout that the call was given.
* `raised`: errors that such a call raised into the trainer.

A SIGKILL leaves the page cache as it is. A power cut does not, so a model of the disk, which forgets what was not synced, stands
for one.
"""


def page(found: Sequence[tuple[Figures, str]]) -> str:
    """One table per scenario with when and with what it was found, and every promise that was broken."""
    lines = [INTRODUCTION]
    for figures, about in found:
        remarks = [*figures.remarks, about]
        lines += [f"## {figures.title}\n", *(f"{remark[0].upper()}{remark[1:]}.\n" for remark in remarks)]
        names = list(figures.counts)
        lines += [_row([name.replace("_", " ") for name in names]), _row(["---"] * len(names))]
        lines += [_row([f"{figures.counts[name]:,}" for name in names]), ""]
        lines += [*(f"* broken: {wrong}" for wrong in figures.wrong), ""] if figures.wrong else []
    return "\n".join(lines).rstrip() + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
