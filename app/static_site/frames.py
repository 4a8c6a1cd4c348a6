"""A frame as a table of texts, without secrets and home folders."""

from typing import Any

import polars as pl

from ..presentation.digits import count
from ..presentation.number_columns import column_texts
from ..report.privacy import scrubbed_text
from .blocks import Table


def frame_rows(title: str, frame: pl.DataFrame) -> Table:
    """Each value as a page prints it; an absent one is empty."""
    columns = [column_texts(own) if own.dtype.is_float() else [*map(_cell, own)] for own in frame.iter_columns()]
    return Table(title, frame.columns, [*zip(*columns, strict=True)])


def _cell(value: Any) -> str:
    """Any: the values of a frame."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return count(value) if isinstance(value, int) else scrubbed_text(str(value))
