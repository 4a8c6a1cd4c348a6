"""The metrics of which a scalar log has a number."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import polars as pl

from ratioscope.metrics.metric import Metric

from ..blocks import Paragraph
from .view import View


def logged_among(view: View, metrics: Sequence[Metric], gap: str, frames: Sequence[pl.DataFrame]) -> list[Metric]:
    """Those metrics that have a value in one of the frames, for a scalar log; all of them for any other run."""
    if not view.run.no_tokens:
        return list(metrics)
    return [metric for metric in metrics if any(has_value(frame, f"{gap}/{metric.name}") for frame in frames)]


def has_value(frame: pl.DataFrame, column: str) -> bool:
    """True if the frame has a value in this column."""
    return column in frame.columns and frame[column].null_count() < len(frame)


def not_logged(metrics: Iterable[Metric], known: Collection[Metric]) -> Iterator[Paragraph]:
    """Names the metrics that the log has no number of."""
    if absent := [metric.name for metric in metrics if metric not in known]:
        names = ", ".join(dict.fromkeys(absent))
        yield Paragraph(f"not available, because the log has no number of their definition: {names}", "absent")
