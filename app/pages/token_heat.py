"""The map of the tokens of the listed sequences. A click opens the sequence of a cell at its worst token."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from ratioscope.ingest.analysis.sequence_lines import TokenHeat, token_heat

from ..blocks import Block, Chart, Link
from ..figures.drawing.plotly_objects import go
from ..figures.token_heat import token_heat_map
from ..presentation.digits import count
from ..presentation.theme import THEMES, ThemeName
from .step_choice import KEY, opened
from .view import View


@dataclass(frozen=True)
class Batch:
    """Sequences of a step in an order, as the cache key of their map."""

    view: View
    step: int
    gap: str
    keys: tuple[tuple[str, int | None], ...]
    """sequence_id and minibatch of each."""

    @property
    def heat(self) -> TokenHeat:
        return self.view.of(token_heat, self.step, self.gap, self.keys)


def token_heat_of(view: View, step: int, gap: str, ranked: pl.DataFrame) -> Iterator[Block]:
    """The map of these sequences, the first on top."""
    batch = Batch(view, step, gap, tuple(ranked.select(KEY).iter_rows()))
    label = f"|log-ratio| of the tokens of {count(len(ranked), 'sequence')} of step {step}, the worst on top"
    yield Chart(
        "token_heat",
        label,
        _map,
        (batch,),
        wide=True,
        numbers=lambda: _numbers(batch),
        leads=partial(_clicked, batch),
        hint="a click opens a sequence at the token",
    )


def _map(batch: Batch, theme: ThemeName) -> go.Figure:
    names = [name if minibatch is None else f"{name} · minibatch {minibatch}" for name, minibatch in batch.keys]
    return token_heat_map(batch.heat, names, batch.gap, theme=THEMES[theme])


def _numbers(batch: Batch) -> pl.DataFrame:
    """The cells with the sequences of their worst tokens."""
    ids = pl.Series([name for name, _ in batch.keys], dtype=pl.String)
    cells = batch.heat.cells
    return cells.select("row", "column", ids[cells["place"]].alias("sequence_id"), "position", "size", "masked")


def _clicked(batch: Batch, point: Mapping[str, Any]) -> Link | None:
    found = point.get("customdata")
    if not found or found[0] is None:
        return None
    place, at = int(found[0]), int(found[1])
    name, minibatch = batch.keys[place]
    return opened(pl.DataFrame({"sequence": [name], "minibatch": [minibatch], "at": [at]}), 0)
