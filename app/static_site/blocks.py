"""The blocks that a page is made of. A page lists its blocks; `markup` alone knows how a block looks in HTML."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..presentation.labelled_texts import LabelledTexts

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Heading:
    """A title within a page."""

    text: str
    """Plain text."""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph."""

    text: str
    """Plain text."""
    kind: str = ""
    """Classes of the paragraph: `muted small`, `absent` or `lead`."""


@dataclass(frozen=True)
class Facts:
    """Names and values below each other."""

    rows: LabelledTexts


@dataclass(frozen=True)
class Table:
    """Rows of text. It scrolls by itself where the window is too narrow."""

    title: str
    """Description for screen readers."""
    head: Sequence[str]
    """The headings of the columns."""
    rows: Sequence[Sequence[str]]
    numbers: bool = False
    """True if every column but the first holds numbers."""


@dataclass(frozen=True)
class Chart:
    """A figure that plotly.js draws in the reader's theme."""

    name: str
    """Its name in the file; no other chart of the run has it."""
    label: str
    """Description for screen readers."""
    draw: "Callable[..., go.Figure]"
    """The figure, in the theme that is given as `theme`."""
    wide: bool = False
    """True if it takes the width of the page; the others stand in pairs."""


@dataclass(frozen=True)
class Charts:
    """Charts beside each other."""

    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Markup:
    """HTML of `figures/html`, which is safe as it is, in both themes."""

    light: str
    """HTML for the light theme."""
    dark: str
    """HTML for the dark theme."""


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


@dataclass(frozen=True)
class Code:
    """Lines to copy."""

    lines: Sequence[str]
    """Plain text."""


@dataclass(frozen=True)
class Links:
    """Facts, each a link to the page that shows it."""

    rows: Sequence[tuple[str, str, str, str]]
    """Name, words, path of the page, and a tooltip."""


@dataclass(frozen=True)
class Verdict:
    """The answer of the run: what is wrong, why, since when, and what to do."""

    severity: str
    title: str
    facts: LabelledTexts
    """Label and text of each fact."""
    share: float | None
    """Share of the gap that the likeliest cause explains; None without one."""
    chart: Chart | None
    """The one picture that proves it."""


@dataclass(frozen=True)
class Drawer:
    """Blocks that the reader opens."""

    title: str
    blocks: "tuple[Block, ...]"


Block = Heading | Paragraph | Facts | Table | Charts | Markup | TintedSequence | Code | Links | Verdict | Drawer
