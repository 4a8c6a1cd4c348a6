"""Label and text of each fact about a run, in the order of reading."""

from collections.abc import Sequence

LabelledTexts = Sequence[tuple[str, str]]
"""(label, text) of each fact."""
