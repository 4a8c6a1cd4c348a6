"""The verdict with the answer of the diagnosis, on a page. The box is redrawn when the diagnosis is there."""

import streamlit as st

from ...figures.html.cards import verdict_line
from ...pages.answered import Answered
from ...pages.scope import Scope
from ...pages.view import View
from ...presentation.answer import answer_of
from ...presentation.escape import streamlit_label as label
from ...referee.floor_of_run import against_floor
from ...referee.side_off import side_off
from ..model.diagnoses import diagnoses
from .charts import appearance

EVERY = 1.0
"""Seconds between two looks for a diagnosis that is being made."""
READABLE = 1100
"""The widest line of a sentence, in pixels."""
COMPUTED = "diagnosis is being computed"
REFEREE = "The referee is a third reading of the recorded tokens, by a model in float32. `ratioscope rescore` adds one to a run."


def verdict_box(view: View) -> None:
    """The first lines of the Overview."""
    if diagnoses().of(view) is None:
        st.fragment(_box, run_every=EVERY, key="verdict_waits")(view)
    else:
        _box(view)


def _box(view: View) -> None:
    answer_box(view, diagnoses().of(view))


def answer_box(view: View, known: Answered | None, *, brief: bool = False) -> None:
    """The severity and the answer of a diagnosis, without meaning and checks. brief: without the remedy too."""
    verdict = view.judged_verdict()
    answer = None
    if known is not None and known.result is not None:
        answer = answer_of(known.result, verdict, known.context)
    st.html(verdict_line(verdict, answer, note=_note(view, known), brief=brief, links=True, theme=appearance()))


def cause_line(view: View) -> None:
    """One line with the answer, for pages on symptoms; nothing while there is none."""
    known = diagnoses().of(view)
    if known is not None and known.result is not None:
        diagnosis, older = known.result.diagnosis, age_note(view, known)
        head = "Likely cause" if diagnosis.likely else "Diagnosis"
        st.markdown(f"**{head}:** {label(diagnosis.answer, 600)}{f' ({older})' if older else ''}")


def side_line(view: View) -> None:
    """One line on which side is off, if a referee read the run."""
    if not view.run.readings:
        return
    with st.spinner("comparing with the referee"):
        found = view.of(side_off)
    if found is not None:
        st.markdown(f"**Which side is off?** {label(found.sentence, 600)}", help=REFEREE, width=READABLE)


def floor_line(scope: Scope) -> None:
    """One line with the size of the gap beside the chosen noise floor."""
    if scope.floor is not None:
        said = scope.view.of(against_floor, scope.floor, scope.gap)
        st.markdown(f"**{scope.floor.kind.capitalize()}:** {label(said, 400)}")


def age_note(view: View, known: Answered) -> str:
    """The step up to which an older diagnosis reaches; empty for that of the view's revision."""
    return "" if known.revision >= view.revision else f"as of step {known.last_step}"


def _note(view: View, known: Answered | None) -> str:
    return COMPUTED if known is None else age_note(view, known)
