"""The sequences of a step whose prompt or response contains a text, with the words around the first place of each.

Expressions are of Rust's crate `regex`, whose time grows with the length of the text times that of the expression, never faster.
"""

import re
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from polars.exceptions import ComputeError

from ratioscope.errors import ConfigError
from ratioscope.metrics.engines.join import joined

from ..run import Run

BEFORE, LONGEST, AFTER = 24, 60, 80
"""Characters that are shown before a hit, of it, and after it. A narrow window shows the first two."""
FACTS = ("replica", "reward")
SECONDS = 5.0
"""Time that one step may take. A slow expression is refused after it, in about three times as long at worst."""
MOST_CHARACTERS, MOST_REPEATS = 200, 100
"""Most characters of an expression, and the largest product of its numbers of repeats, nested or not. `(.{0,50}){0,50}q` takes
0.3 ms for each character that it reads; below these bounds no expression took more than 0.06 ms. A convention."""
_REPEATS = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class TextHits:
    """The sequences of some steps that contain a text."""

    sequences: int = 0
    """Number of sequences on record."""
    prompts: int = 0
    """Those with the text of their prompt on record."""
    responses: int = 0
    """Those with the text of their response on record."""
    searched: int = 0
    """Those with one of both."""
    matching: int = 0
    """Those with a hit."""
    hits: int = 0
    """Number of places, in prompts and responses."""
    too_slow: str = ""
    """The reason why a step was given up, with what was wanted; empty if none was."""
    rows: pl.DataFrame = field(default_factory=pl.DataFrame)
    """One row per sequence with a hit, as many as were asked for: step, sequence_id, hits, match (the first hit in « » with the
    text around it, in one line), at (position of its token; null in a prompt), and FACTS."""

    def __add__(self, other: "TextHits") -> "TextHits":
        return TextHits(
            self.sequences + other.sequences,
            self.prompts + other.prompts,
            self.responses + other.responses,
            self.searched + other.searched,
            self.matching + other.matching,
            self.hits + other.hits,
            self.too_slow or other.too_slow,
            pl.concat([self.rows, other.rows], how="diagonal"),
        )


def expression_of(typed: str) -> str:
    """The expression for a plain text, or for one between slashes, in any case. ConfigError where it is none.

    >>> expression_of("1+1"), expression_of(r"/(wait|hmm)\\b/")
    ('(?i)1\\\\+1', '(?i)(wait|hmm)\\\\b')
    """
    if not (len(typed) > 2 and typed[0] == typed[-1] == "/"):
        return f"(?i){pl.escape_regex(typed)}"
    expression = typed[1:-1]
    repeats = [max(int(end or 1) for end in ends) for ends in _REPEATS.findall(expression)]
    if len(typed) > MOST_CHARACTERS or np.prod(repeats, dtype=np.float64) > MOST_REPEATS:
        raise _wrong(
            expression, f"at most {MOST_CHARACTERS} characters, and {MOST_REPEATS} repeats in all, such as x{{0,100}}"
        )
    try:
        is_anywhere = pl.Series([""]).str.contains(f"(?i){expression}")[0]
    except ComputeError as error:
        reason = re.search(r"^error: (.*)", str(error), re.MULTILINE)
        raise _wrong(expression, "the syntax of Rust's regex", reason[1] if reason else "it is too large") from None
    if is_anywhere:
        raise _wrong(expression, "one that needs a character", "it fits the empty text, which is everywhere")
    return f"(?i){expression}"


def _wrong(expression: str, wanted: str, found: str = "it is too large") -> ConfigError:
    return ConfigError(f"regular expression /{expression}/: {found}; wanted {wanted}")


def text_hits(run: Run, step: int, expression: str, most: int | None = None) -> TextHits:
    """The hits at one step; `most` sequences (None: all) are rows, in the order of the record."""
    records = pl.DataFrame(joined(run.rows(step, ("prompt_text", "token_texts", *FACTS))))
    known = pl.col("token_texts").list.drop_nulls()
    response = pl.when(known.list.len() > 0).then(known.list.join("")).alias("response")
    texts = records.unique("sequence_id", keep="first", maintain_order=True).with_columns(response)
    has_prompt, has_response = (texts[name].is_not_null() for name in ("prompt_text", "response"))
    try:
        found = _found(texts, expression)
    except TimeoutError as error:
        return TextHits(too_slow=str(error))
    shown = found.head(len(found) if most is None else most)
    matches = [_match(row) for row in shown.iter_rows(named=True)]
    rows = shown.select("step", "sequence_id", "hits", *FACTS).with_columns(
        match=pl.Series([words for words, _ in matches], dtype=pl.String),
        at=pl.Series([at for _, at in matches], dtype=pl.Int64),
    )
    prompts, responses, searched = (int(has.sum()) for has in (has_prompt, has_response, has_prompt | has_response))
    return TextHits(len(texts), prompts, responses, searched, len(found), int(found["hits"].sum()), rows=rows)


def _found(texts: pl.DataFrame, expression: str) -> pl.DataFrame:
    """The rows with a hit, with the number of hits, the first one (`hit`), the text that it is in and its first byte there.

    The rows are read in pieces, each twice as long as the one before, and the time is looked at after each. TimeoutError
    with the reason if it has gone.
    """
    began, at, size, pieces = time.monotonic(), 0, 1, list[pl.DataFrame]()
    counts = (pl.col(name).str.count_matches(expression).fill_null(0) for name in ("prompt_text", "response"))
    hits = pl.sum_horizontal(*counts).cast(pl.Int64)
    in_response = pl.col("response").str.contains(expression).fill_null(False)
    while at < len(texts) or not pieces:
        if time.monotonic() - began > SECONDS:
            read = f"{at:,} of {len(texts):,} sequences of step {texts['step'][0]} were read in {SECONDS:g} seconds"
            raise TimeoutError(f"the expression is too slow: only {read}; wanted one with fewer repeats and branches")
        piece = texts[at : at + size].with_columns(hits=hits).filter(pl.col("hits") > 0)
        pieces.append(piece.with_columns(text=pl.when(in_response).then("response").otherwise("prompt_text")))
        at, size = at + size, 2 * size
    text = pl.col("text")
    return pl.concat(pieces).with_columns(begins=text.str.find(expression), hit=text.str.extract(expression, 0))


def _match(row: dict[str, Any]) -> tuple[str, int | None]:
    """The hit in one line with the text around it, and the position of the token that it begins in. Any: values of a row."""
    raw, begins = row["text"].encode(), int(row["begins"])
    ends = begins + len(row["hit"].encode())
    before = raw[max(0, begins - 4 * BEFORE) : begins].decode(errors="ignore")[-BEFORE:]
    after = raw[ends : ends + 4 * AFTER].decode(errors="ignore")[:AFTER]
    hit = row["hit"] if len(row["hit"]) <= LONGEST else f"{row['hit'][:LONGEST]}…"
    words = _SPACE.sub(" ", f"{before}«{hit}»{after}").strip()
    if row["text"] != row["response"]:
        return f"prompt: {words}", None
    bytes_of = [len((text or "").encode()) for text in row["token_texts"]]
    return words, int(np.searchsorted(np.cumsum(bytes_of), begins, side="right"))
