"""The words on steps without a reading."""

from ratioscope.record import sides

from ..presentation.step_words import steps_words
from .view import View


def not_read(view: View, gap: str, lacking: list[int]) -> str:
    """`not available, because ...`: the steps without a reading of the gap, and those with one."""
    read = view.read_steps(gap)
    here = f"{steps_words(lacking, view.steps)} {'has' if len(lacking) == 1 else 'have'} no reading {names(view, gap)}"
    there = f"; {steps_words(read, view.steps)} {'has' if len(read) == 1 else 'have'} one" if read else ""
    return f"not available, because {here}{there}"


def names(view: View, gap: str) -> str:
    """The readings that are sides of the gap."""
    return " and ".join(side for side in sides(gap) if side in view.run.readings)
