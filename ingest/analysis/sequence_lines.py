"""For a table of the sequences of one step: the log-ratio along each response, its beginning, and the tokens in a range of
log-ratios.

The tokens of many sequences are also a grid, for a picture that shows where in the batch the gap is.
"""

from dataclasses import dataclass

import polars as pl

from ratioscope.metrics.engines.join import joined
from ratioscope.record import polars_schema, sides

from ..run import Run

POINTS = 60
"""Buckets of a response in a sparkline."""
KEY = ("sequence_id", "minibatch")
PREVIEWED, LONGEST = 60, 140
"""Tokens and characters of a preview."""


def log_ratio_lines(run: Run, step: int, gap: str, points: int = POINTS) -> pl.DataFrame:
    """The log-ratio along each response, in at most `points` equal buckets of positions. Columns: sequence_id, minibatch, line.

    The value of a bucket is that of its token with the largest |x|, with its sign, so that no extreme is lost. It is 0 where all
    tokens of the bucket are masked or have no log-ratio. An infinite value stays infinite. A sequence that lacks
    a policy is left out: a line at 0 would say that both agree.
    """
    length = (pl.col("position").max() + 1).over(KEY)
    bucket = pl.when(length <= points).then(pl.col("position")).otherwise(pl.col("position") * points // length)
    x = pl.when(pl.col("mask").fill_null(True)).then(pl.col(gap)).fill_nan(None)
    tokens = run.tokens([step], (*KEY, "position", "mask", gap)).collect()
    buckets = (
        tokens.with_columns(bucket=bucket, x=x)
        .filter(pl.col(gap).is_not_null().any().over(KEY))
        .group_by(*KEY, "bucket", maintain_order=True)
        .agg(pl.col("x").get(pl.col("x").abs().arg_max()).fill_null(0.0))
    )
    return buckets.group_by(KEY, maintain_order=True).agg(line=pl.col("x"))


def tokens_within(run: Run, step: int, gap: str, low: float, high: float) -> pl.DataFrame:
    """Sequences that have unmasked tokens with low <= x < high: sequence_id, minibatch, their number, position of the first."""
    earlier, _ = sides(gap)
    x = pl.col(gap)
    inside = pl.col("mask").fill_null(True) & x.is_not_nan() & (x >= low) & (x < high)
    known = pl.col(f"{earlier}_logprob").is_finite()
    tokens = run.tokens([step], (*KEY, "position", "mask", f"{earlier}_logprob", gap)).filter(inside & known).collect()
    return tokens.group_by(KEY, maintain_order=True).agg(
        tokens_within=pl.len().cast(pl.Int64), first_within=pl.col("position").first()
    )


def text_previews(run: Run, step: int) -> pl.DataFrame:
    """The beginning of each response in one line. Columns: sequence_id, minibatch, text; null without texts of tokens."""
    rows = pl.DataFrame(joined(run.rows(step, ("token_texts",))))
    begins = pl.col("token_texts").list.head(PREVIEWED).list.drop_nulls().list.join("")
    text = begins.str.replace_all(r"\s+", " ").str.strip_chars().str.head(LONGEST)
    known = pl.when(pl.col("token_texts").list.len() > 0).then(text)
    return rows.select(*KEY, text=known)


ROWS, COLUMNS = 120, 240
"""Most rows and columns of the grid."""


@dataclass(frozen=True)
class TokenHeat:
    """A grid of tokens: sequences down, positions across."""

    cells: pl.DataFrame
    """One row per cell with a token: row, column, `size` (the largest |x| of its sampled tokens, nats; null where none has one),
    `place` of that token's sequence among all and its `position`, and `masked` (True where none of its tokens was sampled)."""
    sequences: int
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
        .agg(pl.col("size").max(), pl.col("place", "position").get(worst.fill_null(0)), masked=~pl.col("sampled").any())
        .sort("row", "column")
    )
    return TokenHeat(cells, len(keys), per_row, per_column, tokens["size"].count())
