"""The two sides of a comparison: their runs and steps, chosen by widgets and kept in the URL."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st

from ratioscope.errors import RatioscopeError

from ....pages.scope import Scope, Steps, steps_of
from ....pages.slice_reading import read_rows
from ....pages.unread_steps import not_read
from ....pages.view import View, asked_gap
from ....presentation.escape import streamlit_label as label
from ....presentation.escape import visible
from ....presentation.gap_words import direction
from ...model.served_runs import Served, other_than, served
from ...panels.controls import NOT_HERE, not_served, say_absent
from ...panels.layout import control_row
from ...panels.other_runs import runs_beside
from ...panels.widgets import WIDGETS

MOST = 8
"""Most runs of a side."""


@dataclass(frozen=True)
class ComparedRun:
    """One side of the comparison."""

    letter: str
    """A or B."""
    names: tuple[str, ...]
    views: tuple[View, ...]
    typed: str
    """Its steps as in the URL."""
    steps: Steps

    def range_of(self, shown: View) -> range:
        return self.steps.of(shown.steps)

    def recorded(self, shown: View) -> list[int]:
        """The steps of its range that are on record."""
        return self.steps.recorded(shown.steps)

    @property
    def words(self) -> str:
        """The runs and steps of the side in words, without markup."""
        names = ", ".join(self.names)
        return f"{names}, steps {self.typed}" if self.typed else names


def chosen_sides(scope: Scope) -> tuple[ComparedRun, ComparedRun]:
    """The chosen sides. By default A is the page's run and B another; with a single run they are its first and its last half."""
    served_runs = served()
    own = served_runs.name_of(scope.view.path)
    other = other_than(served_runs, own)
    with control_row("sides"):
        names_a, typed_a, steps_a = _choice(served_runs, "A", own)
        swap = st.container(width="content")
        names_b, typed_b, steps_b = _choice(served_runs, "B", other)
    if (names_a, names_b) == ((own,), (own,)) and not (typed_a or typed_b):
        typed_a, typed_b = _halves(scope.view.steps)
        steps_a, steps_b = steps_of(typed_a), steps_of(typed_b)
    runs_a, runs_b = runs_beside(served_runs, names_a), runs_beside(served_runs, names_b)
    a = ComparedRun("A", tuple(runs_a), tuple(runs_a.values()), typed_a, steps_a)
    b = ComparedRun("B", tuple(runs_b), tuple(runs_b.values()), typed_b, steps_b)
    with swap:
        st.button("swap", key="swap", icon=":material/swap_horiz:", on_click=_swapped, args=(a, b), type="tertiary")
    return a, b


def _choice(served_runs: Served, letter: str, default: str) -> tuple[tuple[str, ...], str, Steps]:
    """The chosen runs and steps of a side."""
    key = letter.lower()
    gone = not_served(served_runs, key)
    chosen = st.multiselect(
        letter,
        list(served_runs.runs),
        key=key,
        bind="query-params",
        max_selections=MOST,
        placeholder=visible(default, 40),
        format_func=visible,
        width=300,
        help="one run, or several seeds of one setting",
    )
    names = tuple(name for name in chosen if name in served_runs.runs) or (default,)
    say_absent(key, gone, names, NOT_HERE)
    typed = st.text_input(
        f"steps of {letter}", key=f"{key}_steps", bind="query-params", placeholder="all, or 100:200, -50:", width=170
    )
    try:
        steps = steps_of(typed or "")
    except RatioscopeError as error:
        st.caption(f":material/error: {label(str(error), 120)}", width="content")
        return names, "", Steps()
    return names, (typed or "").strip(), steps


def _halves(steps: Sequence[int]) -> tuple[str, str]:
    """The first and the last half of the steps, in the form that a reader types; a single step twice."""
    middle = len(steps) // 2
    return f":{steps[max(0, middle - 1)]}", f"{steps[middle]}:"


def _swapped(a: ComparedRun, b: ComparedRun) -> None:
    """Swaps the sides. Both are set, so that defaults are in the URL too."""
    for key, value in {"a": list(b.names), "b": list(a.names), "a_steps": b.typed, "b_steps": a.typed}.items():
        st.session_state[key] = value


def with_gap(side: ComparedRun, gap: str) -> ComparedRun:
    """The side without the runs that lack a reading of the gap; notes name these. The rows of the others are read once."""
    if not asked_gap(gap):
        return side
    pairs = list(zip(side.names, side.views, strict=True))
    lacking = [name for name, shown in pairs if gap not in shown.run.reading_gaps]
    if lacking:
        st.caption(f":material/info: {side.letter}: {label(lacking_words(lacking, gap), 400)}")
    kept = [(name, shown) for name, shown in pairs if name not in lacking]
    for name, shown in kept:
        read_rows(shown, WIDGETS, ("step",), direction(gap), None, gap)
        _say_unread(side, name, shown, gap)
    return replace(side, names=tuple(name for name, _ in kept), views=tuple(shown for _, shown in kept))


def _say_unread(side: ComparedRun, name: str, shown: View, gap: str) -> None:
    read = set(shown.read_steps(gap))
    if unread := [step for step in side.recorded(shown) if step not in read]:
        st.caption(
            f":material/info: {side.letter}: {label(name, 80)}: {gap} is {label(not_read(shown, gap, unread), 400)}"
        )


def lacking_words(names: Sequence[str], gap: str) -> str:
    """The runs that a gap of readings is not available in, and the verb that adds a reading."""
    no = "has no such reading" if len(names) == 1 else "have no such reading"
    return (
        f"{gap} is not available for {', '.join(names)}, because {'it' if len(names) == 1 else 'they'} {no};"
        " `ratioscope rescore RUN --model PATH` makes one"
    )


def says_nothing(side: ComparedRun) -> bool:
    """True if no step of the side is on record; prints a note then."""
    empty = not any(side.recorded(shown) for shown in side.views)
    if empty:
        st.info(f"{side.letter} has none of the chosen steps: {label(side.words, 300)}.")
    return empty
