"""The text of token ids, as far as token rows hold both: what a list of ids says to a reader."""

from collections.abc import Collection

import polars as pl

from ..run import Run

MOST_STEPS = 12
"""Steps that are looked through, from the newest back; an id that occurs in none of them stays a number."""


def token_names(run: Run, ids: Collection[int], most_steps: int = MOST_STEPS) -> dict[int, str]:
    """id -> the text it most often has. Reads token rows of the newest steps until every id is found."""
    wanted, found = set(ids), dict[int, str]()
    if "token_texts" not in run.columns:
        return found
    for step in run.steps[: -most_steps - 1 : -1]:
        missing = wanted - set(found)
        if not missing:
            break
        rows = run.tokens([step], ("token_id", "token_text")).filter(pl.col("token_id").is_in(list(missing)))
        counts = rows.drop_nulls().collect().group_by("token_id", "token_text").len()
        found |= dict(counts.sort("len", "token_text").select("token_id", "token_text").rows())
    return found
