"""Which metrics stand on the first page and in the report, per gap, and where their charts show a limit."""

from collections.abc import Callable

from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.metrics.grading.signals import SIGNALS
from ratioscope.metrics.metric import Metric

from .limit import Limit

BY_NAME = {metric.name: metric for metric in METRICS}
CARDS = {
    "mismatch": ("kl_k3", "abs_log_ratio", "chi2_token", "ess_token", "ess_sequence", "ppl_ratio"),
    "total": ("kl_k3", "abs_log_ratio", "chi2_token", "ess_token", "ess_sequence", "ppl_ratio"),
    "drift": ("ppo_kl", "kl_k2", "abs_log_ratio", "max_abs_log_ratio", "share_outside_0.8_1.2", "prob_diff"),
}
_SAMPLED_CHARTS = (
    "kl_k3", "kl_direct", "abs_log_ratio", "max_abs_log_ratio", "chi2_token", "ess_token", "share_outside_0.5_2",
    "log_mean_square_weight_sequence", "ess_sequence", "ppl_ratio", "mean_weight_token", "pareto_k_token", "logprob_correlation",
    "surprisal_gap",
)  # fmt: skip
CHARTS = {
    "mismatch": _SAMPLED_CHARTS,
    "total": _SAMPLED_CHARTS,
    "drift": (
        "ppo_kl",
        "kl_k2",
        "abs_log_ratio",
        "max_abs_log_ratio",
        "share_outside_0.8_1.2",
        "prob_diff",
        "ppl_ratio",
    ),
}
"""The last ones say whether the first ones can be believed."""


def _same(threshold: float) -> float:
    return threshold


def _ess(chi2: float) -> float:
    """The effective sample size at which 1/ess - 1 reaches this value."""
    return 1 / (1 + chi2)


_GRADED: dict[str, tuple[str, Callable[[float], float]]] = {
    "kl_k3": ("kl_k3", _same),
    "ess_token": ("chi2_of_ess_token", _ess),
    "ess_sequence": ("chi2_of_ess_sequence", _ess),
    "share_outside_0.5_2": ("share_outside", _same),
    "share_outside_0.8_1.2": ("ppo_clip", _same),
}
"""metric -> the signal that grades it, and the signal's threshold in the metric's own terms."""


def signal_of(metric: Metric) -> str | None:
    """The name of the signal that grades this metric's value by itself; None for metrics that are shown but not graded."""
    return _GRADED[metric.name][0] if metric.name in _GRADED else None


def limits_of(metric: Metric, gap: str) -> tuple[Limit, ...]:
    """The limits of the metric's chart: the grades of its signal, else the published readings on its card."""
    name, in_terms_of_metric = _GRADED.get(metric.name, ("", _same))
    for signal in SIGNALS:
        if signal.name == name and gap in signal.gaps:
            worse = "below" if in_terms_of_metric is _ess else "above"
            steps = (("watch", signal.watch), ("act", signal.act))
            return tuple(Limit(in_terms_of_metric(at), word, worse, word) for word, at in steps if at is not None)
    return _published(metric)


def _published(metric: Metric) -> tuple[Limit, ...]:
    bands = metric.bands
    if bands and bands[-1].reading == "good":
        return tuple(Limit(band.high, band.reading, "below") for band in bands[:-1])
    starts = tuple(Limit(band.low, band.reading) for band in bands[1:] or bands if band.low > 0)
    ends = tuple(Limit(band.high, f"not {band.reading}") for band in bands if len(bands) == 1 and band.low <= 0)
    return starts + ends
