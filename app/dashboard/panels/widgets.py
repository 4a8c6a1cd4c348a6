"""The face of Streamlit, as pages ask it: choices are widgets that are bound to the URL."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, TypeVar, cast

import streamlit as st

from ...browser.listener import in_address, is_narrow
from ...pages.face import AtMostOne, Choice, Number, Option, Place, Question, Several, Step, Switch, Tell, Text
from ...presentation.digits import count
from ...presentation.escape import visible
from ...presentation.near_names import near_names
from ..model.live import deselect, show_newest
from .choices import choice, dropdown, optional, several, words_of_pills
from .chosen_rows import clicked_row, ticked_rows
from .controls import asked as asked_for
from .controls import hold_to, say_absent, step_picker
from .layout import control_row

Value = TypeVar("Value")
ASIDE = (3, 7)
"""Shares of the width: of a list, and of what it lists."""


class Widgets:
    """Streamlit's widgets, and the memory of its session."""

    def ask(self, question: Question[Value]) -> Value:
        asked: Any = question  # each function below takes the questions of its own class
        value: Value = _ASKED[type(asked)](asked)
        return value

    def known(self, question: Question[Value]) -> Value:
        asked: Any = question
        chosen: Value | None = asked_for(asked.key)  # type: ignore[assignment]  # a question is bound to values of its own
        return question.usual if chosen is None else chosen

    def unasked(self, options: Sequence[Option]) -> Sequence[Option]:
        return ()

    def row(self, name: str, *, labelled: bool = True) -> Place:
        return control_row(name, labelled=labelled)

    def aside(self, name: str, words: str) -> tuple[Place, Place]:
        if is_narrow():
            return st.expander(words, key=f"{name}_list"), st.container(key=name)
        with st.container(key=f"{name}_columns"):
            left, right = st.columns(ASIDE)
        return left.container(key=f"{name}_list"), right.container(key=name)

    def place(self, name: str) -> None:
        st.session_state[_at(name)] = st.container(key=name)

    def menu(self, name: str, words: str, *, is_wide: bool = False, icon: str = "tune", is_off: bool = False) -> Place:
        if is_wide:
            return st.expander(words, key=name)
        return st.popover(words, icon=f":material/{icon}:", key=name, disabled=is_off)

    def picked(self, name: str, rows: int) -> int | None:
        drawn = st.session_state.get(picks_at(name))
        return None if drawn is None else clicked_row(drawn, rows)

    def ticked(self, name: str) -> Sequence[Any]:
        return ticked_rows(name)

    def unpick(self) -> None:
        deselect()

    def show_newest(self) -> None:
        show_newest()

    def waits(self, words: str) -> AbstractContextManager[object]:
        return st.spinner(words)

    @contextmanager
    def working(self, words: str) -> Iterator[Tell]:
        place = st.empty()
        with place.status(words):
            bar = st.progress(0.0, "reading")

            def tell(done: int, of: int) -> None:
                bar.progress(done / max(of, 1), f"{done:,} of {count(of, 'step')}")

            yield tell
        place.empty()

    def remembered(self, key: str, first: Value) -> Value:
        value: Value = st.session_state.setdefault(key, first)
        return value

    def forget(self, key: str) -> None:
        st.session_state.pop(key, None)


WIDGETS = Widgets()


def picks_at(name: str) -> str:
    """The key under which the session keeps the last table of this name as it was drawn, with the reader's pick."""
    return f"_picks_{name}"


def place_of(name: str) -> Any:
    """The place that a page has kept: a container."""
    return st.session_state[_at(name)]


def _at(name: str) -> str:
    return f"_place_{name}"


def _bind(asked: Any) -> Literal["query-params"] | None:
    return "query-params" if asked.in_url else None


def _title(asked: Any) -> Literal["visible", "collapsed"]:
    return "visible" if asked.has_title else "collapsed"


def _one_of(asked: Choice[Any]) -> Any:
    title, options, key = asked.title, asked.options, asked.key
    if asked.look == "segments":
        return choice(
            title, options, key, default=asked.usual, help=asked.help, label_visibility=_title(asked), bind=asked.in_url
        )
    if asked.look == "slider":
        return st.select_slider(
            title, options, asked.usual, key=key, bind=_bind(asked), help=asked.help, width=asked.width, disabled=asked.is_off
        )  # fmt: skip
    return dropdown(
        title, options, key, width=asked.width, default=asked.usual, help=asked.help, shown=asked.shown, bind=asked.in_url
    )  # fmt: skip


def _at_most_one(asked: AtMostOne) -> str | None:
    """A list with words is bound by `optional`; any other here, where a link may hold the raw name of an option."""
    key, options, words = asked.key, asked.options, asked.placeholder
    if asked.look == "table":
        return _in_table(asked)
    if asked.shown is not None:
        return optional(asked.title, options, key, shown=asked.shown, width=asked.width, placeholder=words)
    wanted, usual = asked_for(key), asked.usual
    is_known = wanted is not None and visible(str(wanted)) in options
    of_page = usual is not None and key in st.session_state  # chosen of other options, and not by the address
    absent = None if is_known or of_page else wanted
    if wanted is not None or usual is not None:
        st.session_state[key] = visible(str(wanted)) if is_known else usual
    first = options[: asked.most]
    more = {st.session_state[key]} & set(options) - set(first) if key in st.session_state else ()
    chosen = st.selectbox(
        asked.title, [*first, *more], None, key=key, bind="query-params", width=asked.width, placeholder=words,
        label_visibility=_title(asked),
    )  # fmt: skip
    if usual is not None:
        chosen = chosen or usual
        in_address(key, chosen)
    say_absent(key, absent, chosen, asked.absent, () if absent is None else near_names(str(absent), options))
    return chosen


def _in_table(asked: AtMostOne) -> str | None:
    """The choice that the address alone keeps: a click in a table writes it there."""
    key, wanted = asked.key, st.query_params.get(asked.key)
    name, before = None if wanted is None else visible(wanted), st.session_state.get(kept_at(key))
    chosen = name if name in asked.options else asked.usual
    if chosen != name:
        st.query_params.pop(key, None)
    absent = None if name in (chosen, before) else name  # what was chosen at another step is no wish of the address
    st.session_state[kept_at(key)] = chosen
    if chosen is not None:
        in_address(key, chosen)
    say_absent(key, absent, chosen, asked.absent, near_names(absent or "", asked.options))
    return chosen


def kept_at(key: str) -> str:
    """The key under which the session keeps a choice that has no widget."""
    return f"_kept_{key}"


def _any_of(asked: Several) -> list[str]:
    if asked.shown is None:
        return _bound(asked)
    if asked.look == "list":
        return several(
            asked.title, asked.options, asked.key, shown=asked.shown, width=asked.width, placeholder=asked.help or ""
        )
    pills = words_of_pills(asked.options, asked.key)
    chosen = st.pills(asked.title, format_func=asked.shown, **pills, wrap=True, help=asked.help)
    if asked.every and set(asked.options) - set(chosen):
        st.button(asked.every, on_click=_choose, args=(asked.key, [*asked.options]), width="content")
    return [option for option in chosen if option in asked.options]


def _bound(asked: Several) -> list[str]:
    """Options without words of their own: Streamlit keeps them in the URL."""
    if asked.look == "list":
        # before the widget is made, which takes a value that it does not know out of the address
        gone = [name for name in st.query_params.get_all(asked.key) if name not in asked.options]
        chosen = st.multiselect(
            asked.title, asked.options, asked.usual, key=asked.key, bind=_bind(asked), max_selections=asked.most,
            placeholder=asked.placeholder or asked.help, help=asked.help if asked.placeholder else None, width=asked.width,
            label_visibility="visible" if asked.has_title else "collapsed",
        )  # fmt: skip
        if asked.absent:
            near = near_names(gone[0], asked.options) if gone else ()
            shown = f" {asked.otherwise} is shown." if asked.otherwise and not chosen else ""
            say_absent(asked.key, ", ".join(gone) or None, chosen, asked.absent + shown, near)
        if asked.otherwise and not chosen:
            in_address(asked.key, asked.otherwise)
    else:
        chosen = st.pills(
            asked.title, asked.options, selection_mode="multi", default=asked.usual, key=asked.key, bind="query-params",
            help=asked.help, wrap=True,
        )  # fmt: skip
    return [option for option in chosen if option in asked.options]


def _choose(key: str, options: list[str]) -> None:
    st.session_state[key] = options


def _number(asked: Number) -> float | None:
    key, draw = asked.key, cast(Any, st.number_input)  # its overloads want one type for all numbers
    if asked.of is not None:
        hold_to(asked.of, key, asked.least or 0, asked.most or 0, asked.usual)
    if asked.look == "slider":
        return float(st.slider(asked.title, int(asked.least or 0), int(asked.most or 0), key=key, bind="query-params"))
    number: float | None = draw(
        asked.title, asked.least, asked.most, asked.usual, asked.step, asked.format, key=key, bind="query-params",
        help=asked.help, width=asked.width, placeholder=asked.placeholder, label_visibility=_title(asked),
    )  # fmt: skip
    return number


def _text(asked: Text) -> str:
    draw: Any = st.text_area if asked.height else st.text_input  # their other arguments are the same
    height = {"height": asked.height} if asked.height else {}
    typed = draw(
        asked.title, asked.usual, key=asked.key, bind=_bind(asked), placeholder=asked.placeholder, max_chars=asked.most,
        width=asked.width, help=asked.help, label_visibility="visible" if asked.has_title else "collapsed", **height,
    )  # fmt: skip
    return typed or ""


def _step(asked: Step) -> int:
    return step_picker(asked.view, asked.gap, follows=asked.follows)


def _switch(asked: Switch) -> bool:
    return st.toggle(asked.title, asked.usual, key=asked.key, bind=_bind(asked), help=asked.help)


_ASKED: dict[type[Any], Any] = {
    Choice: _one_of, AtMostOne: _at_most_one, Several: _any_of, Number: _number, Switch: _switch, Text: _text, Step: _step,
}  # fmt: skip
