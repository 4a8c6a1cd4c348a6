"""The sequences of a step, the worst first: as a list beside the text of one of them, and as a map of their tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from ratioscope.ingest.analysis.sequence_lines import TokenHeat, text_previews, token_heat

from ..blocks import Action, Actions, Block, Chart, Column, Link, Table
from ..figures.drawing.plotly_objects import go
from ..figures.token_heat import token_heat_map
from ..presentation.digits import count
from ..presentation.escape import visible
from ..presentation.metric_places import sequence_measures_at, title_of
from ..presentation.theme import THEMES, ThemeName
from ..presentation.value_text import number_format
from .face import AtMostOne, Face
from .sequence_filters import known
from .step_choice import KEY, opened, worst_first
from .view import View

OFFERED = 300
"""Number of sequences in the list, the worst of the step. A URL can name any other."""
HERE = "▸"
"""The mark of the row that is shown, or that the keys have reached."""


@dataclass(frozen=True)
class Ranked:
    """The sequences of a step, the worst first."""

    rows: pl.DataFrame
    """One row per sequence, its worst one."""
    measure: str
    """The measure by which the worst comes first."""
    column: str
    """The column of the measure."""

    @property
    def names(self) -> dict[str, str]:
        """Name of each sequence as it is shown -> its id."""
        return {visible(own): own for own in self.rows["sequence_id"]}


def ranked(frame: pl.DataFrame, gap: str) -> Ranked:
    """The rows of a step in the order of the list."""
    worst = sequence_measures_at("order")[0]
    column, measure = (f"{gap}/{worst}", worst) if f"{gap}/{worst}" in frame.columns else (f"{gap}/tokens", "tokens")
    rows = worst_first(frame, gap, measure).unique("sequence_id", keep="first", maintain_order=True)
    return Ranked(rows, measure, column)


def asked_sequence(face: Face, of: Ranked, step: int) -> str:
    """The id of the chosen sequence, by default the worst."""
    names, absent = of.names, f"Sequence {{}} is not in step {step} of this run. Another is shown."
    usual = next(iter(names))
    return names[
        face.ask(AtMostOne("sequence", "sequence", [*names], "", absent=absent, usual=usual, look="table")) or usual
    ]


def sequence_list(view: View, step: int, of: Ranked, chosen: str) -> Iterator[Block]:
    """The list with a mark at the chosen one. A click on a row chooses, and so do the keys j and k."""
    ids, names = of.rows["sequence_id"].to_list(), [*of.names]
    at, last = ids.index(chosen), len(ids) - 1
    to = [Link("", {"sequence": names[min(max(place, 0), last)]}) for place in (at - 1, at + 1)]
    yield Actions(
        "walk",
        (
            Action("previous", "previous", to[0], shortcut="k", is_off=at == 0),
            Action("next", "next", to[1], shortcut="j", is_off=at == last),
        ),
        after=f"{at + 1:,} of {last + 1:,}",
    )
    places = [*range(min(OFFERED, len(ids))), *([at] if at >= OFFERED else [])]
    rows = of.rows[places].join(
        view.of(text_previews, step), on=KEY, how="left", nulls_equal=True, maintain_order="left"
    )
    mark = pl.Series("", [HERE if place == at else "" for place in places])
    facts = [name for name in ("reward", "text") if known(rows, name)]
    shown = rows.select(mark, "sequence_id", pl.col(of.column).alias(of.measure), *facts)
    yield Table(
        f"Sequences of step {step}, worst first by {title_of(of.measure)}",
        shown,
        columns={
            "": Column(width=20),
            "sequence_id": Column("sequence", width=86),
            **{
                name: Column(
                    title_of(name), number_format(shown[name].cast(pl.Float64)), name, 118 if name == of.measure else 62
                )
                for name in (of.measure, *facts)
                if name != "text"
            },
            "text": Column("begins with", width=300),
        },
        tallest=None if len(shown) < 18 else 640,
        picks="list_rows",
        leads=lambda row: Link("", {"sequence": names[places[row]]}),
        cut=("sequence_id",),
    )


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
