"""The face of Streamlit, as pages ask it: choices are widgets that are bound to the URL."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, TypeVar

import streamlit as st

from ...pages.face import AtMostOne, Choice, Number, Option, Question, Several, Step, Switch, Tell, Text
from ...presentation.digits import count
from ...presentation.escape import visible
from ..model.live import deselect, show_newest
from .choices import choice, dropdown, optional, several, words_of_pills
from .chosen_rows import clicked_row, ticked_rows
from .controls import asked as asked_for
from .controls import say_absent, step_picker
from .layout import control_row
from .step_buttons import step_buttons

Value = TypeVar("Value")


class Widgets:
    """Streamlit's widgets, and the memory of its session."""

    def ask(self, question: Question[Value]) -> Value:
        asked: Any = question  # each function below takes the questions of its own class
        value: Value = _ASKED[type(asked)](asked)
        return value

    def unasked(self, options: Sequence[Option]) -> Sequence[Option]:
        return ()

    def row(self, name: str) -> AbstractContextManager[object, Literal[False] | None]:
        return control_row(name)

    def place(self, name: str) -> None:
        st.session_state[_at(name)] = st.container(key=name)

    def menu(
        self, name: str, words: str, *, is_wide: bool = False
    ) -> AbstractContextManager[object, Literal[False] | None]:
        if is_wide:
            return st.expander(words, key=name)
        return st.popover(words, icon=":material/tune:", key=name)

    def picked(self, name: str, rows: int) -> int | None:
        drawn = st.session_state.get(picks_at(name))
        return None if drawn is None else clicked_row(drawn, rows)

    def ticked(self, name: str) -> Sequence[str]:
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


def _one_of(asked: Choice[Any]) -> Any:
    if asked.look == "segments":
        visible: Literal["visible", "collapsed"] = "visible" if asked.has_title else "collapsed"
        title, options = asked.title, asked.options
        return choice(title, options, asked.key, default=asked.usual, help=asked.help, label_visibility=visible)
    if asked.look == "slider":
        return st.select_slider(
            asked.title,
            asked.options,
            asked.usual,
            key=asked.key,
            bind="query-params",
            help=asked.help,
            width=asked.width,
        )
    return dropdown(
        asked.title,
        asked.options,
        asked.key,
        width=asked.width,
        default=asked.usual,
        help=asked.help,
        shown=asked.shown,
    )


def _at_most_one(asked: AtMostOne) -> str | None:
    """A list with words is bound by `optional`; any other here, where a link may hold the raw name of an option."""
    key, options, words = asked.key, asked.options, asked.placeholder
    if asked.shown is not None:
        return optional(asked.title, options, key, shown=asked.shown, width=asked.width, placeholder=words)
    wanted = asked_for(key)
    known = None if wanted is None or visible(str(wanted)) not in options else visible(str(wanted))
    if wanted is not None:
        st.session_state[key] = known
    chosen = st.selectbox(
        asked.title, options, None, key=key, bind="query-params", width=asked.width, placeholder=words
    )
    say_absent(key, wanted if known is None else None, chosen, asked.absent)
    return chosen


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
        gone = ", ".join(name for name in st.query_params.get_all(asked.key) if name not in asked.options) or None
        chosen = st.multiselect(
            asked.title, asked.options, asked.usual, key=asked.key, bind="query-params", max_selections=asked.most,
            placeholder=asked.placeholder or asked.help, help=asked.help if asked.placeholder else None, width=asked.width,
            label_visibility="visible" if asked.has_title else "collapsed",
        )  # fmt: skip
        if asked.absent:
            say_absent(asked.key, gone, chosen, asked.absent)
    else:
        chosen = st.pills(
            asked.title, asked.options, selection_mode="multi", default=asked.usual, key=asked.key, bind="query-params",
            help=asked.help, wrap=True,
        )  # fmt: skip
    return [option for option in chosen if option in asked.options]


def _choose(key: str, options: list[str]) -> None:
    st.session_state[key] = options


def _number(asked: Number) -> float | None:
    draw: Any = st.number_input  # its overloads want one type for all numbers
    number: float | None = draw(
        asked.title, asked.least, asked.most, asked.usual, asked.step, asked.format, key=asked.key, bind="query-params",
        help=asked.help, width=asked.width, placeholder=asked.placeholder,
    )  # fmt: skip
    return number


def _text(asked: Text) -> str:
    typed = st.text_input(
        asked.title, asked.usual, key=asked.key, bind="query-params", placeholder=asked.placeholder, width=asked.width,
        label_visibility="visible" if asked.has_title else "collapsed",
    )  # fmt: skip
    return typed or ""


def _step(asked: Step) -> int:
    step = step_picker(asked.view, asked.gap)
    step_buttons(asked.view, step)
    return step


def _switch(asked: Switch) -> bool:
    return st.toggle(asked.title, asked.usual, key=asked.key, bind="query-params", help=asked.help)


_ASKED: dict[type[Any], Any] = {
    Choice: _one_of, AtMostOne: _at_most_one, Several: _any_of, Number: _number, Switch: _switch, Text: _text, Step: _step,
}  # fmt: skip
