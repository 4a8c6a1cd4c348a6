"""The tokens of a batch as a map: a row per sequence, a column per position, coloured by the largest |log-ratio| of each cell."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from ratioscope.ingest.analysis.sequence_lines import TokenHeat
from ratioscope.metrics.analysis.token_values import BY_NAME

from ..presentation.digits import count, digits
from ..presentation.gap_words import gap_words
from ..presentation.metric_places import TINT
from ..presentation.theme import LIGHT, Theme, faded
from .drawing.along import fit_labels
from .drawing.canvas import canvas, coloured, saying
from .drawing.plotly_objects import go
from .slice_bars import short_labels

STEPS = BY_NAME[TINT].steps
"""Sizes at which the colour changes, in nats: those of the tinted text."""
LABELLED = 30
"""Most rows whose names stand beside them; the hover names all."""
HEIGHTS = (4, 18)
"""Least and most pixels of a row."""
TALLEST = 520
"""Pixels of all rows, unless they are narrower than the least."""
MASKED = -1
"""The place of masked cells on the scale of colours, which counts the STEPS that a size has reached."""
TOLD = "%{y}<br>position %{customdata[1]}<br>%{text}<extra></extra>"
"""The hover: the name of the row, and the worst token, or the first if none was sampled."""


def token_heat_map(heat: TokenHeat, names: Sequence[str], gap: str, *, theme: Theme = LIGHT) -> go.Figure:
    """names: of the sequences, in the order of the rows.

    A click on a cell gives the place of the sequence of its worst token and that token's position. So does a point for the
    keyboard in each row, at its worst token.
    """
    rows = -(-heat.sequences // heat.per_row)
    height = 110 + round(rows * min(max(TALLEST / max(rows, 1), HEIGHTS[0]), HEIGHTS[1]))
    parts = [f"a row: {count(heat.per_row, 'sequence')}" if heat.per_row > 1 else ""]
    parts += [f"a column: {count(heat.per_column, 'position')}" if heat.per_column > 1 else ""]
    binned = "a cell of several tokens has the colour of the one with the largest |log-ratio|" if any(parts) else ""
    made = (f"N = {count(heat.tokens, 'token')}, as recorded", binned)
    title = f"Tokens of {count(heat.sequences, 'sequence')} <i>{gap_words(gap)}</i>"
    figure = canvas(title, parts, theme=theme, height=height, lines=2, made=made, key=(_colour_words(theme),))
    if not heat.tokens:
        return saying(figure, "not available, because no sampled token of these sequences has a log-ratio", theme)
    _add_cells(figure, heat, rows, theme)
    figure.update_xaxes(title={"text": "position"}, tickformat="d", showgrid=False)
    figure.update_yaxes(
        tickvals=np.arange(rows),
        ticktext=_row_names(heat, names, rows),
        showticklabels=rows <= LABELLED,
        range=[rows - 0.5, -0.5],
        showgrid=False,
        title={"text": "" if rows <= LABELLED else "sequences, worst first"},
    )
    fit_labels(figure)
    return figure


def _add_cells(figure: go.Figure, heat: TokenHeat, rows: int, theme: Theme) -> None:
    masked, known = heat.cells["masked"].to_numpy(), heat.cells["size"].to_numpy()
    words = [
        "masked: not sampled" if grey else f"{digits(size)} nats" for grey, size in zip(masked, known, strict=True)
    ]
    cells = heat.cells.with_columns(words=pl.Series(words, dtype=pl.String))
    at = cells["row"].to_numpy(), cells["column"].to_numpy()
    shape = rows, int(at[1].max()) + 1
    colours, texts, worst = (
        np.full(shape, np.nan, np.float32),
        np.full(shape, "", object),
        np.zeros((*shape, 2), np.float32),
    )
    reached = np.where(np.isnan(known), np.nan, np.searchsorted(STEPS, known, side="right"))
    colours[at], texts[at] = np.where(masked, MASKED, reached), words
    worst[at] = cells.select("place", "position").to_numpy()
    middles = np.arange(shape[1]) * heat.per_column + (heat.per_column - 1) / 2
    ramp = (_grey(theme), *theme.counts)
    figure.add_heatmap(
        z=colours,
        x=middles,
        y=np.arange(rows),
        text=texts.tolist(),
        customdata=worst,
        zmin=MASKED,
        zmax=len(STEPS),
        colorscale=[[place / (len(ramp) - 1), colour] for place, colour in enumerate(ramp)],
        showscale=False,
        hoverongaps=False,
        hovertemplate=TOLD,
        name="cells",
    )
    figure.update_xaxes(range=[-0.5, shape[1] * heat.per_column - 0.5])
    if theme.live:
        stops = cells.drop_nulls("size").sort("row", -pl.col("size")).unique("row", keep="first", maintain_order=True)
        figure.add_scatter(
            x=middles[stops["column"].to_numpy()],
            y=stops["row"].to_numpy(),
            mode="markers",
            marker={"opacity": 0, "size": 1},
            text=stops["words"].to_list(),
            customdata=stops.select("place", "position").rows(),
            hovertemplate=TOLD,
            name="worst tokens",
        )


def _row_names(heat: TokenHeat, names: Sequence[str], rows: int) -> list[str]:
    if heat.per_row == 1:
        return short_labels(names)
    ends = [min((row + 1) * heat.per_row, heat.sequences) for row in range(rows)]
    return [f"sequences {row * heat.per_row + 1:,} to {end:,}" for row, end in enumerate(ends)]


def _grey(theme: Theme) -> str:
    return faded(theme.muted, 0.45)


def _colour_words(theme: Theme) -> str:
    """The colours with the sizes from which they are used."""
    blocks = [f"{coloured('█', colour)} {digits(size)}" for size, colour in zip((0, *STEPS), theme.counts, strict=True)]
    return f"|log-ratio| from {' '.join(blocks)} nats · {coloured('█', _grey(theme))} masked"
