"""The slices of a gap: its metrics by position in the response, by probability, by lag, by replica, by turn."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from ratioscope.ingest.analysis.resolution import AFFECTED, too_coarse, without_coarse
from ratioscope.ingest.analysis.run_comparison import asked_gap
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.slice_parts import size_metric

from ..presentation.metric_places import names_at
from ..presentation.slice_names import key_order
from ..presentation.value_text import value_words
from .scorecard import titled

SLICES = {
    "lag": "by version lag (trainer version - rollout version; at lag 0 only numerics remain)",
    "position": "by position in the response (from)",
    "probability": "by probability under the earlier policy (from)",
    "replica": "by engine replica",
    "turn": "by turn",
}
MOST_ROWS = 64
"""Most rows of one table. A longer table keeps the rows with the largest gap; `ratioscope metrics --by` prints all."""


@dataclass(frozen=True)
class SliceOfGap:
    """One slice of one gap."""

    gap: str
    slice: str
    title: str
    frame: pl.DataFrame | None
    """Key as text, metrics of the table of places and their errors; None if absent."""
    rows: int
    """Number of keys on record; the frame may hold fewer."""
    absent: str | None
    """Reason why there are no rows; None if there are."""
    left_out: str | None
    """Reason why some values of the rows are not available; None if all are."""


def slices_of_gap(run: Run, gap: str) -> tuple[SliceOfGap, ...]:
    """Every slice of the gap, on record or not."""
    return tuple(_slice_of_gap(run, gap, name, title) for name, title in SLICES.items())


def _slice_of_gap(run: Run, gap: str, name: str, title: str) -> SliceOfGap:
    frame = run.metrics(by=(name,), gap=asked_gap(gap))
    columns = [
        c for metric in names_at("table", gap) for c in (f"{gap}/{metric}", f"{gap}/{metric}_se") if c in frame.columns
    ]
    measured = f"{gap}/tokens" in frame.columns
    known = frame.filter(pl.col(f"{gap}/tokens") > 0) if measured else frame.clear()
    if known.is_empty():
        return SliceOfGap(gap, name, title, None, 0, f"because {WANTED[name]}", None)
    coarse = too_coarse(run)
    held = without_coarse(known, coarse)
    rows = _shortened(held, gap).select(pl.col(name).cast(pl.String), *columns)
    names = [column for name in AFFECTED if (column := f"{gap}/{name}") in known.columns]
    because = coarse[gap].because if any(held[name].null_count() > known[name].null_count() for name in names) else None
    return SliceOfGap(gap, name, title, rows.sort(key_order(rows[name])), len(known), None, because)


def _shortened(frame: pl.DataFrame, gap: str) -> pl.DataFrame:
    return (
        frame
        if len(frame) <= MOST_ROWS
        else frame.sort(f"{gap}/{size_metric(gap)}", descending=True, nulls_last=True).head(MOST_ROWS)
    )


WANTED = {
    "lag": "weight versions were not recorded; pass trainer_version= and rollout_versions= to Collector.log",
    "position": "no usable token is on record",
    "probability": "no usable token is on record",
    "replica": "engine replicas were not recorded; pass replica= to Collector.log",
    "turn": "turns were not recorded; pass turns= to Collector.log",
}


def place_table(place: SliceOfGap) -> tuple[list[str], list[list[str]]]:
    """Header and rows of one slice; a metric that no row has is left out."""
    frame = place.frame
    assert frame is not None
    names = [
        m
        for m in names_at("table", place.gap)
        if f"{place.gap}/{m}" in frame.columns and frame[f"{place.gap}/{m}"].null_count() < len(frame)
    ]
    header = [place.slice, *map(titled, names)]
    rows = [
        [str(row[place.slice]), *(_cell(row, place.gap, name) for name in names)] for row in frame.iter_rows(named=True)
    ]
    return header, rows


def _cell(row: dict[str, Any], gap: str, name: str) -> str:
    return value_words(name, row[f"{gap}/{name}"], row.get(f"{gap}/{name}_se"))
