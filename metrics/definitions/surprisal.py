"""The surprisal gap: the surprisal of the sampled tokens minus the entropy of the later policy.

It is 0 in expectation if the tokens were sampled from the later policy. It is the only sign of an unrecorded temperature, top-p
or top-k: both engines may agree on every logprob although the tokens were sampled from another distribution. It needs the
entropy of the later policy.
"""

import numpy as np

from ratioscope.arrays import Floats

from ..metric import SAMPLED, Metric, Statistic, clustered_error, error_of_mean, ratio

SURPRISAL_TOKENS = Statistic("surprisal_tokens", lambda c, xp: c.has_entropy)
SUM_SURPRISAL_GAP = Statistic("sum_surprisal_gap", lambda c, xp: c.surprisal_gap)
SUM_SQUARE_SURPRISAL_GAP = Statistic("sum_square_surprisal_gap", lambda c, xp: c.surprisal_gap * c.surprisal_gap)


def _z(total: Floats, squares: Floats, n: Floats) -> Floats:
    """Mean / standard error. The error needs no clusters: given its prefix, the surprisal gap of a token has mean 0."""
    error = error_of_mean(total, squares, n)
    return ratio(total, n) / np.where(error > 0, error, np.nan)


_ABSENT = "the entropy of the later policy is not on record; pass entropy= of that policy to the collector"

METRICS = (
    Metric("surprisal_gap", "nats", "mean(-later - entropy)",
           "The surprise of the later policy beyond its entropy. Above 0, it is more surprised than it expects (wrong context, "
           "higher temperature). Below 0, rollouts are sharper than it believes (top-p, top-k, lower temperature).",
           needs=(SUM_SURPRISAL_GAP, SURPRISAL_TOKENS), value=ratio, gaps=SAMPLED,
           error=clustered_error(SUM_SURPRISAL_GAP, SURPRISAL_TOKENS), estimator="mean", range="(-inf, inf)",
           weighting="every unmasked token with an entropy counts once", absent=_ABSENT, kind="mean", topic="honesty",
           title="Surprisal beyond the entropy"),
    Metric("surprisal_gap_z", "1", "surprisal_gap / (sd over tokens / sqrt(tokens))",
           "The distance of surprisal_gap from 0 in standard errors. If it exceeds 4 in size, the tokens were not sampled from "
           "the later policy.",
           needs=(SUM_SURPRISAL_GAP, SUM_SQUARE_SURPRISAL_GAP, SURPRISAL_TOKENS), value=_z, gaps=SAMPLED,
           estimator="z of a martingale difference", range="(-inf, inf)",
           weighting="every unmasked token with an entropy counts once", absent=_ABSENT, kind="z", topic="honesty",
           title="Surprisal beyond the entropy, z-score"),
)  # fmt: skip
