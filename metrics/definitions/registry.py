"""Every metric in the order of display, and every statistic that they need."""

from functools import cache

from ratioscope.record import GAPS

from ..metric import Metric, Statistic
from . import divergence, gradient, honesty, perplexity, probability, structure, surprisal, tail, validity, weights

METRICS: tuple[Metric, ...] = (
    *validity.METRICS,
    *divergence.METRICS,
    *gradient.METRICS,
    *weights.METRICS,
    *tail.METRICS,
    *honesty.METRICS,
    *perplexity.METRICS,
    *probability.METRICS,
    *surprisal.METRICS,
    *structure.METRICS,
)

BY_NAME = {metric.name: metric for metric in METRICS}


def of_column(column: str) -> Metric | None:
    """The metric of a column of a metric frame, its value's or its standard error's; None for keys and other columns.

    >>> of_column("mismatch/kl_k3_se").name, of_column("kl_k3").name, of_column("step")
    ('kl_k3', 'kl_k3', None)
    """
    name = column.rpartition("/")[2]
    return BY_NAME.get(name) or BY_NAME.get(name.removesuffix("_se"))


_INGREDIENTS = (
    validity.UNMASKED, validity.TOKENS, validity.FINITE, validity.NON_FINITE, validity.ZERO_WEIGHT,
    divergence.SUM_LOG_RATIO, perplexity.SUM_EARLIER, perplexity.SUM_LATER,
)  # fmt: skip
"""The statistics that sequence columns are computed from; they are needed for every gap."""


@cache  # one call for each file of a run took a tenth of the time to read a small one
def statistics_of(gap: str) -> tuple[Statistic, ...]:
    """The statistics that the metrics of a gap need."""
    needed = (statistic for metric in METRICS if metric.is_of(gap) for statistic in metric.statistics)
    return tuple(dict.fromkeys((*_INGREDIENTS, *needed)))


STATISTICS: tuple[Statistic, ...] = tuple(
    dict.fromkeys(s for gap in ("mismatch", "total", "drift") for s in statistics_of(gap))
)

LATER = frozenset(s.name for metric in gradient.METRICS for s in metric.statistics)
"""Statistics that segments of older versions lack. They read as null there: the metrics that need them are not available."""


def is_metric(name: str) -> bool:
    """True for `<gap>/<metric>` of ours."""
    gap, _, metric = name.partition("/")
    return gap in GAPS and metric in BY_NAME and BY_NAME[metric].is_of(gap)
