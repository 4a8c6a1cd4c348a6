"""The part of docs/diagnosis.md that says how often each stated confidence is right, and that this does not depend on tuning."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from support import fault_runs  # pyright: ignore[reportMissingImports]  # the generator has put tests/ on the path
from support.fault_runs import FaultRun  # pyright: ignore[reportMissingImports]

from ratioscope.metrics.diagnosis.confidence import LEVELS, ground
from ratioscope.metrics.diagnosis.diagnosis import Diagnosis

SEEDS = (1, 2)
"""Each run is halved once with each of them."""
BOUNDS = {"high": 0.95, "medium": 0.75, "low": 0.0}
"""Level -> the least share of right names that it promises."""
INTRODUCTION = """
## Reliability of the stated confidence

Every run with a fault that has a first cause is counted, whole, and by two random halves of its prompts, which have the faults at
half the tokens. The confidence is that of the ground of the cause, less one level for each doubt
(`metrics/diagnosis/confidence.py`). No number is fitted to the runs.
"""
CROSS = """
The last column is a check that leaves one kind of fault out. The level of each ground and number of doubts is chosen anew from
the runs of all other kinds, by the share of right names ((right + 1) / (runs + 2); from 95% high, from 75% medium). It is then
applied to the runs of the kind that was left out. A ground that no other kind has keeps the stated level.
"""


@dataclass(frozen=True)
class Named:
    """One first name."""

    kind: str
    """The injected fault."""
    cell: tuple[str, int]
    """(ground of the cause, number of doubts)."""
    level: str
    """The stated confidence."""
    right: bool
    whole: bool
    """False for a half of a run."""


def page(runs: Sequence[FaultRun]) -> Iterator[str]:
    """The section, line by line."""
    names = [name for run in runs for name in _names(run)]
    others = [(name, _by_others(name, names)) for name in names]
    yield INTRODUCTION
    yield "| confidence | runs | right | halves | right | levels chosen by other kinds: named | right |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for level in LEVELS:
        own = [[name for name in names if name.level == level and name.whole == whole] for whole in (True, False)]
        crossed = [name for name, chosen in others if chosen == level]
        yield f"| {level} | " + " | ".join(f"{len(part)} | {_share(part)}" for part in (*own, crossed)) + " |"
    yield CROSS
    yield "| ground | doubts | stated | named, whole and halves | right |\n| --- | --- | --- | --- | --- |"
    for cell in sorted({name.cell for name in names}):
        part = [name for name in names if name.cell == cell]
        stated = Counter(name.level for name in part).most_common()[0][0]
        yield f"| {cell[0]} | {cell[1]} | {stated} | {len(part)} | {_share(part)} |"


def _names(run: FaultRun) -> Iterator[Named]:
    parts = [(fault_runs.diagnosis(run.name), True), *((fault_runs.half(run.name, seed), False) for seed in SEEDS)]
    for found, whole in parts:
        if found.likely:
            first = found.likely[0]
            right = fault_runs.first_of(found) in run.causes
            yield Named("+".join(run.faults), _cell(found), first.confidence, right, whole)


def _cell(found: Diagnosis) -> tuple[str, int]:
    first = found.likely[0]
    return ("no trace in the gap" if first.share is None else ground(first.cause)), len(first.doubts)


def _by_others(name: Named, names: Sequence[Named]) -> str:
    """The level of the name's cell by the names of all other kinds of faults."""
    others = [other for other in names if other.cell == name.cell and other.kind != name.kind]
    if not others:
        return name.level
    right = (sum(other.right for other in others) + 1) / (len(others) + 2)
    return next(level for level, least in BOUNDS.items() if right >= least)


def _share(names: Sequence[Named]) -> str:
    return f"{sum(name.right for name in names) / len(names):.0%}" if names else "-"
