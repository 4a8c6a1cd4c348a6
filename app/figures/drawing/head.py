"""The head of a chart of a metric: its title in words, the gap in words, and its name for commands and code."""

from ratioscope.metrics.metric import Metric

from ...presentation.gap_words import direction
from ...presentation.theme import Theme

TITLE_TO_NOTE = 0.9
"""Characters of a title that have the room of one character of a note."""


def metric_head(metric: Metric, gap: str, theme: Theme, by: str = "") -> str:
    """The title of a chart. Parts that do not fit in one line are left out: first the direction of the gap, then the name.

    by: what follows the title of the metric, such as "by version lag".

    >>> from ratioscope.app.presentation.theme import LIGHT, NARROW
    >>> from ratioscope.metrics.definitions.registry import BY_NAME
    >>> metric_head(BY_NAME["kl_k3"], "mismatch", LIGHT)
    'KL, engine to trainer <i>kl_k3 mismatch</i>'
    >>> metric_head(BY_NAME["ess_sequence"], "mismatch", NARROW["light"])
    'Effective sample size, sequences <i>ess_sequence mismatch</i>'
    """
    title = f"{metric.title} {by}".rstrip()
    fullest = f"{title}, {direction(gap)}"
    room = int(theme.columns * TITLE_TO_NOTE)
    for words, name in ((fullest, f"{metric.name} {gap}"), (title, f"{metric.name} {gap}"), (fullest, gap)):
        if len(words) + 1 + len(name) <= room:
            return f"{words} <i>{name}</i>"
    return f"{title} <i>{gap}</i>"
