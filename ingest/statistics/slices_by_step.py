"""Metrics by step and slice. The frames of all written slices are read together: whoever asks for one asks for others next."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from ratioscope.metrics.engines.slices import WRITTEN
from ratioscope.metrics.frame import metric_frame, statistics_read

from ..commits.visible_files import VisibleFiles
from .growing_table import in_order_of_gaps
from .run_statistics import RunStatistics

SLICES = WRITTEN[1:]
STEPS_AT_ONCE = 4096
"""Steps that are read at a time, so that memory does not grow with the run: 25 MB of statistics for two metrics."""


@dataclass
class SlicesByStep:
    """Reads a few metrics of all written slices, and keeps the frames that were not asked for until they are."""

    written: RunStatistics
    _made_of: tuple[VisibleFiles, tuple[str, ...], frozenset[int]] | None = None
    """Visible files, metrics and steps of the frames that wait."""
    _waiting: dict[str, pl.DataFrame] = field(default_factory=dict)
    """Slice -> its frame."""

    def frame(self, visible: VisibleFiles, slice_name: str, names: Sequence[str], steps: set[int]) -> pl.DataFrame:
        """The metrics by step and this slice at these steps."""
        made_of = visible, tuple(names), frozenset(steps)
        if slice_name not in self._waiting or self._made_of != made_of:
            self._waiting, self._made_of = self._read(visible, names, steps), made_of
        return self._waiting.pop(slice_name)

    def _read(self, visible: VisibleFiles, names: Sequence[str], steps: set[int]) -> dict[str, pl.DataFrame]:
        parts: dict[str, list[pl.DataFrame]] = {name: [] for name in SLICES}
        ordered = sorted(steps)
        for start in range(0, max(1, len(ordered)), STEPS_AT_ONCE):
            few = set(ordered[start : start + STEPS_AT_ONCE])
            statistics = self.written.of(visible, SLICES, statistics_read(names), few)
            for name, own in parts.items():
                own.append(metric_frame(statistics, ("step", name), names))
        return {name: _joined(own) for name, own in parts.items()}


def _joined(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The rows of consecutive steps as one frame. A gap may turn up late in a run."""
    if len(parts) == 1:
        return parts[0]
    frame = pl.concat([part for part in parts if len(part)] or parts[:1], how="diagonal_relaxed")
    return frame.select(in_order_of_gaps(frame.columns))
