"""verl's rejection before 0.7.1: by the ratio itself (token, sequence, geometric mean), and a veto by single tokens."""

import numpy as np

from ratioscope.arrays import Booleans

from .ratio import LogRatio, any_in_row, mean, token_mean
from .settings import Rejection
from .weights import Band, ratio_summary, ratios


def reject_by_ratio(ratio: LogRatio, rejections: tuple[Rejection, ...]) -> tuple[Booleans, dict[str, float]]:
    """(the mask without tokens or rows whose trainer / rollout is outside the bounds, the `rollout_rs_` metrics)."""
    mask, metrics = ratio.mask, {}
    for rejection in rejections:
        assert rejection.lower is not None
        levels = ratios(ratio, rejection.option)
        keeps = (levels.own >= rejection.lower) & (levels.own <= rejection.upper)
        band = Band(rejection.lower, rejection.upper, rejection.lower)
        metrics = ratio_summary("rollout_rs", levels.exact, levels, ratio.mask, band)
        metrics["rollout_rs_masked_fraction"] = token_mean(~keeps, ratio.mask)
        # for sequence and geometric an empty row counts too
        judged = ratio.mask & ~keeps if rejection.option == "token" else ~keeps
        metrics["rollout_rs_seq_masked_fraction"] = mean(any_in_row(judged))
        mask = mask & keeps
    return mask, metrics


def veto(ratio: LogRatio, threshold: float | None) -> tuple[Booleans, dict[str, float]]:
    """(rows without a valid token of ratio below the threshold, (rows, 1); metrics, 0.0 without a threshold)."""
    names = ("rollout_is_veto_fraction", "rollout_is_catastrophic_token_fraction")
    if threshold is None:
        return np.ones((len(ratio.mask), 1), np.bool_), dict.fromkeys(names, 0.0)
    catastrophic = (ratio.own < np.log(np.float32(threshold))) & ratio.mask
    vetoed = catastrophic.any(axis=1, keepdims=True)
    return ~vetoed, dict(zip(names, (mean(vetoed), token_mean(catastrophic, ratio.mask)), strict=True))
