"""The largest share that a sample without a single case leaves likely."""

from ..definitions.validity import TOKENS
from ..metric import Metric


def unseen_share(metric: Metric, size: float) -> float:
    """Upper bound of a share of which a sample of `size` tokens has no case: 3/N, the rule of three, 95% confidence.

    Tokens are taken as independent. 0 for a metric that is not a share of all tokens, and for no tokens.
    """
    return 3 / size if metric.kind == "share" and TOKENS in metric.needs and size > 0 else 0.0
