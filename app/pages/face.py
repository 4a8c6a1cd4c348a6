"""The face that draws a page, as the page asks it: the reader's choices, a bar while it reads, and the memory of a session."""

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from .view import View

Option = TypeVar("Option")
Value = TypeVar("Value")
Told = TypeVar("Told", covariant=True)
Place = AbstractContextManager[object, Literal[False] | None]
"""A part of the page: what is asked and yielded inside stands there."""
Tell = Callable[[int, int], None]
"""Takes the number of parts that are done, and of all."""


@dataclass(frozen=True)
class Choice(Generic[Option]):
    """One of several options. key, shown, look, has_title, help, width, in_url: as of every question."""

    key: str
    title: str
    options: Sequence[Option]
    usual: Option
    """The option unless the reader has chosen."""
    shown: Callable[[Option], str] | None = None
    look: Literal["dropdown", "segments", "slider"] = "dropdown"
    has_title: bool = True
    help: str | None = None
    width: int = 240
    in_url: bool = True
    is_off: bool = False
    """True if another choice overrules it now; of a slider."""


@dataclass(frozen=True)
class AtMostOne:
    """One of several options, or none. key, shown, width: as of every question; has_title: so, of options without words."""

    key: str
    title: str
    options: Sequence[str]
    placeholder: str
    """The words in place of none."""
    shown: Callable[[str], str] | None = None
    width: int = 240
    absent: str = ""
    """The words where the address asks for something that is no option, with {} in place of it; not of options with words."""
    usual: str | None = None
    """The option unless the reader has chosen, which the address then names; None for none."""
    most: int | None = None
    """Number of options in the list, the first ones; None for all. An address can name any other."""
    has_title: bool = True
    look: Literal["dropdown", "table"] = "dropdown"
    """The widget. table: none, because a table of the page leads to the options."""


@dataclass(frozen=True)
class Several:
    """Any number of options. key, shown, look, help, in_url: as of every question; has_title: so, of a list."""

    key: str
    title: str
    options: Sequence[str]
    shown: Callable[[str], str] | None = None
    look: Literal["list", "pills"] = "list"
    help: str | None = None
    width: int | Literal["stretch"] = 320
    """In pixels, or all that there is; of a list."""
    every: str = ""
    """The words of a button that chooses all of them; empty without one."""
    usual: list[str] = field(default_factory=list)
    """The chosen options unless the reader has chosen."""
    otherwise: str = ""
    """The option that stands for none, of a list; the address tells it."""
    placeholder: str = ""
    """The words in place of none, of a list; empty for those behind its title."""
    most: int | None = None
    """The most options that can be chosen; None without a limit."""
    absent: str = ""
    """As of `AtMostOne`."""
    has_title: bool = True
    in_url: bool = True


@dataclass(frozen=True)
class Number:
    """A number. key, help, width, look, has_title: as of every question."""

    key: str
    title: str
    usual: float | None
    """The number unless the reader has chosen; None for none."""
    least: float | None = 0.0
    """The smallest number that can be chosen; None without one."""
    most: float | None = None
    """The largest; None without one."""
    step: float | None = None
    """The difference that one click makes."""
    format: str | None = None
    """As of printf."""
    help: str | None = None
    width: int = 130
    placeholder: str | None = None
    """The words in place of no number."""
    look: Literal["field", "slider"] = "field"
    has_title: bool = True
    of: Hashable = None
    """The thing that it is a number of: one that was chosen of another thing, or lies beyond the ends, is forgotten."""


@dataclass(frozen=True)
class Switch:
    """Yes or no. key, help, in_url: as of every question."""

    key: str
    title: str
    usual: bool = False
    """The answer unless the reader has chosen."""
    help: str | None = None
    in_url: bool = True


@dataclass(frozen=True)
class Text:
    """Words that the reader types. key, has_title, help, in_url: as of every question."""

    key: str
    title: str
    usual: str = ""
    """The words unless the reader has typed others."""
    placeholder: str = ""
    """The words in place of none."""
    width: int | Literal["stretch"] = 200
    """In pixels, or all that there is."""
    has_title: bool = True
    most: int | None = None
    """The most characters; None without a limit."""
    help: str | None = None
    height: int | None = None
    """In pixels, for several lines; None for one line."""
    in_url: bool = True


@dataclass(frozen=True)
class Step:
    """One of the steps on record. A face with widgets begins at the worst one whose sequences can be listed."""

    view: View
    gap: str
    follows: bool = False
    """True if the reader can have it follow the newest step of a run that grows."""
    usual: int | None = None
    """No step: a face that asks nobody shows the run as a whole."""


class Question(Protocol[Told]):
    """One of the classes above.

    key: its name in the URL. shown: the words of an option; None if it is its own. look: the widget. width: in pixels.
    help: the words behind its title. has_title: True if its title is seen. in_url: False if the address forgets it.
    """

    @property
    def usual(self) -> Told: ...


class Face(Protocol):
    """A face. Paper is one that asks nobody."""

    def ask(self, question: Question[Value]) -> Value:
        """The reader's choice, or the usual one. A face with widgets draws one here."""
        ...

    def known(self, question: Question[Value]) -> Value:
        """The answer to a question that is asked further below."""
        ...

    def unasked(self, options: Sequence[Option]) -> Sequence[Option]:
        """The options that a page shows because nobody can choose them: none where a reader can, all on paper."""
        ...

    def row(self, name: str, *, labelled: bool = True) -> Place:
        """Widgets that are asked for inside stand in one row. labelled: they have titles above them."""
        ...

    def menu(self, name: str, words: str, *, is_wide: bool = False, icon: str = "tune", is_off: bool = False) -> Place:
        """Widgets that are asked for inside stand in a menu, which the reader opens.

        is_wide: as wide as the page, and without an icon. icon: a name of Material's. is_off: it cannot be opened now.
        """
        ...

    def aside(self, name: str, words: str) -> tuple[Place, Place]:
        """A narrow place for a list and a wide one at its right. words: those of the drawer of the list in a narrow window."""
        ...

    def place(self, name: str) -> None:
        """Keeps a place that an `At` fills later."""
        ...

    def picked(self, name: str, rows: int) -> int | None:
        """The row that the reader picked in the table of this name, which was drawn before; None without one."""
        ...

    def ticked(self, name: str) -> Sequence[Any]:
        """The names of the rows that the reader ticked in the table of this name, which was drawn before."""
        ...

    def unpick(self) -> None:
        """Lets no row be picked, after a click."""
        ...

    def show_newest(self) -> None:
        """Has the page show what is newest, also while a row is picked, after a click."""
        ...

    def waits(self, words: str) -> AbstractContextManager[object]:
        """Says that a reading takes a moment, if it does."""
        ...

    def working(self, words: str) -> AbstractContextManager[Tell]:
        """Shows the progress of a reading that takes long."""
        ...

    def remembered(self, key: str, first: Value) -> Value:
        """The value that the reader's session keeps under this key; `first` where there is none yet."""
        ...

    def forget(self, key: str) -> None:
        """Lets the session forget the value."""
        ...


class Paper:
    """A file or a terminal: every choice is the usual one."""

    def ask(self, question: Question[Value]) -> Value:
        return question.usual

    def known(self, question: Question[Value]) -> Value:
        return question.usual

    def unasked(self, options: Sequence[Option]) -> Sequence[Option]:
        return options

    def row(self, name: str, *, labelled: bool = True) -> Place:
        return nullcontext()

    def menu(self, name: str, words: str, *, is_wide: bool = False, icon: str = "tune", is_off: bool = False) -> Place:
        return nullcontext()

    def aside(self, name: str, words: str) -> tuple[Place, Place]:
        return nullcontext(), nullcontext()

    def place(self, name: str) -> None:
        pass

    def picked(self, name: str, rows: int) -> int | None:
        return None

    def ticked(self, name: str) -> Sequence[Any]:
        return ()

    def unpick(self) -> None:
        pass

    def show_newest(self) -> None:
        pass

    def waits(self, words: str) -> AbstractContextManager[object]:
        return nullcontext()

    def working(self, words: str) -> AbstractContextManager[Tell]:
        return nullcontext(_tell_nobody)

    def remembered(self, key: str, first: Value) -> Value:
        return first

    def forget(self, key: str) -> None:
        pass


def _tell_nobody(done: int, of: int) -> None:
    pass


PAPER: Face = Paper()
