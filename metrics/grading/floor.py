"""The floor of a gap: the size of the gap when the run began. The growth of a gap is graded against its floor.

The floor depends on the run's first steps alone, so no later step can change it. A floor computed from the whole run, or from
all its fresh tokens (those at lag 0), would rise together with the gap whose growth it should show.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from ..metric import SAMPLED
from .signals import at_most, kl_error

FIRST_STEPS = 3
"""The number of first steps that determine a floor. Convention: one step may be chance, and more would delay the first grade."""
ENOUGH = 200
"""A step's fresh tokens count if they are at least so many, or half of the step. Convention: a few tokens may agree by chance."""
FLOOR = ("kl_k3", "tokens")
"""The metrics that a floor is computed from."""
LAG_ZERO = "0"

Floors = Mapping[str, float]
"""gap -> its floor, nats/token."""


def floors(frame: pl.DataFrame, fresh: pl.DataFrame | None = None) -> dict[str, float]:
    """gap -> its floor (nats/token): the lowest kl_k3 plus uncertainty among the first FIRST_STEPS steps that have one.

    frame: a metric_frame by step. fresh: a metric_frame by step of the tokens at lag 0 alone; it counts too, because a run may
    begin with stale weights. The lowest step counts, because a run may begin badly; its uncertainty is added, because the
    lowest of several is low partly by chance. The floor is fixed once FIRST_STEPS steps are on record.
    """
    result = {}
    for gap in SAMPLED:
        first = _known(frame, gap).sort("step").head(FIRST_STEPS)
        own = first if fresh is None else pl.concat([first, _enough(_known(fresh, gap), first)])
        if len(own):
            value, error, tokens = (own[name].to_numpy() for name in ("value", "error", "tokens"))
            result[gap] = float(np.min(at_most(value, kl_error(value, error, tokens))))
    return result


def first_steps(frame: pl.DataFrame) -> range:
    """The range of steps that determine the floors. frame: a metric_frame by step."""
    steps = [step for gap in SAMPLED for step in _known(frame, gap)["step"].sort().head(FIRST_STEPS)]
    return range(min(steps), max(steps) + 1) if steps else range(0)


def at_lag_zero(frame: pl.DataFrame) -> pl.DataFrame | None:
    """The rows of the tokens at lag 0, sampled by the weights that are being trained; None if no lag is on record.

    frame: a metric_frame by step and lag.
    """
    return frame.filter(pl.col("lag") == LAG_ZERO) if "lag" in frame.columns else None


def _enough(fresh: pl.DataFrame, first: pl.DataFrame) -> pl.DataFrame:
    """The rows of `fresh` at the steps of `first` that have ENOUGH fresh tokens."""
    beside = fresh.join(first.select("step", whole="tokens"), on="step", how="inner", maintain_order="left")
    return beside.filter(pl.col("tokens") >= pl.min_horizontal(pl.col("whole") / 2, ENOUGH)).drop("whole")


def _known(frame: pl.DataFrame, gap: str) -> pl.DataFrame:
    """Columns step, value, error, tokens: the kl_k3 of the gap at every step where it is finite."""
    name = f"{gap}/kl_k3"
    if name not in frame.columns:
        return pl.DataFrame(schema={"step": pl.Int64, **dict.fromkeys(("value", "error", "tokens"), pl.Float64)})
    error = pl.col(f"{name}_se") if f"{name}_se" in frame.columns else pl.lit(None)
    rows = frame.select(
        pl.col("step").cast(pl.Int64),
        pl.col(name).cast(pl.Float64).alias("value"),
        error.cast(pl.Float64).fill_null(np.nan).alias("error"),
        pl.col(f"{gap}/tokens").cast(pl.Float64).alias("tokens"),
    )
    return rows.filter(pl.col("value").is_finite())
