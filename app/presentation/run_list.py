"""Lists of runs, the same in the dashboard and in a bundle: the order of their verdicts, and the scale of their small courses."""

from ratioscope.metrics.grading.coverage import NOT_MEASURED, PARTLY

from .theme import MARKS

UNREADABLE, NOT_READ = "✕ unreadable", "not yet read"


def graded(severity: str) -> str:
    """A severity as a list writes it.

    >>> graded("act")
    '■ act'
    """
    return f"{MARKS[severity]} {severity}"


WORDS = (graded("act"), UNREADABLE, graded("watch"), graded(PARTLY), graded(NOT_MEASURED), graded("healthy"), NOT_READ)
"""Every verdict of a list, the first to look at first."""
LEAST, LARGEST = -5, 1
"""Powers of ten between which the small courses are drawn, so that those of several runs compare."""
