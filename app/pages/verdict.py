"""The verdict with the answer of the diagnosis, its proof, and the referee's answer.

One line with the answer of the diagnosis, for pages on symptoms.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from ratioscope.metrics.diagnosis.diagnosis import Likely
from ratioscope.metrics.grading.finding import Finding

from ..blocks import Chart, Link, Paragraph
from ..figures.drawing.plotly_objects import go
from ..figures.html.cards import verdict_line
from ..figures.undoing import undoing
from ..presentation.answer import Answer, answer_of
from ..presentation.cause_facts import over_steps
from ..presentation.digits import count
from ..presentation.theme import THEMES, ThemeName
from ..referee.answer import SideOff, side_off
from ..referee.engine_part import EnginePart, engine_part
from .answered import Answered
from .scope import Scope
from .step_choice import nearest
from .view import View

COMPUTED = "diagnosis is being computed"


def answer_to(verdict: Finding, known: Answered | None) -> Answer | None:
    """The answer of a diagnosis; None where there is none, or none yet."""
    return None if known is None or known.result is None else answer_of(known.result, verdict, known.context)


def verdict_lines(view: View, known: Answered | None, *, brief: bool = False) -> Callable[..., str]:
    """The severity and the answer as HTML, without meaning and checks. brief: without the remedy too."""
    verdict, note = view.judged_verdict(), COMPUTED if known is None else age_note(view, known)
    return partial(verdict_line, verdict, answer_to(verdict, known), note=note, brief=brief, links=True)


def undone(item: Likely, gap: str, name: str) -> Chart | None:
    """The gap before and after the undoing of a cause; None if no step was undone."""
    numbers = over_steps(item)
    if numbers.is_empty():
        return None
    words, leads = item.cause.undoing, partial(sequences_at, numbers["step"].to_list())
    label = f"{gap} as recorded and {words}, at {count(len(numbers), 'step')}"
    return Chart(name, label, _undoing, (tuple(numbers.rows()), gap, words), numbers=numbers.clone, leads=leads)


def _undoing(rows: tuple[tuple[object, ...], ...], gap: str, words: str, theme: ThemeName) -> go.Figure:
    schema = {"step": pl.Int64, "tokens": pl.Int64, "before": pl.Float64, "after": pl.Float64}
    return undoing(pl.DataFrame(rows, schema=schema, orient="row"), gap, words, theme=THEMES[theme])


def sequences_at(steps: Sequence[int], point: Mapping[str, Any]) -> Link | None:
    """The sequences of a clicked step. A point of a thinned line may stand for several steps: it leads to the nearest one."""
    step = point["x"]
    return Link("samples", {"step": nearest(steps, round(step))}) if isinstance(step, int | float) else None


def referee_of(scope: Scope) -> SideOff | None:
    """The answer of the referee; None if none read the run."""
    if not scope.view.run.readings:
        return None
    with scope.face.waits("comparing with the referee"):
        return scope.view.of(side_off)


def engine_part_of(scope: Scope) -> EnginePart | None:
    """The parts of the gap by the engine's prefill; None if no server read the run."""
    if not scope.view.run.readings:
        return None
    with scope.face.waits("comparing with the engine's prefill"):
        return scope.view.of(engine_part)


def cause_line(scope: Scope) -> Iterator[Paragraph]:
    """One line with the answer, for pages on symptoms; nothing while there is none."""
    known = scope.view.diagnosis()
    if known is not None and known.result is not None:
        answer, older = answer_of(known.result, scope.view.verdict()), age_note(scope.view, known)
        head = "Likely cause:" if known.result.diagnosis.likely else "Diagnosis:"
        yield Paragraph(f"{answer.sentence}{f' ({older})' if older else ''}", head=head)


def age_note(view: View, known: Answered) -> str:
    """The step up to which an older diagnosis reaches; empty for that of the view's revision."""
    return "" if known.revision >= view.revision else f"as of step {known.last_step}"
