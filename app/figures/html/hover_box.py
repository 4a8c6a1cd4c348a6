"""The box of words that a hover opens, as rules of a style sheet: alike over tokens and over facts."""

from ...presentation.theme import FONT, Theme


def hover_box(theme: Theme) -> str:
    """The look of the box. Its place and its words are the caller's."""
    return (
        f"z-index:9;font:12px/1.45 {FONT};color:{theme.text};background:{theme.panel};border:1px solid {theme.border};"
        "border-radius:4px;padding:6px 9px;pointer-events:none;box-shadow:0 3px 12px rgba(0,0,0,.18)"
    )
