"""Sequences of a step side by side: the text and the facts of each, and where it parts from the first."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from ratioscope.metrics.analysis.slice_parts import size_metric

from ..blocks import Action, Beside, Block, Link, Markup, Paragraph
from ..figures.html.tinted_text import token_text
from ..presentation.digits import count, digits
from ..presentation.escape import visible
from ..presentation.metric_places import sequence_measures_at, title_of
from ..presentation.run_names import told_apart
from .sequence_text import SequenceKey, Tint, tinted, to_token
from .step_choice import known_facts

MOST = 8
"""Most sequences beside each other."""
SHOWN = 1000
"""Number of tokens whose text is shown, of all sequences together: twice that of a single text."""
BEFORE = 40
"""Number of tokens shown before the chosen one, or before the first at which the sequences part."""
FACTS = ("reward", "lag", "replica", "finish_reason")
Shown = tuple[SequenceKey, Mapping[str, Any]]
"""A sequence, and its row among those of the step. Any: the values of a row."""


def compared(sequences: Sequence[str]) -> Link:
    """The page on which these sequences stand side by side, the first ones of them."""
    first, *others = map(visible, dict.fromkeys(sequences))
    return Link("tokens", {"sequence": first, "beside": others[: MOST - 1]})


def begins_like(first: pl.DataFrame, other: pl.DataFrame) -> int | None:
    """Number of tokens with which both begin, by their ids, else by their texts; None if not all of either are on record."""
    for name in ("token_id", "token_text"):
        if all(name in frame.columns and not frame[name].null_count() for frame in (first, other)):
            least = min(len(first), len(other))
            differ = (first[name].head(least) != other[name].head(least)).arg_true()
            return int(differ[0]) if len(differ) else least
    return None


def side_by_side(shown: Sequence[Shown], gap: str, tint: Tint) -> Iterator[Block]:
    """The texts from a little before the chosen token on, else from before the first at which one parts from the first."""
    keys = [key for key, _ in shown]
    first = keys[0]
    alike = [begins_like(first.tokens, other.tokens) for other in keys[1:]]
    of_all = min((same for same in alike if same is not None), default=0)
    most = SHOWN // len(keys)
    longest = max(len(key.tokens) for key in keys)
    begin = max(0, min((of_all if tint.at is None else tint.at) - BEFORE, longest - most))
    yield Markup(lambda theme: token_text(pl.DataFrame(), gap, theme=theme, by=tint.by, band=tint.band), leads=to_token)
    columns: list[tuple[Block, ...]] = []
    names = told_apart([key.sequence_id for key in keys], 40)
    for name, (key, row), same in zip(names, shown, [None, *alike], strict=True):
        text = partial(key.view.figure, tinted, key, gap, tint, begin, most, of_all if key is first else same or 0)
        parts = [_parting(len(columns), first, key, same)] if key is not first else []
        cut = f"tokens {begin:,} to {min(begin + most, len(key.tokens)) - 1:,}" if len(key.tokens) > most else ""
        facts = " · ".join(filter(None, (*_facts(row, gap, len(key.tokens)), cut)))
        columns.append(
            (Paragraph(facts, "muted", name), *parts, Markup(lambda theme, text=text: text(theme.name), leads=to_token))
        )
    yield Beside("side_by_side", tuple(columns), narrowest=300)


def _facts(row: Mapping[str, Any], gap: str, tokens: int) -> Iterator[str]:
    yield count(tokens, "token")
    for name in (size_metric(gap), sequence_measures_at("order")[0]):
        if (value := row.get(f"{gap}/{name}")) is not None:
            yield f"{title_of(name)} {digits(value)}"
    yield from known_facts(row, FACTS, 40)


def _parting(place: int, first: SequenceKey, other: SequenceKey, same: int | None) -> Block:
    """The number of tokens with which both begin, and a link to the next one."""
    if same is None:
        lacking = "neither the ids nor the texts of all tokens of both are on record"
        return Paragraph(f"the first token that differs: not available, because {lacking}", "absent")
    here, there = len(other.tokens), len(first.tokens)
    if same == here == there:
        return Paragraph(f"the same {count(same, 'token')} as the first sequence", "muted")
    then = "they part" if same < min(here, there) else "this one ends" if here < there else "the first one ends"
    words = f"the same for {count(same, 'token')}, then {then}" if same else "they differ from the first token on"
    return Action(f"parts_{place}", f"{words} ›", to_token(min(same, there - 1)), is_plain=True)
