"""The level of a gap at each step of a run, and its tokens by step and part of a slice."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ratioscope.arrays import Integers
from ratioscope.metrics.diagnosis.composition import Mix, at_fixed_mix
from ratioscope.metrics.diagnosis.history import History
from ratioscope.metrics.diagnosis.step_noise import log_error

if TYPE_CHECKING:
    from ..run import Run

READ = ("kl_k3", "tokens")
"""Metrics that a history and a mix are made of."""


@dataclass(frozen=True)
class StepMix:
    """The tokens of a gap by step and part of a slice."""

    slice: str
    steps: Integers
    """Shape (steps,), ascending."""
    keys: tuple[str, ...]
    """Key of each part."""
    mix: Mix


def gap_history(frame: pl.DataFrame, gap: str) -> History | None:
    """The level of the gap at each step; None if its K3 is not on record. frame: metrics READ by step."""
    if f"{gap}/kl_k3" not in frame.columns or f"{gap}/kl_k3_se" not in frame.columns:
        return None
    own = frame.sort("step").select(
        "step", level=pl.col(f"{gap}/kl_k3").cast(pl.Float64), error=pl.col(f"{gap}/kl_k3_se").cast(pl.Float64),
        tokens=pl.col(f"{gap}/tokens").cast(pl.Float64),
    ).filter(pl.col("level") > 0)  # fmt: skip
    level = own["level"].to_numpy()
    error = log_error(own["error"].fill_null(np.nan).to_numpy() / level)
    return History(own["step"].to_numpy(), level, error, own["tokens"].to_numpy())


def history_with_mix(run: "Run", gap: str, history: History | None) -> History | None:
    """The history with its levels at one mix of probabilities: another mix of tokens is no fault."""
    own = None if history is None else step_mix(run, gap, "probability", history.steps.tolist())
    if history is None or own is None:
        return history
    levels = np.full(len(history.steps), np.nan)
    levels[np.searchsorted(history.steps, own.steps)] = at_fixed_mix(own.mix)
    return replace(history, fixed_mix=levels)


def step_mix(run: "Run", gap: str, slice_name: str, steps: Sequence[int]) -> StepMix | None:
    """The tokens of these steps by part of a written slice; None if it has fewer than 2 parts.

    Steps without tokens, or with an infinite K3, are left out.
    """
    frame = run.metrics(by=("step", slice_name), names=READ)
    names = f"{gap}/kl_k3", f"{gap}/tokens"
    if slice_name not in frame.columns or any(name not in frame.columns for name in names):
        return None
    own = frame.select("step", key=slice_name, level=names[0], tokens=names[1]).drop_nulls()
    own = own.filter(pl.col("step").is_in(list(steps)) & (pl.col("tokens") > 0))
    own = own.filter(pl.col("level").is_finite().all().over("step"))
    distinct, row = np.unique(own["step"].to_numpy(), return_inverse=True)
    keys = sorted(own["key"].unique().to_list(), key=_order)
    if len(keys) < 2:
        return None
    column = own["key"].replace_strict(keys, range(len(keys)), return_dtype=pl.Int64).to_numpy()
    tokens = np.zeros((len(distinct), len(keys)))
    sums = np.zeros_like(tokens)
    tokens[row, column] = own["tokens"].to_numpy()
    sums[row, column] = own["level"].to_numpy() * own["tokens"].to_numpy()
    return StepMix(slice_name, distinct, tuple(keys), Mix(tokens, sums))


def _order(key: str) -> tuple[float, str]:
    """Numbers in their order, then names."""
    try:
        return float(key), key
    except ValueError:
        return np.inf, key
