"""Tables whose rows open at a click anywhere in them, and in which several rows can be ticked."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st

from ...blocks import Link, Table

CELLS = "single-cell"
"""The selection mode of such a table: a click on a cell chooses its row. A mode for rows has a column of small boxes to tick."""


@dataclass(frozen=True)
class ShownRows:
    """The rows of a session's table, in its order."""

    names: tuple[Hashable, ...] = ()
    number: int = 0
    """Number of the table. A new table begins if a ticked row may have changed its place."""


def clicked_row(table: Any, rows: int) -> int | None:
    """The clicked one of this many rows; None if no cell was clicked. table: what st.dataframe returns, or its state."""
    cells = table.selection.cells
    return int(cells[0][0]) if cells and cells[0][0] < rows else None


def tick_key(name: str) -> str:
    """The key of the table of this name as it was last drawn."""
    return f"{name}_{_shown(name).number}"


def ticked_rows(name: str) -> list[Any]:
    """The names of the ticked rows."""
    chosen, names = st.session_state.get(tick_key(name)), _shown(name).names
    return [names[row] for row in chosen.selection.rows if row < len(names)] if chosen else []


def in_place(block: Table) -> Table:
    """The rows in their order. While some are ticked, the rows before keep their places and new ones come below them, because a
    tick is known by its place alone. If a row is gone, a new table begins."""
    before, ticked = _shown(block.picks), ticked_rows(block.picks)
    places = {name: place for place, name in enumerate(before.names)}
    order, stays = [*range(len(block.rows))], set(places) <= set(block.rows)
    if stays and ticked:
        order.sort(key=lambda row: places.get(block.rows[row], len(places)))
    rows = tuple(block.rows[row] for row in order)
    st.session_state[_kept(block.picks)] = ShownRows(rows, before.number + (bool(ticked) and not stays))
    leads = None if block.leads is None else partial(_led, block.leads, order)
    return replace(block, frame=block.frame[order], rows=rows, leads=leads)


def _led(leads: Callable[[int], Link], order: Sequence[int], row: int) -> Link:
    return leads(order[row])


def _shown(name: str) -> ShownRows:
    shown = st.session_state.get(_kept(name))
    return shown if isinstance(shown, ShownRows) else ShownRows()


def _kept(name: str) -> str:
    return f"_rows_of_{name}"
