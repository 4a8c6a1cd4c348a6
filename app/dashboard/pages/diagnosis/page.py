"""The Diagnosis page: why the policies are apart, with each cause's proof and remedy, what is ruled out, and what stays open."""

from collections.abc import Sequence
from functools import partial

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from ratioscope.ingest.analysis.diagnosis import RunDiagnosis
from ratioscope.ingest.analysis.known_context import KnownContext
from ratioscope.metrics.diagnosis.diagnosis import Diagnosis, Likely

from ....browser.chart import points
from ....browser.code import code
from ....figures.html.cause import cause_card
from ....figures.html.reasons import reasons
from ....figures.undoing import undoing
from ....pages.answered import Answered
from ....pages.scope import Scope
from ....pages.step_choice import worst_step
from ....presentation.cause_facts import cause_facts, context_facts, over_steps, settings_of, share_words
from ....presentation.digits import count
from ....presentation.escape import streamlit_label as label
from ....presentation.growth_words import PARTS, change_parts
from ....presentation.sentence import capital
from ....presentation.theme import THEMES, ThemeName
from ...model.diagnoses import diagnoses
from ...panels.charts import appearance, draw, page_contents
from ...panels.layout import columns
from ...panels.links import go_to
from ...panels.verdict_box import EVERY, age_note, answer_box
from .words import excluded_rows, open_rows, record_lines


def render(scope: Scope) -> None:
    if not scope.recorded:
        st.info("The run has no steps in this range.")
        return
    known = diagnoses().of(scope.view, scope.gap, scope.chosen)
    answer_box(scope.view, known, brief=True)
    if known is None:
        st.fragment(_wait, run_every=EVERY, key="diagnosis_waits")(scope)
    elif known.result is None:
        st.info(f"No diagnosis: {label(known.reason, 600)}.", icon=":material/info:")
    else:
        _say_part(scope, known)
        _causes(scope, known.result, known.context)
        _beside(known.context)
        _parts(known.context)
        _open(known.result)
        _excluded(known.result.diagnosis)
        _read(scope, known.result)


def _wait(scope: Scope) -> None:
    """Redraws the page when the diagnosis is there."""
    if diagnoses().of(scope.view, scope.gap, scope.chosen) is not None:
        st.rerun()
    st.caption(":material/hourglass_empty: The diagnosis is being computed from token rows. This takes a few seconds.")


def _say_part(scope: Scope, known: Answered) -> None:
    """A note on the part of the run that is diagnosed, and on a diagnosis that is older than the page."""
    older = age_note(scope.view, known)
    parts = [
        "" if scope.steps.whole else "The diagnosis is of the chosen steps, the severity is of the whole run.",
        f"This diagnosis is {older}. A newer one follows." if older else "",
    ]
    if any(parts):
        st.caption(" ".join(part for part in parts if part))


def _causes(scope: Scope, result: RunDiagnosis, context: KnownContext | None) -> None:
    likely = result.diagnosis.likely
    if likely:
        st.subheader("Likely cause" if len(likely) == 1 else f"Likely causes ({len(likely)})", anchor=False)
    for place, item in enumerate(likely):
        with st.container(border=True, key=f"cause_{place}"):
            _cause(scope, item, place, context)
    st.markdown(label(result.diagnosis.rest_in_words))


def _cause(scope: Scope, item: Likely, place: int, context: KnownContext | None) -> None:
    numbers = over_steps(item)
    card = cause_card(
        f"{place + 1}. {capital(item.title)}",
        share_words(item),
        None if item.share is None else item.of_whole,
        cause_facts(item, context),
        theme=appearance(),
    )
    settings = settings_of(item.cause.code, context)
    if numbers.is_empty():
        st.html(card)
    else:
        left, right = columns(2, f"cause_{place}_parts")
        with left:
            st.html(card)
        with right:
            _picture(scope, item, place, numbers)
    if settings:
        st.caption("Settings of the correction to use meanwhile:")
        code(settings, f"cause_{place}_settings", language="python")


def _picture(scope: Scope, item: Likely, place: int, numbers: pl.DataFrame) -> None:
    key = f"undoing_{place}"
    draw(
        scope.view.figure(_undoing, tuple(numbers.rows()), scope.gap, item.cause.undoing, appearance().name),
        key,
        f"{scope.gap} before and after the gap is {item.cause.undoing}, at {count(len(numbers), 'step')}",
        numbers=lambda: numbers,
        on_click=partial(_point_chosen, key),
    )


def _undoing(rows: tuple[tuple[object, ...], ...], gap: str, words: str, theme: ThemeName) -> go.Figure:
    schema = {"step": pl.Int64, "tokens": pl.Int64, "before": pl.Float64, "after": pl.Float64}
    return undoing(pl.DataFrame(rows, schema=schema, orient="row"), gap, words, theme=THEMES[theme])


def _point_chosen(key: str) -> None:
    if found := [point["x"] for point in points(key) if isinstance(point["x"], int | float)]:
        go_to("sequences", step=round(found[0]))


def _beside(context: KnownContext | None) -> None:
    """Facts that bear on the gap and change no severity."""
    if context is not None:
        st.subheader("Beside the gap", anchor=False)
        _table("Beside the gap", ("fact", "on record"), context_facts(context))


def _parts(context: KnownContext | None) -> None:
    """The mix of probabilities and the sizes before and after each change of the gap."""
    for change in () if context is None else context.growth.changes:
        if rows := change_parts(change):
            name = f"Parts of the change at step {change.course.onset}, by {PARTS[0]}"
            st.subheader(name, anchor=False)
            _table(name, PARTS, rows)


def _open(result: RunDiagnosis) -> None:
    diagnosis = result.diagnosis
    if not diagnosis.cannot_tell:
        return
    st.subheader(f"The record cannot tell ({len(diagnosis.cannot_tell)})", anchor=False)
    _table("The record cannot tell", ("because", "causes that stay open"), open_rows(diagnosis))
    if arguments := result.to_record({fact for item in diagnosis.cannot_tell for fact in item.missing}):
        st.caption("These arguments record the missing columns:")
        code(record_lines(arguments), "record", language="python")


def _excluded(diagnosis: Diagnosis) -> None:
    rows = excluded_rows(diagnosis)
    if rows:
        st.subheader(f"Ruled out ({len(rows)})", anchor=False)
        _table("Ruled out", ("cause", "measured", "sensitivity"), rows)


def _table(name: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """The rows as text that can be read whole. The downloads of the page have them too."""
    page_contents().tables[name] = lambda: pl.DataFrame(rows, schema=list(head), orient="row")
    st.html(reasons(head, rows, theme=appearance()))


def _read(scope: Scope, result: RunDiagnosis) -> None:
    st.subheader("Rows read", anchor=False)
    st.caption(label(result.read))
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="steps_read"):
        st.caption("Sequences of step", width="content")
        for step in result.steps:
            st.button(
                str(step),
                key=f"read_{step}",
                type="tertiary",
                on_click=go_to,
                args=("sequences",),
                kwargs={"step": step},
            )
        worst = worst_step(scope.view, result.steps)
        st.button(
            f"tokens of step {worst}",
            key="worst_tokens",
            icon=":material/match_word:",
            help="The worst sequence of the worst step that was read, token by token.",
            on_click=go_to,
            args=("tokens",),
            kwargs={"step": worst},
        )
