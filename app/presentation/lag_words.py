"""The gap by version lag in words and as a table: on the page Staleness and on static pages."""

import math

import polars as pl

from ratioscope.ingest.analysis.evidence import MOST_STEPS
from ratioscope.metrics.analysis.slice_parts import MOST_NUMERIC, size_metric, slice_parts
from ratioscope.metrics.analysis.staleness import Lagged, Staleness

from .digits import count, digits, percent, plus_minus

OF_THE_UPDATE = (
    "Drift measures the trainer's own update. Old weights in the engine do not change it; see mismatch and total."
)


def lag_parts(by_lag: pl.DataFrame, gap: str) -> pl.DataFrame:
    """slice_parts of the lags, ascending. by_lag: as lag_table returns it."""
    parts = slice_parts(by_lag, "lag", gap, size_metric(gap), most=MOST_NUMERIC)
    places = by_lag.select(key="lag", at="first_lag")
    return parts.join(places, on="key", how="left").sort("at", nulls_last=True).drop("at")


def lagged(frame: pl.DataFrame, gap: str) -> list[Lagged]:
    """The sizes of the gap by lag. frame: metrics by lag."""
    size = size_metric(gap)
    columns = ["lag", *(f"{gap}/{name}" for name in ("tokens", size, f"{size}_se"))]
    known = frame.select(columns).drop_nulls(columns[:3])
    return [
        Lagged(int(lag), tokens, value, math.nan if error is None else error)
        for lag, tokens, value, error in known.rows()
    ]


def single_lag(lag: str, *, is_sampled: bool) -> tuple[str, str]:
    """A sentence on the only lag of a run, and what follows from it; a chart by lag would have one bar."""
    every = f"Every token has lag {lag}."
    if not is_sampled:
        return every, ""
    if lag == "0":
        return (
            every,
            "The weights that sampled were never older than the trainer's, so age explains no part of the gap.",
        )
    return every, "There is no lag 0 to compare with, so the part of the gap that comes from old weights is not known."


def lag_answer(staleness: Staleness) -> str:
    """The part of the gap that old weights explain, in one sentence; empty where it is not known."""
    if staleness.reason or staleness.excess == 0:
        return ""
    if staleness.explained <= 2 * staleness.explained_error:
        return "Old weights explain no part of the gap beyond its error."
    sizes = f"K3 is {digits(staleness.value)} nats/token, and {digits(staleness.fresh)} at lag 0"
    return f"Old weights explain {percent(staleness.explained)} of the gap: {sizes}."


def lag_facts(staleness: Staleness, error: float | None = None) -> tuple[tuple[str, str, str], ...]:
    """Name, value and meaning of the gap at lag 0, the excess over it and the share that lag explains.

    error: of all tokens together; None takes that of the tokens with a known lag.
    """
    return (
        (
            "K3 of all tokens",
            _spelled(staleness.value, staleness.value_error if error is None else error),
            "size of the gap: mean K3 over all tokens with a known lag, in nats/token",
        ),
        (
            "at lag 0",
            _spelled(staleness.fresh, staleness.fresh_error),
            "the gap that remains when engine and trainer hold the same weights: numerics",
        ),
        (
            "excess over lag 0",
            _spelled(staleness.excess, staleness.excess_error),
            "K3 of all tokens minus K3 at lag 0; a negative value means no excess",
        ),
        (
            "explained by lag",
            _share(staleness.explained, staleness.explained_error),
            "share of the gap that old weights explain: excess / K3 of all tokens. This assumes the same numerics at every lag."
            " Other changes between these steps are counted too.",
        ),
    )


def lag_note(staleness: Staleness) -> str:
    """The unit, the errors and the number of tokens behind lag_facts, and why a diagnosis has other numbers."""
    size = count(staleness.tokens, "token")
    return (
        f"K3 in nats/token ± one standard error · N = {size} with a known lag · errors assume fixed token counts per lag and"
        f" independent lags. The diagnosis has other numbers: it reads at most {MOST_STEPS} steps, the worst ones among them,"
        " and compares tokens of equal probability."
    )


def lag_rows(parts: pl.DataFrame, metric: str) -> pl.DataFrame:
    """The table beside the bars. parts: as lag_parts returns them."""
    return parts.select(
        pl.col("label").alias("lag"),
        pl.col("tokens").cast(pl.Int64).alias("N tokens"),
        (100 * pl.col("share_of_tokens")).round(2).alias("% of tokens"),
        pl.col("value").alias(metric),
        pl.col("error").alias("± se"),
        (100 * pl.col("share_of_gap")).round(2).alias("% of the gap"),
    )


def _spelled(value: float, error: float) -> str:
    return "–" if math.isnan(value) else plus_minus(value, None if math.isnan(error) else error)


def _share(value: float, error: float) -> str:
    if math.isnan(value) or math.isnan(error):
        return percent(value)
    return f"{plus_minus(100 * value, 100 * error)}%"
