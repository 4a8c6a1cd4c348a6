"""The floor of a gap: how far the engines were apart when the run began. Growth is graded against it.

It is taken from the run's first steps alone, so that no later step can move it. Pooled over a whole run, or over all its fresh
tokens, it would rise with the very gap that it is to show.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from ..metric import SAMPLED, Values
from .signals import at_least

FIRST_STEPS = 3
"""Steps that a floor is taken from. Convention: one may be chance, and more would wait longer for a fault to be a fault."""
ENOUGH = 200
"""Fresh tokens of a step that may speak for it; fewer only where they are half of it. Convention: few may agree by chance."""
FLOOR = ("kl_k3", "tokens")
"""What a floor is read from."""
LAG_ZERO = "0"

Floors = Mapping[str, float]
"""gap -> its floor, nats/token."""


def floors(frame: pl.DataFrame, fresh: pl.DataFrame | None = None) -> dict[str, float]:
    """gap -> kl_k3 of its floor: the lowest of the first steps that have one, each with its uncertainty added.

    frame: a metric_frame by step; fresh: one of the tokens at lag 0 alone, for a run may begin with stale weights. The
    lowest, because a run can begin badly; with uncertainty, because the lowest of several is so by chance too. Fixed once
    FIRST_STEPS steps are on record.
    """
    found = {}
    for gap in SAMPLED:
        first = _known(frame, gap).sort("step").head(FIRST_STEPS)
        own = first if fresh is None else pl.concat([first, _enough(_known(fresh, gap), first)])
        if len(own):
            value, error = (own[name].to_numpy() for name in ("value", "error"))
            found[gap] = float(np.min(_at_most(value, error)))
    return found


def first_steps(frame: pl.DataFrame) -> range:
    """The steps that floors are taken from, and those between them; of a metric_frame by step."""
    steps = [step for gap in SAMPLED for step in _known(frame, gap)["step"].sort().head(FIRST_STEPS)]
    return range(min(steps), max(steps) + 1) if steps else range(0)


def at_lag_zero(frame: pl.DataFrame) -> pl.DataFrame | None:
    """The rows of the tokens that were sampled by the very weights that are trained; None where no lag is on record.

    frame: a metric_frame by step and lag.
    """
    return frame.filter(pl.col("lag") == LAG_ZERO) if "lag" in frame.columns else None


def _enough(fresh: pl.DataFrame, first: pl.DataFrame) -> pl.DataFrame:
    """The fresh tokens of these steps, where there are enough of them."""
    beside = fresh.join(first.select("step", whole="tokens"), on="step", how="inner", maintain_order="left")
    return beside.filter(pl.col("tokens") >= pl.min_horizontal(pl.col("whole") / 2, ENOUGH)).drop("whole")


def _known(frame: pl.DataFrame, gap: str) -> pl.DataFrame:
    """step, value, error and tokens of the steps on which the gap has a finite kl_k3."""
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


def _at_most(value: Values, error: Values) -> Values:
    """A value with its uncertainty added, on the scale on which `at_least` takes it off. 0 stays 0."""
    with np.errstate(all="ignore"):
        return np.where(value > 0, value**2 / at_least(value, error), value)
