"""The words on steps without a reading, and the first look at the token rows of a gap with a reading."""

import streamlit as st

from ratioscope.ingest.analysis.resolution import coarse_words, too_coarse

from ...pages.scope import Scope
from ...pages.slice_reading import read_rows
from ...pages.unread_steps import names, not_read
from ...pages.view import asked_gap
from ...presentation.escape import streamlit_label as label
from ...presentation.gap_words import direction
from ...presentation.step_words import steps_words
from .widgets import WIDGETS


def say_digits(scope: Scope) -> None:
    """A caption where the digits of the file are too few for a small gap."""
    known = scope.view.of(too_coarse).get(scope.gap)
    if known is not None:
        st.caption(f":material/info: {label(coarse_words(scope.gap, known), 300)}")


def have_read(scope: Scope) -> bool:
    """True if the gap can be measured at a chosen step; else the page has the reason. It lists steps without a reading.

    The token rows of a gap with a reading are read once, with a bar.
    """
    if not asked_gap(scope.gap):
        return True
    read = set(scope.view.read_steps(scope.gap))
    chosen = scope.recorded
    if not read & set(chosen):
        st.info(f"{label(scope.gap)} is {label(not_read(scope.view, scope.gap, chosen), 400)}")
        return False
    read_rows(scope.view, WIDGETS, ("step",), direction(scope.gap), None, scope.gap)
    if lacking := [step for step in chosen if step not in read]:
        at = f"at {steps_words(lacking, scope.view.steps)} {scope.gap} is not available"
        st.caption(
            f":material/info: {label(at)}, because {_it(lacking)} no reading {label(names(scope.view, scope.gap))}"
        )
    return True


def _it(steps: list[int]) -> str:
    return "it has" if len(steps) == 1 else "they have"
