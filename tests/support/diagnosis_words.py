"""Every word of a diagnosis, and the numbers that must not stand in one."""

import re
from collections.abc import Iterator

from ratioscope.metrics.diagnosis.diagnosis import Diagnosis

NO_NUMBER = re.compile(r"\bnan\b|(?<![−+\w±])inf\b|NaN%|± 999|e\+\d|e-\d{3}|\d{8}")
"""Numbers that are none, or that a division by almost nothing made."""


def words(found: Diagnosis) -> Iterator[str]:
    """The answer, the rest, and what is said of every cause."""
    yield found.answer
    yield found.rest_in_words
    for item in found.likely:
        yield from (item.title, item.effect, item.proof, *item.doubts)
    yield from (item.because for item in found.excluded)
    yield from (item.because for item in found.cannot_tell)


def not_numbers(found: Diagnosis) -> list[str]:
    """The texts with such a number."""
    return [text for text in words(found) if NO_NUMBER.search(text)]
