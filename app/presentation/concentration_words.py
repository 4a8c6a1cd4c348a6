"""The part of the data that has most of the gap, in one sentence for each slice that concentrates it."""

from collections.abc import Sequence

from ratioscope.metrics.analysis.concentration import Concentration
from ratioscope.metrics.analysis.slice_parts import NUMERIC

from .sentence import capital
from .slice_names import SliceWords

MOST = 2
"""Sentences on a page."""
NAMED = 3
"""The most buckets that are named."""


def concentration_words(concentrations: Sequence[tuple[SliceWords, Concentration | None]], title: str) -> list[str]:
    """The sentences, the most concentrated slice first. title: of the metric that the gap is measured by."""
    known = [(words, part) for words, part in concentrations if part is not None]
    known.sort(key=lambda pair: pair[1].times, reverse=True)
    if not known:
        names = " or ".join(words.title for words, _ in concentrations)
        return [f"The {title} is spread: no part by {names} has half of it in far fewer tokens."] if names else []
    return [
        f"{capital(words.title)} {_named(words, part)} has {_rounded(part.share_of_gap)} of the {title}"
        f" in {_rounded(part.share_of_tokens)} of the tokens."
        for words, part in known[:MOST]
    ]


def _named(words: SliceWords, part: Concentration) -> str:
    """The buckets: a range of a numeric slice as its ends, else the first names."""
    labels = part.labels
    if len(labels) > 1 and part.is_range and words.name in NUMERIC:
        return f"{labels[0]} to {labels[-1]}"
    shown = ", ".join(labels[:NAMED])
    return shown if len(labels) <= NAMED else f"{shown} and {len(labels) - NAMED} more"


def _rounded(share: float) -> str:
    """A share in whole percent; a small one with two digits.

    >>> _rounded(0.5333), _rounded(0.00123)
    ('53%', '0.12%')
    """
    return f"{float(f'{100 * share:.2g}'):g}%"
