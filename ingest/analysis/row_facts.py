"""Recorded facts of the sequences right before and after a step, compared: reward, lag, cached prompts, waiting times."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ratioscope.arrays import Floats

from ..run import Run
from .step_rows import columns_of

SIDE = 3
"""Steps with token rows that are read on each side."""
NEAR = 20
"""Recorded steps from the onset beyond which rows are not read."""
FEW = 8
"""The least number of sequences on a side."""
CLEAR = 5.0
"""Standard errors from which on a fact has changed, with the sequence as the unit. A dozen facts are compared."""
LEAST = 0.05
"""The smallest relative change that is reported."""


@dataclass(frozen=True)
class RowFact:
    """A number of each sequence."""

    words: str
    columns: tuple[str, ...]
    """Columns of the Record that it is made of."""
    value: pl.Expr
    """The number, from those columns."""


def _plain(words: str, column: str) -> RowFact:
    return RowFact(words, (column,), pl.col(column).cast(pl.Float64))


def _mean(words: str, column: str) -> RowFact:
    return RowFact(words, (column,), pl.col(column).list.mean().cast(pl.Float64))


FACTS = (
    RowFact("the mean version lag (updates)", ("trainer_version", "rollout_version_min"),
            (pl.col("trainer_version") - pl.col("rollout_version_min")).cast(pl.Float64)),
    _mean("the recorded entropy (nats)", "entropy"),
    RowFact("the share of prompt tokens from a prefix cache", ("cached_tokens", "prompt_tokens"),
            pl.col("cached_tokens") / pl.col("prompt_tokens")),
    _plain("the share of sequences with router replay", "replayed"),
    _mean("the agreement of routers", "router_agreement"),
    _plain("the number of media per prompt", "media"),
    _mean("the share of tokens left in the loss", "loss_mask"),
    RowFact("the share of responses that end at the length limit", ("finish_reason",),
            (pl.col("finish_reason") == "length").cast(pl.Float64)),
    _plain("the mean reward", "reward"),
    _plain("the waiting time in the engine's queue (s)", "queue_seconds"),
    _plain("the time of generation (s)", "generation_seconds"),
)  # fmt: skip
"""Facts that are compared. The mix of probabilities, lengths, turns and replicas are compared in statistics."""


def row_facts(run: Run, onset: int, with_rows: Sequence[int]) -> Iterator[str]:
    """Each fact that differs between the sequences before the onset and from it on, in words.

    with_rows: the steps with token rows, ascending.
    """
    steps = run.steps
    at = int(np.searchsorted(steps, onset))
    low, high = steps[max(at - NEAR, 0)], steps[min(at + NEAR, len(steps)) - 1]
    before = [step for step in with_rows if low <= step < onset][-SIDE:]
    after = [step for step in with_rows if onset <= step <= high][:SIDE]
    if before and after:
        old, new = (_sequences(run, side) for side in (before, after))
        for fact, was, now in zip(FACTS, old, new, strict=True):
            if words := _change(was, now):
                yield f"{fact.words} went from {words}"


def _sequences(run: Run, steps: Sequence[int]) -> list[Floats]:
    """The known values of each fact at these steps."""
    columns = tuple(dict.fromkeys(column for fact in FACTS for column in fact.columns))
    frames = [pl.DataFrame(columns_of(run, step, columns)).select(columns) for step in steps]
    rows = pl.concat(frames, how="diagonal_relaxed")
    values = rows.select(fact.value.alias(str(at)) for at, fact in enumerate(FACTS))
    return [column.filter(column.is_finite().fill_null(False)).to_numpy() for column in values]


def _change(was: Floats, now: Floats) -> str:
    """`0.1 to 0.4` if the means differ clearly, else nothing."""
    if min(len(was), len(now)) < FEW:
        return ""
    low, high = float(was.mean()), float(now.mean())
    error = float(np.hypot(was.std(ddof=1) / np.sqrt(len(was)), now.std(ddof=1) / np.sqrt(len(now))))
    clear = abs(high - low) > max(CLEAR * error, LEAST * max(abs(low), abs(high)))
    return f"{low:.3g} to {high:.3g}" if clear else ""
