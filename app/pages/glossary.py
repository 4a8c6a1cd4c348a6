"""The glossary of the report: the card of every metric."""

from collections.abc import Iterator

from ..blocks import Markup, Paragraph, Section
from ..figures.html.glossary import glossary_cards

ABOUT = (
    "x is the log-ratio of a token: log-prob of the later policy minus log-prob of the earlier one. S is its sum over a sequence,"
    " m its mean."
)


def glossary() -> Iterator[Section]:
    blocks = (Paragraph(ABOUT, "muted"), Markup(glossary_cards))
    yield Section("glossary", "Glossary", lambda: blocks, is_reference=True)
