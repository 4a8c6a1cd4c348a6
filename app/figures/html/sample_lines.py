"""Samples in a line each: their facts, and their tokens around the worst one, tinted."""

from collections.abc import Sequence

import polars as pl

from ...presentation.escape import html as escaped
from ...presentation.theme import FONT, LIGHT, Theme
from .tinted_text import style, token_text


def sample_lines(samples: Sequence[tuple[str, pl.DataFrame]], gap: str, *, theme: Theme = LIGHT) -> str:
    """samples: the facts, and a frame with a row per token (Run.sequence). A line is a button; data-line has its number."""
    root = f"rs-samples-{theme.name}"
    lines = "".join(
        f'<button type="button" data-line="{place}"><span>{escaped(facts)}</span>'
        f"{token_text(tokens, gap, theme=theme, legend=False, styled=False, heads={})}</button>"
        for place, (facts, tokens) in enumerate(samples)
    )
    return f'<div class="{root}"><style>{style(theme)}{_style(f".{root}", theme)}</style>{lines}</div>'


def empty_lines(number: int) -> str:
    """The room of so many samples in a wide window."""
    return f'<div aria-hidden="true" style="height:{28 * number}px"></div>'


def _style(root: str, theme: Theme) -> str:
    return (
        f"{root} button{{display:flex;flex-wrap:wrap;gap:0 16px;width:100%;padding:2px 4px;border:0;background:none;"
        f"cursor:pointer;text-align:left;border-bottom:1px solid {theme.border};color:{theme.muted};font:13px/1.75 {FONT}}}"
        f"{root} button:hover{{background:{theme.border}}}"
        f"{root} button>span{{flex:0 0 370px}}{root} button>div{{flex:1 1 320px;min-width:0}}"
        f"{root} .rs-text{{white-space:nowrap;overflow:hidden}}{root} .rs-text br{{display:none}}"
    )
