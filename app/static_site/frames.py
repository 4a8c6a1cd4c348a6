"""A frame as a table of texts, without secrets and home folders."""

from typing import Any

import polars as pl

from ..presentation.digits import count, digits
from ..report.privacy import scrubbed_text
from .blocks import Table


def frame_rows(title: str, frame: pl.DataFrame) -> Table:
    """Each value as a page prints it; an absent one is empty."""
    rows = [tuple(_cell(value) for value in row) for row in frame.iter_rows()]
    return Table(title, frame.columns, rows)


def _cell(value: Any) -> str:
    """Any: the values of a frame."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return digits(value)
    return count(value) if isinstance(value, int) else scrubbed_text(str(value))
