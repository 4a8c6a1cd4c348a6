"""The choices that pages share: run, gap, step. Each is in the URL, so that every view is a link."""

from collections.abc import Hashable, Sequence
from urllib.parse import urlencode

import streamlit as st

from ratioscope.errors import ConfigError
from ratioscope.metrics.metric import SAMPLED
from ratioscope.record import GAPS, kin, sides

from ...browser.listener import address, in_address
from ...pages.scope import Steps, steps_of
from ...pages.step_choice import nearest, steps_with_rows, worst_step
from ...pages.view import View
from ...presentation.escape import streamlit_label as label
from ...presentation.escape import visible
from ...presentation.gap_words import difference_words, direction
from ..model.served_runs import Served
from .choices import choice, dropdown

NOT_SAMPLED = "Plain means over rollout samples, not divergences: the tokens were not sampled from"
ONLY_RECORDED = "its thresholds and tests are of whole steps, and a reading is of chosen sequences"
LONGEST = 620
"""Pixels of the picker of runs: the ends of names tell runs apart."""
NOT_SERVED = "_not_served"
"""The state that holds the name of the run that the address asked for, while it is not served."""
NEWEST, FOLLOWS = (
    "newest",
    "Shows the newest step with token rows, and the next one as soon as it is there. Pause holds it.",
)
"""The key of the choice to follow a run that grows, and its help."""
WARNING_WIDTH = 640
"""Pixels of a warning in a row of controls."""
LATER, EARLIER = "shift+j", "shift+k"
"""Shortcuts beside `]` and `[`, which browser/listener.js handles because Streamlit's shortcuts know letters and digits only."""


def run_picker(served_runs: Served) -> str | None:
    """The name of the chosen run; None if the address asks for a run that is not served, in whose place no other is shown.

    It is always in the URL, so that a link stays valid when more runs appear.
    """
    name = _asked_run(served_runs)
    if len(served_runs.runs) == 1 and not served_runs.waits:
        st.markdown(f"**{label(name, 80)}**" if name else "")
    else:
        st.selectbox(
            "run",
            list(served_runs.runs),
            index=None,
            key="run",
            bind="query-params",
            placeholder="choose a run",
            label_visibility="collapsed",
            width=min(LONGEST, max(270, 64 + 8 * max(map(len, served_runs.runs)))),
            format_func=visible,
        )
    in_address("run", visible(st.session_state[NOT_SERVED] if name is None else name))
    return name


def _asked_run(served_runs: Served) -> str | None:
    """The run that the reader has chosen, else the first; None, also after a change of page, if it is not served."""
    name = asked("run")
    if name is None and NOT_SERVED not in st.session_state:
        st.session_state["run"] = name = served_runs.first
    if name in served_runs.runs:
        st.session_state.pop(NOT_SERVED, None)
        return str(name)
    if name is not None:
        st.session_state[NOT_SERVED] = str(name)
    st.session_state["run"] = None
    return None


def gap_picker(gaps: Sequence[str], of_readings: Sequence[str] = (), *, takes_readings: bool = False) -> str:
    """The chosen gap, by default the first. A run with readings has so many gaps that they are a list.

    takes_readings: False for a page that has no use for the gaps of readings: it shows the first gap in place of one.
    """
    known = list(gaps)
    if not of_readings:
        gap = choice("gap", known, "gap", label_visibility="collapsed")
    else:
        gap = dropdown("gap", [*known, *of_readings], "gap", width=210, label_visibility="collapsed")
    if gap in of_readings and not takes_readings:
        st.caption(f"{label(gap)} is not available here, because {ONLY_RECORDED}; showing {known[0]}", width="content")
        return known[0]
    in_address("gap", gap)
    said = difference_words(gap) if gap in GAPS else f"{direction(gap)}: {difference_words(gap)}"
    st.caption(
        label(said, 200), width="content", help=None if kin(gap) in SAMPLED else f"{NOT_SAMPLED} {sides(gap)[0]}"
    )
    return gap


def log_x_switch(view: View) -> bool:
    """True if charts of lines over steps, tokens or time are to have a logarithmic x axis."""
    chosen = bool(st.toggle("log x", key="logx", bind="query-params", help="A logarithmic x axis on charts of lines."))
    if chosen and view.steps and view.steps[0] <= 0:
        st.caption(f"without step {view.steps[0]}, which has no logarithm", width="content")
    return chosen


def steps_field() -> Steps:
    """The chosen range of steps. If the typed text is no range, a note says so and all steps are chosen."""
    typed = field("steps", "all steps, or 100:200", 165, help="a range of steps: 100:200, 100: or -50: (the last 50)")
    try:
        return steps_of(typed)
    except ConfigError as error:
        say_wrong(str(error))
        return Steps()


def say_wrong(words: str) -> None:
    """A red sentence beside the control that it is about."""
    st.caption(f":red[:material/error: {label(words, 400)}]", width="content")


def field(key: str, placeholder: str, width: int, help: str | None = None) -> str:
    """The text typed into a field of the header. Its placeholder is its label."""
    typed = st.text_input(
        key, key=key, bind="query-params", placeholder=placeholder, label_visibility="collapsed", help=help, width=width
    )
    return typed or ""


def step_picker(view: View, gap: str = "", *, follows: bool = False) -> int:
    """The chosen step, by default the worst one whose sequences can be listed; a number between recorded steps gives the nearest.

    Buttons lead to the recorded step before or after it. The widget's default is no step, so that the shown step is always in
    the URL, also after the run has grown. follows: the reader can have it follow the newest step until another is chosen.
    """
    steps, wanted = view.steps, asked("step")
    newest = follows and asked(NEWEST) in (True, "true")
    if newest:
        st.session_state["step"] = wanted = steps_with_rows(view, gap)[-1]
    elif not str(wanted).isdecimal() or not steps[0] <= int(str(wanted)) <= steps[-1]:
        st.session_state["step"] = worst_step(view, steps_with_rows(view, gap))
    chosen = st.number_input(
        "step",
        min_value=steps[0],
        max_value=steps[-1],
        value=None,
        step=_apart(steps),
        key="step",
        bind="query-params",
        width=170,
        on_change=_stay,
    )
    if newest and chosen != wanted:  # the first run takes the step of a link, which may be an older one
        st.rerun()
    step = worst_step(view, steps_with_rows(view, gap)) if chosen is None else nearest(steps, int(chosen))
    in_address("step", step)
    of_run = f"Step {{}} is not in this run, which has the steps {steps[0]} to {steps[-1]}. Step {step} is shown."
    near = [str(nearest(steps, int(str(wanted))))] if str(wanted).isdecimal() else ()
    say_absent("step", None if wanted is None or str(wanted) == str(step) else wanted, step, of_run, near)
    at = steps.index(step)
    for mark, key, shortcut, to in (("‹", "step_before", EARLIER, at - 1), ("›", "step_after", LATER, at + 1)):
        is_there = 0 <= to < len(steps)
        about = f"{key.replace('_', ' ')}: step {steps[to]}" if is_there else "there is no further step"
        go, args = _go_to_step, (steps[to],) if is_there else ()
        st.button(mark, key=key, shortcut=shortcut, on_click=go, args=args, disabled=not is_there, help=about)
    if newest or (follows and view.is_growing):
        st.toggle("newest step", key=NEWEST, bind="query-params", help=FOLLOWS)
    return step


def _go_to_step(step: int) -> None:
    st.session_state["step"] = step
    _stay()


def _stay() -> None:
    """Ends to follow the newest step, because the reader has chosen one."""
    if NEWEST in st.session_state:
        st.session_state[NEWEST] = False


def say_absent(key: str, wanted: object, shown: object, words: str, near: Sequence[str] = ()) -> None:
    """A warning of the choice `wanted` of the address, in whose place the page shows another; None: it has what was wanted.

    It stays for as long as the other is shown. words: with {} in place of what was wanted. near: what is there and most like it.
    """
    if wanted is not None:
        kept = shown if isinstance(shown, list) else []
        links = [f"[{label(name, 80)}]({_address_with(key, [*kept, name])})" for name in near if name not in kept]
        offered = f" Nearest: {', '.join(links)}." if links else ""
        st.session_state[f"_absent_{key}"] = (shown, label(words.replace("{}", str(wanted)[:80]), 400) + offered)
    for_shown, said = st.session_state.get(f"_absent_{key}", (None, ""))
    if said and for_shown == shown:
        st.warning(said, icon=":material/warning:", width=WARNING_WIDTH)


def _address_with(key: str, values: list[str]) -> str:
    """The address of this page with another choice, relative to any page."""
    return f"./{st.session_state['_path']}?{urlencode(address() | {key: values}, doseq=True)}"


def asked(key: str) -> str | int | None:
    """The reader's choice for this key, by the widget or by the URL; None without one."""
    chosen = st.session_state.get(key)
    return st.query_params.get(key) if chosen is None else chosen


def hold_to(thing: Hashable, key: str, least: float, most: float, usual: float | None) -> None:
    """Forgets a number that was chosen of another thing, and not by a link to this one, and one that does not exist here."""
    wanted: float | str | None = asked(key)
    known = f"_{key}_of"
    of, before = st.session_state.get(known, (thing, None))
    try:
        is_there = wanted is not None and least <= float(wanted) <= most
    except ValueError:
        is_there = False
    if not is_there or (of != thing and str(before) == str(wanted)):
        st.session_state[key] = wanted = usual
    st.session_state[known] = thing, wanted


def _apart(steps: Sequence[int]) -> int:
    """The smallest distance between recorded steps, so that + and - reach each of them."""
    return min((later - earlier for earlier, later in zip(steps, steps[1:], strict=False)), default=1)
