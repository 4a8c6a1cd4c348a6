"""The texts of token ids, from token rows that hold both, so that a list of ids can be read."""

from collections.abc import Collection

import polars as pl

from ..run import Run

MOST_STEPS = 12
"""Steps that are searched, from the newest back. An id that occurs in none of them has no text."""


def token_names(run: Run, ids: Collection[int], most_steps: int = MOST_STEPS) -> dict[int, str]:
    """id -> its most frequent text. Reads token rows of the newest steps until every id has one."""
    texts = dict[int, str]()
    if "token_texts" not in run.columns:
        return texts
    for step in run.steps[: -most_steps - 1 : -1]:
        missing = set(ids) - set(texts)
        if not missing:
            break
        rows = run.tokens([step], ("token_id", "token_text")).filter(pl.col("token_id").is_in(list(missing)))
        counts = rows.drop_nulls().collect().group_by("token_id", "token_text").len()
        texts |= dict(counts.sort("len", "token_text").select("token_id", "token_text").rows())
    return texts
