"""A boxed ? in a chart's title. Its hover shows how the chart was made and the definition of its metric.

The head of a chart of a metric: its title in said, the gap in said, and its name for commands and code.
"""

from collections.abc import Sequence

from ratioscope.metrics.card import card
from ratioscope.metrics.metric import Metric

from ...presentation.escape import plotly as escaped
from ...presentation.gap_words import direction
from ...presentation.theme import Theme
from .overlay import Overlay, on_paper, words

BELOW = 30
"""Pixels from the top of the chart; the mode bar takes the first of them."""
TRAINERS = 6
"""The most names in trainers that the hover shows; the documentation lists all of them."""

TITLE_TO_NOTE = 0.9
"""Characters of a title that have the room of one character of a note."""


def definition(metric: Metric) -> tuple[str, ...]:
    """Formula, meaning, estimator, direction, range, and the names of the metric in trainers."""
    elsewhere = sorted({f"{place.trainer}: {place.name}" for place in card(metric.name).elsewhere})
    names = f"in trainers: {'; '.join(elsewhere[:TRAINERS])}" if elsewhere else ""
    named = {"estimator": metric.estimator, "direction": metric.direction, "range": metric.range}
    facts = (metric.formula, metric.meaning, *(f"{name}: {fact}" for name, fact in named.items() if fact), names)
    return tuple(fact for fact in facts if fact)


def question_mark(made: Sequence[str], about: Sequence[str], top: float, theme: Theme) -> Overlay:
    """The mark at the right, below the mode bar. made: escaped. about: a definition. top: the chart's top margin."""
    parts = (("this chart", made), ("the metric", [escaped(fact) for fact in about]))
    lines = [line for title, facts in parts if facts for line in (f"<b>{title}</b>", *_broken(facts))]
    mark = words("?", theme.muted, size=11, **on_paper(1, "right", 1, "top", yshift=top - BELOW))
    box = {"bordercolor": theme.border, "borderwidth": 1, "borderpad": 2, "width": 11}
    return {**mark, **box, "hovertext": "<br>".join(lines), "captureevents": True}


def _broken(facts: Sequence[str]) -> list[str]:
    return [line for fact in facts for line in wrapped(fact)]


def wrapped(text: str, width: int = 72) -> list[str]:
    """The text in lines of about `width` characters: Plotly does not break lines itself."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


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
    for said, name in ((fullest, f"{metric.name} {gap}"), (title, f"{metric.name} {gap}"), (fullest, gap)):
        if len(said) + 1 + len(name) <= room:
            return f"{said} <i>{name}</i>"
    return f"{title} <i>{gap}</i>"
