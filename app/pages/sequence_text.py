"""The tinted text of a sequence of a run, whole or in part."""

from dataclasses import dataclass

import polars as pl

from ..blocks import Link
from ..figures.html.tinted_text import OPEN, WeightBand, token_text
from ..presentation.theme import THEMES, ThemeName
from .turn_heads import heads_from, turn_heads
from .view import View


@dataclass(frozen=True)
class SequenceKey:
    """A sequence of a run, as the cache key of its text and its strip."""

    view: View
    step: int
    sequence_id: str
    minibatch: int | None

    @property
    def tokens(self) -> pl.DataFrame:
        return self.view.tokens(self.step, self.sequence_id, self.minibatch)


@dataclass(frozen=True)
class Tint:
    """The look of a text."""

    by: str = "log_ratio"
    """A name of token_values.VALUES."""
    band: WeightBand = OPEN
    at: int | None = None
    """The position of the token that is marked."""


def tinted(
    chosen: SequenceKey, gap: str, tint: Tint, first: int, most: int, faint: int | None, theme: ThemeName
) -> str:
    """The text of at most so many tokens from position `first` on.

    faint: tokens before this position stand back, and a legend and a style are elsewhere; None for a text by itself.
    """
    heads, alone = heads_from(chosen.view.figure(_heads, chosen, gap), first), faint is None
    return token_text(
        chosen.tokens.slice(first, most), gap, theme=THEMES[theme], legend=alone, styled=alone, by=tint.by, band=tint.band,
        at=tint.at, heads=heads, faint=faint or 0,
    )  # fmt: skip


def to_token(row: int | None) -> Link:
    """The same page with this token chosen."""
    return Link("", {"at": row})


def _heads(chosen: SequenceKey, gap: str) -> dict[int, str]:
    return turn_heads(chosen.tokens, gap)
