"""Tokens whose two log-probs are equal to the last bit, as a share of each step, beyond what rounding explains.

Statistics count the equal tokens of every step. The rows of few steps tell rounding from copies, and certain tokens from zeros.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from ratioscope.arrays import Booleans, Floats, Integers
from ratioscope.metrics.diagnosis.grid import grid_of, widths
from ratioscope.metrics.engines.arrow_columns import gap_rows
from ratioscope.metrics.metric import SAMPLED

from .comparability import recorded_values
from .copies import CHANCE, equal_tokens
from .step_rows import columns_of

if TYPE_CHECKING:
    from ..run import Run

LEAST = 0.01
"""A smaller share of equal tokens, or of zeros, is no evidence. Convention."""
FEWEST = 20
"""Fewer equal tokens in a run are no evidence."""
_LOOKS, _LOOKS_AFAR = 4, 1
"""Steps whose rows are read; of a run on a store, where each is a request."""
_LOOKED, _MOST_LOOKS = 1000, 32
"""Tokens that these steps should have: of shorter steps more are read, up to so many."""
_SURE, _LOG_SURE = "0.999", float(np.log(0.999))
"""The slice of tokens that are nearly certain, and its edge in nats: rounding alone makes many of their log-probs equal."""
_WIDTH = 2e-6
"""Distance of neighbouring float32 logits near 16, in nats: log-probs made of these lie on such a grid."""
_BESIDE, _TIMES = 1e-5, 10
"""Certain tokens have at most so many log-probs of 0 for each one within this distance of 0. Convention. A temperature T below 1
spreads the logits 1 / T times as far, and so allows so many times as many."""
_ERRORS = 2.0
"""Few log-probs beside 0 are so many standard errors more: their number is by chance."""
_MOST_OF_ROW = 0.9
"""A copied sequence has at least so many equal tokens among those that are not certain. Convention."""
_FEW = 2.0
"""Sides that differ by no more grid steps than this are equal at most of their tokens by rounding. Convention."""


_SCHEMA = {"step": pl.Int64, "tied": pl.Float64, "zero": pl.Float64, "gap": pl.String}


def ties(run: "Run") -> pl.DataFrame:
    """Columns step, tied, zero, gap: shares of the tokens of each sampled gap. Steps without an unexplained one are left out.

    tied: equal on both sides, and neither nearly certain nor on a grid that is as coarse as the gap. zero: 0 on both sides,
    though no token has a log-prob beside 0, as certain ones would.
    """
    found = [_of_gap(run, gap).with_columns(gap=pl.lit(gap)) for gap in SAMPLED if gap in run.gaps]
    return pl.concat([pl.DataFrame(schema=_SCHEMA), *found])


def _of_gap(run: "Run", gap: str) -> pl.DataFrame:
    found = equal_tokens(run, gap).with_columns(pl.col("equal") / pl.col("n")).filter(pl.col("equal") >= LEAST)
    if (found["n"] * found["equal"]).sum() < FEWEST:
        found = found.clear()
    if found.is_empty():
        return found.select("step", tied="equal", zero="equal")
    slices = run.metrics(by=("step", "probability"), names=("tokens",)).filter(pl.col("probability") == _SURE)
    sure = slices.select("step", sure=f"{gap}/tokens")
    own = found.join(sure, on="step", how="left").with_columns(sure=pl.col("sure").fill_null(0) / pl.col("n"))
    found = (
        own.join_asof(_read(run, gap, own), on="step", strategy="nearest")
        .select(
            "step",
            "n",
            tied=(pl.col("equal") - pl.col("sure")).clip(0) * (1 - pl.col("rounded")),
            zero=pl.col("sure") * pl.col("zero"),
        )
        .with_columns(pl.when(pl.col(name) >= LEAST).then(name).otherwise(0.0).alias(name) for name in ("tied", "zero"))
        .filter(pl.col("tied") + pl.col("zero") > 0)
    )
    few = (found["n"] * (found["tied"] + found["zero"])).sum() < FEWEST
    return (found.clear() if few else found).drop("n")


def _read(run: "Run", gap: str, own: pl.DataFrame) -> pl.DataFrame:
    """Columns step, rounded, zero of the steps with the most equal tokens, the least, and some between; one if none has rows.

    rounded: share of the equal tokens that rounding explains. zero: share of the nearly certain tokens that are placeholders.
    """
    kept = own.filter(pl.col("step").is_in(list(run.row_digests()))).sort("equal", descending=True)["step"].to_list()
    short = math.ceil(_LOOKED / own["n"].mean())  # type: ignore[operator]
    most = _LOOKS_AFAR if run.is_remote else min(max(_LOOKS, short), _MOST_LOOKS)
    steps = sorted({kept[at * (len(kept) - 1) // max(1, most - 1)] for at in range(most)}) if kept else []
    read = [_of_step(run, step, gap) for step in steps]
    # A policy that collapses comes near certainty at other steps than those at which all tokens are certain.
    found = sum(each.near for each in read)
    near = (found + _ERRORS * math.sqrt(found)) / max(sum(each.zeros for each in read), 1e-300)
    cold = min(1.0, recorded_values(run.info).get("temperature", 1.0))
    mixed = [(each.alike[~each.is_whole].sum(), each.unsure[~each.is_whole].sum()) for each in read]
    usual = float(sum(alike for alike, _ in mixed) / max(sum(unsure for _, unsure in mixed), 1))
    rows = [
        (
            step,
            max(each.rounded, each.scattered(usual)),
            max(0.0, 1 - _TIMES / cold * near) * each.zeros / max(each.sure, 1e-300),
        )
        for step, each in zip(steps, read, strict=True)
    ]
    schema = {"step": pl.Int64, "rounded": pl.Float64, "zero": pl.Float64}
    return pl.DataFrame(rows or [(int(own["step"][0]), 0.0, 0.0)], schema=schema, orient="row")


class _Read(NamedTuple):
    """The equal and the nearly certain tokens of one step."""

    rounded: float
    """Share of the equal tokens that the grid explains."""
    alike: Integers
    """Equal tokens of each sequence among those that are not nearly certain."""
    unsure: Integers
    """Tokens of each sequence that are not nearly certain."""
    zeros: float
    """Number of tokens with two log-probs of 0, by the sequences that each stands for."""
    near: float
    """The same of those within reach of 0 that are not 0."""
    sure: float
    """The same of all that are nearly certain."""

    @property
    def is_whole(self) -> Booleans:
        """True for the sequences whose tokens are equal, as those of a copy are."""
        return self.alike >= _MOST_OF_ROW * np.maximum(self.unsure, 1)

    def scattered(self, usual: float) -> float:
        """Share of the equal tokens that lie in sequences of which most tokens differ: a copy is of whole sequences.

        Sides that compute in 16 bits agree at some tokens, here and there, and up to the first place where one rounds otherwise.
        usual: share of equal tokens in the sequences that are no copy; it makes short ones equal as a whole now and then.
        """
        is_copy = self.is_whole & (usual**self.alike < CHANCE)
        return 1 - float(self.alike[is_copy].sum() / self.alike.sum()) if self.alike.any() else 0.0


def _of_step(run: "Run", step: int, gap: str) -> _Read:
    rows = gap_rows(columns_of(run, step, ("mask", "inclusion_probability"), gap), gap)
    chosen = rows.mask & np.isfinite(rows.earlier) & np.isfinite(rows.later)
    earlier, later = (side[chosen].astype(np.float64) for side in (rows.earlier, rows.later))
    stands = np.ones(len(earlier)) if rows.stands_for is None else np.repeat(rows.stands_for, rows.lengths)[chosen]
    grid = max((widths(found, side) for side in (earlier, later) if (found := grid_of(side))), key=np.sum, default=None)
    row = np.repeat(np.arange(len(rows.lengths)), rows.lengths)[chosen]
    far = np.maximum(np.abs(earlier), np.abs(later))
    zero: Booleans = far == 0
    beside = _BESIDE if grid is None else max(_BESIDE, 10 * far[~zero].min(initial=1.0))
    near, sure = ~zero & (far < beside), earlier >= _LOG_SURE
    alike, unsure = (
        np.bincount(row[tokens], minlength=len(rows.lengths)) for tokens in ((earlier == later) & ~sure, ~sure)
    )
    counts = (float(stands[tokens].sum()) for tokens in (zero, near, sure))
    return _Read(_rounded(earlier, later, grid), alike, unsure, *counts)


def _rounded(earlier: Floats, later: Floats, grid: Floats | None) -> float:
    """Share of the equal tokens that the grid makes equal: few steps of it lie between the sides of the others."""
    apart = (earlier != later) & (earlier < _LOG_SURE)
    if not apart.any():
        return 0.0
    width = _WIDTH if grid is None else grid[apart]
    return float(min(1.0, _FEW / np.median(np.abs(later - earlier)[apart] / width)))
