"""Controls that choose the compared corrections: standard ones, a trainer's presets, a pasted configuration."""

import streamlit as st

from ratioscope.errors import RatioscopeError
from ratioscope.metrics.corrections.correction import USUAL
from ratioscope.metrics.corrections.threshold import threshold_of
from ratioscope.metrics.dialects import NAMES, dialect

from ....presentation.escape import streamlit_label as label
from ....presentation.escape import visible
from ...panels.controls import asked
from ...panels.layout import control_row
from .entries import LONGEST, MOST, OURS, PASTED, Comparison, comparison_of, comparison_text, own_text, threshold_text

DEFAULT = comparison_text(["none", *(threshold_text(bound) for bound in map(threshold_of, USUAL) if bound)])
"""The text of metrics.correction.USUAL, which the verb `corrections` compares too."""


def add_button(part: str) -> None:
    """The button that adds a part to the comparison. In a fragment, a click redraws the rest of the page too."""
    comparison = _current()
    known = part in [entry.text for entry in comparison.entries]
    clicked = st.button(
        "compared above" if known else "add to the comparison",
        icon=":material/check:" if known else ":material/add:",
        key="add_threshold",
        on_click=_add,
        args=(part,),
        disabled=known or len(comparison.entries) >= MOST,
    )
    if clicked:
        st.rerun()


def comparison_controls() -> Comparison:
    """The compared corrections of the URL, with the controls that change them."""
    comparison = _current()
    full = len(comparison.entries) >= MOST
    with control_row("add"):
        with st.popover("a standard correction", key="new_rule", icon=":material/add:", disabled=full):
            _ours()
        with st.popover("a trainer's preset", key="new_preset", icon=":material/add:", disabled=full):
            _presets()
        with st.popover("your configuration", key="new_own", icon=":material/add:", disabled=full):
            _pasted()
    _chips(comparison)
    for part, reason in comparison.refused:
        st.caption(f":material/error: left out: {label(part, 60)} {label(reason, 300)}")
    with st.expander("as text", key="as_text"):
        st.text_input(
            "the comparison as text, as in the URL",
            key="lab",
            bind="query-params",
            max_chars=LONGEST,
            placeholder=DEFAULT,
            help="parts separated by commas: none, truncate|mask|reject:token|sequence|geometric:FLOOR:CAP, veto:FLOOR, "
            "ours:NAME, TRAINER:PRESET, TRAINER=configuration",
        )
    return comparison


def _chips(comparison: Comparison) -> None:
    """The compared corrections as buttons; a click removes one."""
    with st.container(horizontal=True, gap="small", key="compared"):
        for at, entry in enumerate(comparison.entries):
            st.button(
                label(entry.name, 60),
                key=f"remove_{at}",
                icon=":material/close:",
                help=f"take {label(entry.name, 200)} out of the comparison",
                on_click=_remove,
                args=(entry.text,),
            )


def _ours() -> None:
    name = st.selectbox("standard correction", list(OURS), key="our_rule", format_func=lambda each: OURS[each].name)
    st.caption(label(OURS[name].source, 200) if name else "")
    st.button("add", key="add_ours", on_click=_add, args=(f"ours:{name}",))
    veto = st.text_input(
        "or reject sequences that have a token weight below", value="1e-4", key="veto_floor", max_chars=12
    )
    st.button("add the veto", key="add_veto", on_click=_add, args=(f"veto:{veto.strip()}",))


def _presets() -> None:
    trainer = st.selectbox("trainer", NAMES, key="preset_trainer")
    presets = list(dialect(trainer or NAMES[0]).PRESETS)
    chosen = st.multiselect("presets", presets, key=f"presets_{trainer}", max_selections=MOST)
    parts = [f"{trainer}:{preset}" for preset in chosen]
    st.button("add", key="add_presets", on_click=_add, args=tuple(parts), disabled=not parts)


def _pasted() -> None:
    trainer = st.selectbox("trainer of the configuration", NAMES, key="paste_trainer")
    st.text_area("the part about corrections, as YAML or JSON", key="pasted", max_chars=PASTED, height=180)
    st.button("add", key="add_pasted", on_click=_add_pasted, args=(trainer,))
    if problem := st.session_state.get("_paste_problem"):
        st.caption(f":material/error: {label(str(problem), 400)}")


def _add(*parts: str) -> None:
    comparison = _current()
    known = [entry.text for entry in comparison.entries]
    st.session_state["lab"] = comparison_text([*known, *(part for part in parts if part not in known)])


def _add_pasted(trainer: str) -> None:
    try:
        _add(own_text(trainer, str(st.session_state.get("pasted", ""))))
        st.session_state["_paste_problem"] = None
    except RatioscopeError as error:
        st.session_state["_paste_problem"] = visible(str(error), 400)


def _remove(part: str) -> None:
    st.session_state["lab"] = comparison_text([entry.text for entry in _current().entries if entry.text != part])


def _current() -> Comparison:
    return comparison_of(str(asked("lab") or DEFAULT))
