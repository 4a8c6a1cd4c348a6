"""A Correction applied to flat tokens: the weights and the mask it leaves. There is no loop over tokens or sequences."""

from dataclasses import dataclass, replace

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from ..definitions.divergence import k3
from ..distribution import Level
from .correction import Correction, Reject, Weigh


@dataclass(frozen=True)
class CorrectedTokens:
    """A batch before and after a correction. Every field has shape (tokens,)."""

    log_ratio: Floats
    """Input: x in nats."""
    sequence: Integers
    """Input: the sequence of each token, numbered from 0, non-decreasing."""
    sampled: Booleans
    """Input: whether the policy sampled the token (the loss mask before the correction)."""
    weight: Floats
    """The weight of the token's loss term; 1 if the correction sets no weights."""
    mask: Booleans
    """True if the token is still in the loss."""
    clipped: Booleans
    """True if a bound changed the token's weight."""


def corrected_tokens(
    correction: Correction, log_ratio: Floats, sequence: Integers, sampled: Booleans
) -> CorrectedTokens:
    """The batch after all steps of the correction, applied in order. All inputs have shape (tokens,); log_ratio is in nats.

    sequence: the sequence of each token, non-decreasing from 0. A token whose log-ratio is NaN is taken out of `sampled`:
    it has no weight and is not counted. A log-ratio of -inf is a weight of 0.
    """
    sampled = sampled & ~np.isnan(log_ratio)
    ones = np.ones(len(log_ratio))
    state = CorrectedTokens(log_ratio, sequence, sampled, ones, sampled.copy(), np.zeros(len(ones), np.bool_))
    with np.errstate(all="ignore"):
        for step in correction.steps:
            if isinstance(step, Weigh):
                included = state.sampled if step.over == "sampled" else state.mask
                logs = np.clip(_log_weight(state, step.level, included), -step.log_limit, step.log_limit)
                raw = np.exp(logs)
                outside = (raw < step.low) | (raw > step.high)
                held = np.clip(raw, step.low, step.high) if step.outside == "clamp" else np.where(outside, 0.0, raw)
                state = replace(state, weight=held, clipped=outside & included)
            elif isinstance(step, Reject):
                state = _rejected(state, step)
            else:
                in_loss = state.mask.astype(np.float64)
                if step.by == "token":
                    mean = (state.weight * in_loss).sum() / max(in_loss.sum(), 1.0)
                else:
                    tokens = _sum(state, in_loss)
                    means = _sum(state, state.weight * in_loss) / np.maximum(tokens, 1.0)
                    mean = means.sum() / max((tokens > 0).sum(), 1)
                state = replace(state, weight=state.weight / mean) if mean > 0 else state
    return state


def _log_weight(state: CorrectedTokens, level: Level, included: Booleans) -> Floats:
    if level == "token":
        return state.log_ratio
    total = _sum(state, np.where(included, state.log_ratio, 0.0))
    if level == "geometric":
        total = total / np.maximum(_sum(state, included), 1.0)
    return total[state.sequence]


def _rejected(state: CorrectedTokens, step: Reject) -> CorrectedTokens:
    included = state.sampled if step.over == "sampled" else state.mask
    # Weights are compared in log space, because a product of thousands of weights overflows.
    low, high = (_logarithm(step.low), _logarithm(step.high)) if step.of == "weight" else (step.low, step.high)
    values = _judged(state.log_ratio, step.of)
    if step.by in ("token", "any"):
        outside = included & ((values < low) | (values > high))
        if step.by == "token":
            return replace(state, mask=state.mask & ~outside)
        bad = _sum(state, outside) > 0
    else:
        reduced = _reduced(state, values, included, step.by)
        bad = (reduced < low) | (reduced > high)
    return replace(state, mask=state.mask & ~bad[state.sequence])


def _judged(log_ratio: Floats, of: str) -> Floats:
    if of == "k2":
        return log_ratio**2 / 2
    if of == "k3":
        return np.asarray(k3(log_ratio, np), np.float64)
    return -log_ratio if of == "k1" else log_ratio


def _reduced(state: CorrectedTokens, values: Floats, included: Booleans, by: str) -> Floats:
    """One value per sequence; 0 (a weight of 1) for a sequence without tokens."""
    if by == "max":
        largest: Floats = np.full(_sequences(state), -np.inf)
        np.maximum.at(largest, state.sequence[included], values[included])
        return np.where(np.isneginf(largest), 0.0, largest)
    total = _sum(state, np.where(included, values, 0.0))
    return total / np.maximum(_sum(state, included), 1.0) if by == "mean" else total


def _sum(state: CorrectedTokens, values: Floats | Booleans) -> Floats:
    return np.asarray(np.bincount(state.sequence, values, minlength=_sequences(state)), np.float64)


def _sequences(state: CorrectedTokens) -> int:
    return int(state.sequence[-1]) + 1 if len(state.sequence) else 0


def _logarithm(bound: float) -> float:
    return -np.inf if bound <= 0 else float(np.log(bound))
