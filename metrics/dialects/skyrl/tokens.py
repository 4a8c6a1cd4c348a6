"""The arrays of one micro-batch for SkyRL's losses, in the precision of its log-probs, and SkyRL's averages.

float32 and bfloat16 arithmetic is reproduced element by element, because thresholds decide on rounded numbers (1.01 is
1.0078125 in bfloat16). Sums are float64.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Array

from ..absent_arrays import needed
from ..single_precision import exp, row_totals, single, total

Rounded = Callable[[Any], Array]
"""A number or array in the precision of the log-probs."""

LARGEST_LOG_RATIO = 20.0
"""SkyRL's safe_exp_delta clamps log-ratios to +- this bound."""


def bfloat16(value: Any) -> Array:
    """The value rounded to bfloat16 (nearest, ties to even), held in float32."""
    exact = single(value)
    bits = exact.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(exact), exact, rounded.view(np.float32))


PRECISIONS: dict[str, Rounded] = {"float32": single, "bfloat16": bfloat16}


@dataclass(frozen=True)
class Tokens:
    """The arrays of one micro-batch, (rows, positions); None if the batch lacks them."""

    mask: Array
    """SkyRL's loss_mask as 0.0 and 1.0."""
    current: Array | None
    old: Array | None
    rollout: Array | None
    advantages: Array | None
    rounded: Rounded
    """Rounds to the precision of the log-probs."""

    @property
    def has_loss(self) -> bool:
        """Whether the batch has the arrays that every loss reads."""
        return self.current is not None and self.advantages is not None

    def rows(self, rows: Array) -> "Tokens":
        """The tokens of these rows."""
        current, old, rollout, advantages = (
            None if value is None else value[rows] for value in (self.current, self.old, self.rollout, self.advantages)
        )
        return Tokens(self.mask[rows], current, old, rollout, advantages, self.rounded)

    def needed(self, name: str, reader: str) -> Array:
        """The array of that name. SchemaError if the batch lacks it; the message names `reader`, the setting that reads it."""
        return needed(self, name, reader)

    def log_ratio(self, later: str, earlier: str, reader: str) -> Array:
        """later - earlier, in the precision of the log-probs."""
        return self.rounded(self.needed(later, reader) - self.needed(earlier, reader))

    def ratio(self, later: str, earlier: str, reader: str) -> Array:
        """exp(later - earlier), with the log-ratio clamped to +-20."""
        return self.exp(self.log_ratio(later, earlier, reader))

    def exp(self, log_ratio: Array) -> Array:
        """SkyRL's exponential: clamped in float32, returned in the precision of the log-probs."""
        return self.rounded(exp(np.clip(log_ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)))


def masked_mean(values: Array, mask: Array) -> float:
    """Mean over unmasked tokens; 0 if there are none."""
    return total(values * mask) / max(total(mask), 1.0)


def row_sums(values: Array, mask: Array) -> Array:
    """Sum over each row's unmasked tokens, (rows, 1) in float32."""
    return row_totals(values * mask)


def row_counts(mask: Array) -> Array:
    """Unmasked tokens of each row, at least 1, (rows, 1) in float32."""
    return np.maximum(row_totals(mask), np.float32(1))


def sample_std(values: Array) -> float:
    """Standard deviation with n - 1 in the denominator; nan for fewer than two values."""
    return float(np.std(values, ddof=1, dtype=np.float64)) if values.size > 1 else float("nan")
