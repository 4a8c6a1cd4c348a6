"""The tinted text of a sequence of a run, whole or in part, and the head of each of its turns."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import polars as pl

from ratioscope.ingest.analysis.part_rows import LARGEST, part_metrics
from ratioscope.metrics.analysis.slice_parts import size_metric

from ..blocks import Link
from ..figures.html.tinted_text import OPEN, WeightBand, borders, token_text
from ..presentation.digits import count, digits
from ..presentation.metric_places import title_of
from ..presentation.theme import THEMES, ThemeName
from ..presentation.value_text import value_words
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


def turn_heads(tokens: pl.DataFrame, gap: str) -> dict[int, str]:
    """Row -> the head of the part that begins there. Empty for a response of one turn. tokens: all tokens of a sequence."""
    begins = borders(tokens)
    size, starts = f"{gap}/{size_metric(gap)}", [*begins]
    measured = {row["part"]: row for row in part_metrics(tokens, starts, gap).iter_rows(named=True)} if begins else {}
    heads = {}
    for part, (first, after) in enumerate(pairwise([*starts, len(tokens)])):
        facts = [begins[first], count(after - first, "token")]
        row = measured.get(part, {})
        if row.get(size) is not None:
            facts.append(
                f"{title_of(size_metric(gap))} {value_words(size_metric(gap), row[size], row.get(f'{size}_se'))}"
            )
            facts.append(f"largest |log-ratio| {digits(row[f'{gap}/{LARGEST}'])}")
        heads[first] = " · ".join(facts)
    return heads


def heads_from(heads: Mapping[int, str], first: int) -> dict[int, str]:
    """The heads in a text that begins at row `first`, at its top that of the part which goes on there."""
    before = [start for start in heads if start < first]
    going_on = {0: f"{heads[max(before)]} (begins at token {max(before):,})"} if before and first not in heads else {}
    return going_on | {start - first: words for start, words in heads.items() if start >= first}
