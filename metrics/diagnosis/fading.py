"""Sizes of a gap along a response: a gap that fades from the first token on depends on the prompt or on old weights."""

from typing import NamedTuple

import numpy as np

from .evidence import Evidence, once
from .fits import least_squares
from .subset_faults import log_sizes, mean_by

FADES = (5.0, 0.12)
"""(standard errors, log size per doubling of the place) of a decay that is beyond that of rounding and of precision."""
LESS_SURE = (3.0, 0.03)
"""(standard errors, distance from 0.5) of the share of negative log-ratios of a trainer that reads less than the sampler did."""


class Fading(NamedTuple):
    """The course of sizes along a response."""

    slope: float
    """Change of log |x| per doubling of the place, at equal probability."""
    error: float
    """Its standard error, with sequences as the independent units."""

    @property
    def z(self) -> float:
        """The slope in standard errors; NaN without an error."""
        return self.slope / self.error if self.error > 0 else float("nan")


@once
def fading(evidence: Evidence) -> Fading:
    """The slope of log sizes over log2(1 + position), within steps."""
    sizes = log_sizes(evidence)
    if evidence.has("step"):
        _, step = evidence.step_codes
        sizes = sizes - mean_by(step, sizes, int(step.max(initial=0)) + 1)[0][step]
    columns = np.stack([np.log2(1.0 + evidence.position), np.ones(len(evidence))], axis=1)
    coefficients, errors = least_squares(columns, sizes, evidence)
    return Fading(float(coefficients[0]), float(errors[0]))


def fades(evidence: Evidence) -> bool:
    """True if the gap fades along the responses by more than precision would make it."""
    slope, error = fading(evidence)
    return slope < -max(FADES[0] * error, FADES[1])


def is_less_sure(evidence: Evidence) -> bool:
    """True if the later policy expects the sampled tokens less than the earlier one: it reads less, or something else.

    Newer weights of a policy that learns are surer of its own tokens, so an older sampler leaves the share at or below one half.
    """
    tokens = int((evidence.log_ratio != 0).sum())
    if not tokens:
        return False
    negative = float((evidence.log_ratio < 0).sum() / tokens)
    return bool(negative - 0.5 > max(LESS_SURE[0] * 0.5 / np.sqrt(tokens), LESS_SURE[1]))
