"""The tokens of many sequences of a step as a grid, for a picture that shows where in the batch the gap is."""

from dataclasses import dataclass

import polars as pl

from ratioscope.record import polars_schema, sides

from ..run import Run
from .sequence_lines import KEY

ROWS, COLUMNS = 120, 240
"""Most rows and columns of the grid."""


@dataclass(frozen=True)
class TokenHeat:
    """A grid of tokens: sequences down, positions across."""

    cells: pl.DataFrame
    """One row per cell with a token: row, column, `size` (the largest |x| of its sampled tokens, nats; null where none has one),
    `place` of that token's sequence among all and its `position`, and `masked` (True where none of its tokens was sampled)."""
    sequences: int
    """Number of sequences."""
    per_row: int
    """Sequences in a row."""
    per_column: int
    """Positions in a column."""
    tokens: int
    """Number of sampled tokens with a log-ratio."""


def token_heat(run: Run, step: int, gap: str, keys: tuple[tuple[str, int | None], ...]) -> TokenHeat:
    """The grid of these sequences in this order, the first in the first row. keys: sequence_id and minibatch of each."""
    earlier, schema = f"{sides(gap)[0]}_logprob", polars_schema()
    places = pl.LazyFrame(keys, {name: schema[name] for name in KEY}, orient="row").with_row_index("place")
    size = pl.when(pl.col("sampled") & pl.col(earlier).is_finite()).then(pl.col(gap).abs()).fill_nan(None)
    tokens = (
        run.tokens([step], (*KEY, "position", "mask", earlier, gap))
        .join(places, on=KEY, how="inner", nulls_equal=True)
        .with_columns(sampled=pl.col("mask").fill_null(True))
        .select("place", "position", "sampled", size=size)
        .collect()
    )
    per_row, longest = -(-len(keys) // ROWS), tokens.select(pl.col("position").max().fill_null(0)).item()
    per_column = -(-(longest + 1) // COLUMNS)
    worst = pl.col("size").arg_max()
    cells = (
        tokens.group_by(row=pl.col("place") // per_row, column=pl.col("position") // per_column)
        .agg(
            pl.col("size").max(),
            pl.col("place", "position").get(worst.fill_null(0)),
            masked=~pl.col("sampled").any(),
        )
        .sort("row", "column")
    )
    return TokenHeat(cells, len(keys), per_row, per_column, tokens["size"].count())
