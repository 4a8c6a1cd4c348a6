"""The worst sequences of a run on one gap, with their tokens: the ones that a person should read first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ratioscope.ingest.analysis.run_comparison import asked_gap
from ratioscope.ingest.rows.windows import Span
from ratioscope.ingest.run import Run

from ..presentation.digits import count, digits
from ..presentation.metric_places import SPOKEN, sequence_measures_at

WORST = 10
TOKENS_SHOWN = 600
LONGEST_TEXT = 200
FACTS = ("group_id", "reward", "advantage", "finish_reason", "replica", "lag")
TEXTS = ("token_text", "prompt_text", "token_id", "sampled_id")
"""Columns that are texts, or that a tokenizer turns into texts."""

NAMES = {**SPOKEN, "group_id": "group", "finish_reason": "finished by"}


@dataclass(frozen=True)
class WorstSequence:
    """One of the worst sequences."""

    step: int
    minibatch: int | None
    sequence_id: str
    facts: dict[str, Any]
    """Measures of the sequence on the gap, and its recorded columns."""
    prompt: str | None
    length: int
    """Number of tokens of the sequence."""
    tokens: pl.DataFrame
    """One row per token as from Run.sequence, at most TOKENS_SHOWN: those around the one with the largest |x|."""
    worst: int
    """Position of that token."""


def worst_sequences(
    run: Run, steps: pl.DataFrame, gap: str, *, text: bool, most: int = WORST
) -> tuple[WorstSequence, ...]:
    """The sequences with the largest |x|, worst first, among the token rows on record. One whose |x| is 0 is none of them.

    Only the `most` steps with rows and the largest |x| are read: a sequence of any other step has that many worse than itself.
    """
    column = f"{gap}/{sequence_measures_at('report')[0]}"
    if column not in steps.columns:
        return ()
    with_rows = steps.filter(pl.col(column).is_not_null(), pl.col("step").is_in(run.steps_with_rows))
    worst_steps = with_rows.sort(column, "step", descending=[True, False])["step"]
    frames = [run.sequences(step=step, gap=asked_gap(gap)) for step in worst_steps.head(most)]
    known = [frame for frame in frames if column in frame.columns and len(frame)]
    if not known:
        return ()
    order = [column, "step", "sequence_id"]
    ranked = pl.concat(known, how="diagonal_relaxed").drop_nulls(column).sort(order, descending=[True, False, False])
    rows = (
        ranked.filter(pl.col(column) != 0)
        .unique("sequence_id", keep="first", maintain_order=True)
        .head(most)
        .to_dicts()
    )
    tokens = _tokens(run, rows, gap)
    return tuple(_sequence(row, shown, gap, text) for row, shown in zip(rows, tokens, strict=True))


def _tokens(run: Run, rows: Sequence[dict[str, Any]], gap: str) -> list[pl.DataFrame]:
    """The shown tokens of each of these sequences. The rows of a step are read once, and not all tokens of a long sequence."""
    frames: dict[int, pl.DataFrame] = {}
    for step in dict.fromkeys(row["step"] for row in rows):
        own = [at for at, row in enumerate(rows) if row["step"] == step]
        frames |= dict(zip(own, run.spans(step, [_shown(rows[at], gap) for at in own]), strict=True))
    return [frames[at] for at in range(len(rows))]


def _worst_at(row: dict[str, Any], gap: str) -> int:
    return row.get(f"{gap}/worst_position") or 0


def _shown(row: dict[str, Any], gap: str) -> Span:
    first = max(0, min(_worst_at(row, gap) - TOKENS_SHOWN // 2, row["length"] - TOKENS_SHOWN))
    return Span(row["sequence_id"], row.get("minibatch"), first, TOKENS_SHOWN)


def _sequence(row: dict[str, Any], shown: pl.DataFrame, gap: str, text: bool) -> WorstSequence:
    if not text:
        shown = shown.drop(name for name in TEXTS if name in shown.columns)
    elif "token_text" in shown.columns:
        shown = shown.with_columns(pl.col("token_text").str.head(LONGEST_TEXT))
    names = sequence_measures_at("report")
    measured = {name: row[f"{gap}/{name}"] for name in names if row.get(f"{gap}/{name}") is not None}
    facts = {name: row[name] for name in FACTS if row.get(name) is not None}
    prompt = row.get("prompt_text") if text else None
    return WorstSequence(
        row["step"], row.get("minibatch"), row["sequence_id"], measured | facts, prompt, row["length"], shown,
        _worst_at(row, gap),
    )  # fmt: skip


def plain_worst(item: WorstSequence) -> dict[str, Any]:
    """The sequence for JSON, with a row per token."""
    return vars(item) | {"tokens": item.tokens.to_dicts()}


def sequence_facts(item: WorstSequence) -> str:
    """One line with the place of the sequence and the size of its gap."""
    update = "" if item.minibatch is None else f", minibatch {item.minibatch}"
    facts = facts_in_words(item, item.facts)
    return " · ".join((f"step {item.step}{update}", count(item.length, "token"), facts, *_window(item)))


def facts_in_words(item: WorstSequence, names: Iterable[str]) -> str:
    """Those facts of the sequence that are known, with their names."""
    known = ((name, item.facts[name]) for name in names if name in item.facts)
    return " · ".join(f"{NAMES.get(name, name.replace('_', ' '))} {_fact(value)}" for name, value in known)


def _window(item: WorstSequence) -> tuple[str, ...]:
    """The positions that are shown, in words, where these are not all."""
    if len(item.tokens) in (0, item.length):
        return ()
    return (f"shown: positions {item.tokens['position'][0]:,} to {item.tokens['position'][-1]:,}",)


def text_of(item: WorstSequence) -> str:
    """The text of the tokens shown; empty where none was recorded or texts were left out."""
    texts = item.tokens["token_text"].to_list() if "token_text" in item.tokens.columns else []
    return "".join(text for text in texts if text is not None)


def worst_tokens(item: WorstSequence, gap: str, most: int) -> list[str]:
    """The shown tokens with the largest |x|: text or id, position, x."""
    known = item.tokens.filter(pl.col(gap).is_finite(), pl.col("mask").fill_null(True))
    ranked = known.sort(pl.col(gap).abs(), "position", descending=[True, False]).head(most)
    return [f"{_name(row)} at {row['position']}: {digits(row[gap])}" for row in ranked.iter_rows(named=True)]


def _name(row: dict[str, Any]) -> str:
    text, token = row.get("token_text"), row.get("token_id")
    return f"'{text}'" if text is not None else "token" if token is None else f"id {token}"


def _fact(value: object) -> str:
    return digits(value) if isinstance(value, float) else str(value)
