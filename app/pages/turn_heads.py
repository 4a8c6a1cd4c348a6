"""The head of each turn of a response: who wrote it, and how large the gap of its sampled tokens is."""

from collections.abc import Mapping
from itertools import pairwise

import polars as pl

from ratioscope.ingest.analysis.part_rows import LARGEST, part_metrics
from ratioscope.metrics.analysis.slice_parts import size_metric

from ..figures.html.tinted_text import borders
from ..presentation.digits import count, digits
from ..presentation.metric_places import title_of
from ..presentation.value_text import value_words


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
