"""How large a share may be of which nothing was seen."""

from ..definitions.validity import TOKENS
from ..metric import Metric


def unseen_share(metric: Metric, size: float) -> float:
    """The largest share of so many tokens that is likely to leave a sample without a single one: 3/N, the rule of three.

    95 % confidence; it takes tokens for independent. 0 for a metric that is not a share of all tokens, and for no tokens.
    """
    return 3 / size if metric.kind == "share" and TOKENS in metric.needs and size > 0 else 0.0
