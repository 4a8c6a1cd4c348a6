"""The lines of a chart from runs: along steps, tokens or time, smoothed, and merged for groups of runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.over_steps import RunSeries, across, smoothed, unseen_share
from ratioscope.metrics.metric import Metric

from ..figures.drawing.along import Along
from ..figures.drawing.floats import floats, typical
from ..figures.drawing.lines import Line
from ..presentation.run_colours import slots
from .view import asked_gap, metrics_of


@dataclass(frozen=True)
class PlottedRun:
    """One run in a chart of several."""

    name: str
    frame: pl.DataFrame
    """Metrics by step."""
    places: tuple[Floats, Floats] | None = None
    """(steps, their positions on the axis); None if the axis shows the steps themselves."""

    def along(self, steps: Floats) -> Floats:
        """Positions of these steps on the axis, interpolated between known ones."""
        return steps if self.places is None else np.interp(steps, *self.places)


def lines_of(
    runs: Sequence[PlottedRun], metric: Metric, gap: str, *, groups: Mapping[str, str], half_life: float | None
) -> list[Line]:
    """One line per run or group that has a value of the metric. half_life: in steps.

    groups: run -> group. A run that is alone in its group is drawn under its own name.
    """
    name = f"{gap}/{metric.name}"
    by_run = {run.name: line for run in runs if (line := _line(run, name, metric)) is not None}
    members: dict[str, list[Line]] = {}
    for run, line in by_run.items():
        members.setdefault(groups.get(run, run), []).append(line)
    known = slots(groups.get(run.name, run.name) for run in runs)
    lines = [
        replace(lines[0], name=group) if len(lines) == 1 else _grouped(group, lines) for group, lines in members.items()
    ]
    coloured = [replace(line, slot=known[line.name] if len(known) > 1 else None) for line in lines]
    if half_life is None:
        return coloured
    return [replace(line, smooth=smoothed(line.steps, line.values, half_life)) for line in coloured]


def numbers_of(lines: Sequence[Line], metric: Metric, gap: str) -> pl.DataFrame:
    """The values of the lines as a table: one row per run or group and step."""
    frames = []
    for line in lines:
        columns: dict[str, Any] = {"step": line.steps.astype(np.int64), f"{gap}/{metric.name}": line.values}
        columns |= {"smallest run": line.low, "largest run": line.high} if line.is_group else {"se": line.errors}
        columns |= {} if line.smooth is None else {"smoothed": line.smooth}
        frame = pl.DataFrame(columns).fill_nan(None).select(pl.lit(line.name).alias("run"), pl.all())
        frames.append(frame)
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame({"run": []})


def token_places(run: Run, gap: str) -> tuple[Floats, Floats] | None:
    """(steps, cumulative tokens of the gap, the step included), over the whole run."""
    frame = metrics_of(run, ("step",), None, *asked_gap(gap)).sort("step")
    if f"{gap}/tokens" not in frame.columns or not len(frame):
        return None
    tokens = frame[f"{gap}/tokens"].fill_null(0.0).cum_sum()
    return frame["step"].cast(pl.Float64).to_numpy(), tokens.to_numpy()


def time_places(run: Run) -> tuple[Floats, Floats] | None:
    """(steps, seconds from the start of the run to the commit of each); None if fewer than two steps have a time."""
    times = run.times
    if len(times) < 2 or not run.steps:
        return None
    steps = times["step"].cast(pl.Float64).to_numpy()
    seconds = times["time"].dt.epoch("us").to_numpy() / 1e6
    opened = run.writers["opened"].drop_nulls().dt.epoch("us") / 1e6
    began = min(float(seconds.min()), float(opened.min()) if len(opened) else np.inf)  # type: ignore[arg-type]
    # Early steps may lack token rows: their times are interpolated from the start of the run.
    if run.steps[0] < steps[0]:
        steps, seconds = np.append(run.steps[0] - 1.0, steps), np.append(began, seconds)
    return steps, np.maximum.accumulate(seconds - began)


def placed_events(events: pl.DataFrame, run: PlottedRun, along: Along) -> pl.DataFrame:
    """The events with positions on the axis in the column `step`, and their own steps in `at`."""
    if along == "step" or not len(events):
        return events
    known = events.drop_nulls("step")
    places = run.along(known["step"].cast(pl.Float64).to_numpy())
    return known.with_columns(pl.Series("step", places), at=pl.col("step"))


def _line(run: PlottedRun, name: str, metric: Metric) -> Line | None:
    if name not in run.frame.columns or run.frame[name].null_count() == len(run.frame):
        return None
    steps, values, errors = (floats(run.frame, column) for column in ("step", name, f"{name}_se"))
    size = typical(floats(run.frame, f"{name.partition('/')[0]}/{metric.level}s"))
    unseen = unseen_share(metric, size)
    return Line(run.name, None, steps, run.along(steps), values, errors, size=size, unseen=unseen, bounds=metric.bounds)


def _grouped(name: str, lines: Sequence[Line]) -> Line:
    """The mean of the runs at each step with a band from the smallest to the largest; axis positions are means too."""
    spread = across([RunSeries(line.steps, line.values) for line in lines])
    places = across([RunSeries(line.steps, line.x) for line in lines])
    size = float(np.nanmean([line.size for line in lines]))
    return Line(
        name, None, spread.steps, np.maximum.accumulate(places.mean), spread.mean, np.full(len(spread.steps), np.nan),
        low=spread.low, high=spread.high, runs=len(lines), size=size,
    )  # fmt: skip
