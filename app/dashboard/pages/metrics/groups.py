"""The metrics of a gap by what they are about, and those to look at first."""

from ratioscope.metrics.definitions import (
    divergence,
    honesty,
    perplexity,
    probability,
    structure,
    surprisal,
    tail,
    validity,
    weights,
)
from ratioscope.metrics.metric import Metric

MAIN = {
    "mismatch": ("kl_k3", "abs_log_ratio", "ess_token", "share_outside_0.5_2", "ppl_ratio"),
    "drift": ("ppo_kl", "abs_log_ratio", "max_abs_log_ratio", "share_outside_0.8_1.2", "ppl_ratio"),
}
"""With the quantiles beside them as many as a page draws in half a second; the others are a click away, in their groups."""
MAIN["total"] = MAIN["mismatch"]
_TAILS = ("max_abs_log_ratio", "max_log_ratio", "min_log_ratio", "excess_kurtosis")
_SHIFTS = tuple(metric.name for metric in probability.METRICS if metric.name.startswith("shift_"))

GROUPS: dict[str, tuple[Metric, ...]] = {
    "divergence": tuple(metric for metric in divergence.METRICS if metric.name not in _TAILS),
    "weights and ESS": weights.METRICS,
    "tails": (*(m for m in (*divergence.METRICS, *structure.METRICS) if m.name in _TAILS), *tail.METRICS),
    "perplexity": perplexity.METRICS,
    "agreement": tuple(metric for metric in probability.METRICS if metric.name not in (*_SHIFTS, "slope")),
    "honesty": (*honesty.METRICS, *surprisal.METRICS),
    "faults": (
        *(metric for metric in probability.METRICS if metric.name in (*_SHIFTS, "slope")),
        *(metric for metric in structure.METRICS if metric.name not in _TAILS),
    ),
    "counts": validity.METRICS,
}
"""Title -> metrics; every metric is in one of them."""


def of_gap(gap: str) -> dict[str, tuple[Metric, ...]]:
    """The groups with the metrics that this gap has."""
    found = {title: tuple(m for m in metrics if gap in m.gaps) for title, metrics in GROUPS.items()}
    return {title: metrics for title, metrics in found.items() if metrics}


def main_of(gap: str) -> tuple[Metric, ...]:
    """Those shown unless asked for others."""
    known = {metric.name: metric for metrics in GROUPS.values() for metric in metrics}
    return tuple(known[name] for name in MAIN[gap])
