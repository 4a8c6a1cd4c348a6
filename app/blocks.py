"""The blocks that a page is made of. A page yields them, and each face draws them in its own way.

A name is that of a block on its page. `blocks` and `frame`, where they are functions, make what is drawn.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from .presentation.labelled_texts import LabelledTexts
from .presentation.theme import Theme

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import polars as pl

Fact = tuple[str, str, str]
"""Name, value and meaning, as plain text."""
Tone = Literal["", "lead", "answer", "muted", "small", "absent", "info", "warning", "good", "wrong"]
"""lead: bold. answer: a heading that answers. muted, small: an aside. absent: a fact that is not on record, with the reason.
info: nothing to show, with the reason. warning: something is wrong. good: something was looked for and is not there.
wrong: the reader asked for something that cannot be."""


@dataclass(frozen=True)
class Heading:
    """A title within a page."""

    text: str
    """Plain text."""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph."""

    text: str
    """Plain text, with code between backticks."""
    tone: Tone = ""
    head: str = ""
    """Bold words before the text."""
    help: str = ""
    """The words behind it."""


@dataclass(frozen=True)
class Facts:
    """Names and values below each other."""

    rows: LabelledTexts


@dataclass(frozen=True)
class Cards:
    """Facts beside each other, each with its meaning."""

    rows: Sequence[Fact]
    narrowest: int = 150
    """The least width of a card, in pixels."""


@dataclass(frozen=True)
class Column:
    """The look of a column."""

    title: str = ""
    """Its heading; empty for its name."""
    format: str = ""
    """A number's format as of printf, or `localized`; empty for the usual digits."""
    help: str = ""
    """The words behind its heading."""
    width: int | None = None
    """In pixels."""
    ends: tuple[float, float] | None = None
    """The ends of the axis, if its cells are lines: lists of numbers. None: from the least to the largest of each line."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Each word that its cells hold, and the colour of the theme that it has; empty if they hold others."""
    narrow: int | None = None
    """Its width in a narrow window, in pixels; None for the same."""
    shorter: Mapping[str, str] = field(default_factory=dict)
    """Words of its cells, and those in their place in a narrow window."""
    is_number: bool = False
    """True if it holds numbers, though they are words."""
    tips: Mapping[str, str] = field(default_factory=dict)
    """Names that its cells hold, and the words behind each; empty if they hold none."""


@dataclass(frozen=True)
class Table:
    """A frame. It scrolls by itself where the window is too narrow."""

    title: str
    """Description for screen readers."""
    frame: "pl.DataFrame"
    none: str = ""
    """The words in place of a table without a row."""
    columns: Mapping[str, Column] = field(default_factory=dict)
    first: Sequence[str] = ()
    """The columns that come first in a narrow window, after the very first one."""
    only: Sequence[str] = ()
    """The columns that are shown; empty for all. Downloads have all."""
    wide_only: Sequence[str] = ()
    """The columns that a narrow window leaves out, because the page has them elsewhere."""
    tallest: int | None = None
    """Pixels of what is shown before it scrolls; None for all rows."""
    is_numbers: bool = False
    """True if every column but the first holds numbers, though they may be words."""
    picks: str = ""
    """Its name on the page if a reader can pick a row, see `pages.face.Face.picked`; empty if none can be picked."""
    leads: "Callable[[int], Link] | None" = None
    """A picked row -> where it leads; None if it stays picked."""
    cut: Sequence[str] = ()
    """The columns of names that are shown as short as they can be told apart. Downloads have them whole."""
    rows: Sequence[Hashable] = ()
    """The names of its rows, by which they differ from those of another table: a pick is of these."""
    has_ticks: bool = False
    """True if a reader can also tick rows, see `pages.face.Face.ticked`. While some are ticked no row changes its place."""

    @property
    def shown(self) -> "pl.DataFrame":
        """The frame with the columns that are shown."""
        return self.frame.select(self.only) if self.only else self.frame

    def title_of(self, column: str) -> str:
        """The heading of a column."""
        return (self.columns[column].title if column in self.columns else "") or column


@dataclass(frozen=True)
class Link:
    """A page of the same run, with choices. Any: the values of choices."""

    page: str
    """Empty for the same page."""
    choices: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Chart:
    """A figure in the reader's theme."""

    name: str
    """Its name on the page and in files; no other chart of the page has it."""
    label: str
    """Description for screen readers."""
    make: "Callable[..., go.Figure]"
    """A function of a module that makes the figure from `of` and the name of a theme."""
    of: tuple[Hashable, ...] = ()
    """Its arguments; never a frame."""
    wide: bool = False
    """True if it takes the width of the page; the others stand in pairs."""
    numbers: "Callable[[], pl.DataFrame] | None" = None
    """Makes the table behind the figure."""
    leads: Callable[[Mapping[str, Any]], Link | None] | None = None
    """A clicked point (`x`, `customdata`) -> where it leads. Any: the values of a point."""
    hint: str = ""
    """The effect of a click, which a face with clicks adds to the description; empty if it goes without saying."""
    text: str = ""
    """The figure in words or block characters, for a face without pictures; empty for its description."""

    def figure(self, theme: Theme) -> "go.Figure":
        """The figure in this theme."""
        return self.make(*self.of, theme.name)


@dataclass(frozen=True)
class Charts:
    """Charts beside each other."""

    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Beside:
    """Blocks side by side; below each other in a narrow window."""

    name: str
    columns: "tuple[tuple[Block, ...], ...]"
    """The blocks of each column."""
    narrowest: int = 420
    """The least width of a column, in pixels; a face without a window has its own."""


@dataclass(frozen=True)
class At:
    """Blocks at a place above, which the page has kept: see `pages.face.Face.place`."""

    name: str
    blocks: "tuple[Block, ...]"


@dataclass(frozen=True)
class Action:
    """A button that does something, or leads to another page."""

    name: str
    words: str
    """Plain text."""
    do: "Callable[[], Link | None] | Link | Download"
    """Called after a click, before the page is drawn again; or the place that a click opens, or the file that it saves."""
    help: str = ""
    """The words behind it."""
    is_plain: bool = False
    """True if it looks like a word of the text."""
    shortcut: str = ""
    """The key that clicks it."""
    is_off: bool = False
    """True if it cannot be clicked now."""
    icon: str = ""
    """A name of Material's icons; empty for none."""
    redraws_page: bool = False
    """True if a click in a `Part` redraws more than the part."""


@dataclass(frozen=True)
class Download:
    """A file that a click saves."""

    name: str
    text: str
    """Its content."""
    media_type: str
    """The kind of the file, such as `application/json`."""


@dataclass(frozen=True)
class Actions:
    """Buttons beside each other."""

    name: str
    actions: tuple[Action, ...]
    before: str = ""
    """Plain text before them."""
    after: str = ""
    """Plain text after them."""
    is_list: bool = False
    """True if they stand below each other. A face that cannot act shows the words of a list."""
    in_row: bool = False
    """True for a list that stands in a row where a face has buttons."""


@dataclass(frozen=True)
class Box:
    """Blocks with a frame around them."""

    name: str
    blocks: "tuple[Block, ...]"


@dataclass(frozen=True)
class Part:
    """Blocks that a choice among them redraws alone. They are made each time."""

    name: str
    blocks: "Callable[[], Iterable[Block]]"
    every: float | None = None
    """Seconds after which a face that lives draws them anew; None for never."""


@dataclass(frozen=True)
class Waiting:
    """Something that is being made elsewhere. A face that lives looks again until it is there; paper never waits."""

    name: str
    words: str
    """Plain text."""
    is_there: Callable[[], bool]
    """True once it is made; then the page is drawn again."""
    blocks: "Callable[[], Iterable[Block]] | None" = None
    """Makes the blocks that stand in its place before and after, if these alone are to be drawn again."""
    job: str = ""
    """The background job that makes it, by its name in `pages.jobs`: a face shows its progress, and a button that cancels it."""
    redrawn: int = 0
    """Number of looks at the job after which the page shows what it has so far; 0: never."""


@dataclass(frozen=True)
class Markup:
    """HTML of `figures/html`, which is safe as it is."""

    draw: Callable[..., str]
    """The HTML, in the theme that is given as `theme`."""
    title: str = ""
    """The name of its numbers; empty without."""
    numbers: "pl.DataFrame | None" = None
    """The same as a table, for downloads."""
    leads: "Callable[[int], Link] | None" = None
    """The position of a clicked token of `figures.html.tinted_text` -> where it leads."""


@dataclass(frozen=True)
class TintedSequence:
    """A sequence with its tinted tokens."""

    title: str
    facts: str
    """The facts of the sequence in one line."""
    prompt: str | None
    html: str
    """The tokens as HTML of `figures/html`."""
    more: str
    """The part that was cut off, in words; empty if all is there."""
    text: str = ""
    """The text of the tokens, for a face without tints; empty if none was recorded."""
    worst: Sequence[str] = ()
    """The tokens with the largest gap, in words."""


@dataclass(frozen=True)
class Code:
    """Lines to copy."""

    lines: Sequence[str]
    """Plain text."""
    language: str = ""
    """By a name that Pygments knows; empty for plain words."""
    name: str = ""
    """Its name on the page; empty if none is needed."""
    tallest: int | None = None
    """Pixels of what is shown before it scrolls; None for all lines."""


@dataclass(frozen=True)
class Json:
    """A JSON value, folded."""

    title: str
    value: Mapping[str, Any]
    """Any: the values of a JSON object."""


@dataclass(frozen=True)
class Links:
    """Facts, each a link to the page that shows it."""

    name: str
    rows: Sequence[tuple[str, str, Link, str]]
    """Name, words, place that shows it, and a tooltip."""


@dataclass(frozen=True)
class Verdict:
    """The answer of the run: what is wrong, why, since when, and what to do."""

    severity: str
    title: str
    facts: LabelledTexts
    """Label and text of each fact."""
    lines: Callable[..., str]
    """The same in few lines, as HTML of `figures/html` in the theme that is given as `theme`; a face that lives shows these."""
    share: float | None
    """Share of the gap that the likeliest cause explains; None without one."""
    chart: Chart | None
    """The one picture that proves it."""


@dataclass(frozen=True)
class Numbers:
    """The table behind a page, which a face that lives shows to those who ask. Downloads have it; paper leaves it out."""

    name: str
    """Its name on the page and in files."""
    frame: "Callable[[], pl.DataFrame]"
    title: str = "numbers behind this page"


@dataclass(frozen=True)
class Drawer:
    """Blocks that the reader opens. They are made when it is opened."""

    title: str
    blocks: "Callable[[], Iterable[Block]]"
    name: str = ""
    """Its name in the URL, which keeps it open; empty if no link opens it."""
    is_printed: bool = False
    """True if a printer and a face without drawers show it open; the others leave it closed, or out."""


@dataclass(frozen=True)
class Section:
    """A part of a page that the report prints."""

    name: str
    """Its name in addresses."""
    title: str
    """Plain text; empty if its first block heads it."""
    blocks: "Callable[[], Iterable[Block]]"
    """Makes the blocks; a section without one is left out."""
    is_reference: bool = False
    """True if it explains and tells nothing of the run. Markdown leaves it out."""


Block = (
    Heading | Paragraph | Facts | Cards | Table | Chart | Charts | Beside | At | Action | Actions | Box | Part
    | Waiting | Markup | TintedSequence | Code | Json | Links | Verdict | Numbers | Drawer
)  # fmt: skip


def parts_of(text: str) -> list[tuple[str, bool]]:
    """The parts of a text, and whether each is code. A backtick without a second one is a character like others.

    >>> parts_of("pass `config` here"), parts_of("5` wide")
    ([('pass ', False), ('config', True), (' here', False)], [('5` wide', False)])
    """
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return [(text, False)]
    return [(part, at % 2 == 1) for at, part in enumerate(parts) if part]


def text_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, is_numbers: bool = False) -> Table:
    """A table of words. head: the titles, of which one may be empty."""
    import polars as pl

    frame = pl.DataFrame([*rows], schema=dict.fromkeys(head, pl.String), orient="row")
    return Table(title, frame, is_numbers=is_numbers)
