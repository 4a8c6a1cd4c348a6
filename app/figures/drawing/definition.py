"""A boxed ? in a chart's title. Its hover shows how the chart was made and the definition of its metric."""

from collections.abc import Sequence

from ratioscope.metrics.card import card
from ratioscope.metrics.metric import Metric

from ...presentation.escape import plotly as escaped
from ...presentation.theme import Theme
from .overlay import Overlay, on_paper, words

BELOW = 30
"""Pixels from the top of the chart; the mode bar takes the first of them."""
TRAINERS = 6
"""The most names in trainers that the hover shows; the documentation lists all of them."""


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
