"""A small closed run for what damages files, and all that a reader takes from one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ratioscope.collectors.collector import Collector
from ratioscope.ingest.run import open_run

from .logged import logged, parts
from .processes import PATIENCE
from .strike import unsynced
from .truth import metrics_differ


def write_small_run(root: Path, *, seed: int, steps: int, ranks: int) -> Path:
    """The folder: every rank logged every step, and an event, and closed."""
    with unsynced():
        for rank in range(ranks):
            with Collector(root, name="small", rank=rank, attempt=0, strict=True) as collector:
                for step in range(steps):
                    _log(collector, seed, step, rank)
                collector.event("weight_sync", steps - 1)
    return root


def _log(collector: Collector, seed: int, step: int, rank: int) -> None:
    for part in parts(logged(seed, step, rank), step):
        collector.log(step=step, **part)
        assert collector.flush(PATIENCE)


@dataclass(frozen=True)
class Shown:
    """What a run shows. named: files it sets aside and notes on how it was read."""

    metrics: pl.DataFrame
    sequences: pl.DataFrame
    records: pl.DataFrame
    facts: tuple[Any, ...]
    named: tuple[str, ...]


def shown(root: Path) -> Shown:
    """Everything read, so that all damage is met; SourceError where the run is refused."""
    run = open_run(root)
    frames = (run.metrics(), run.sequences(), run.records().collect())
    facts = (run.info, run.events.drop("time").rows(), run.drops.rows(), run.conservation)
    return Shown(*frames, facts, (*(item.path for item in run.quarantined), *run.notes))


def difference(found: Shown, clean: Shown) -> str | None:
    """What the run shows that the clean one does not: any number, or what is missing though nothing is named."""
    if wrong := metrics_differ(found.metrics, clean.metrics):
        return f"metrics of steps {wrong}"
    for name, mine, theirs in (
        ("sequences", found.sequences, clean.sequences),
        ("records", found.records, clean.records),
    ):
        fresh = mine.join(theirs, on=theirs.columns, how="anti", nulls_equal=True) if len(mine) else mine
        if len(fresh):
            return f"{name} of step {fresh['step'][0]}"
        if len(mine) < len(theirs) and not found.named:
            return f"{name} are missing, and nothing is named"
    (info, *facts), (clean_info, *clean_facts) = found.facts, clean.facts
    if (not clean_info.items() <= info.items() or facts != clean_facts) and not found.named:
        return f"run.json, events or counts, and nothing is named: {(info, *facts)}"
    return None
