"""The health of groups and masks as counts: equal completions, equal rewards, tokens without a version, masked sequences.

A prompt group whose rewards are all equal gives no gradient in GRPO. Equal completions in a group tell of a fixed seed or of a
policy without entropy. A token without a version has no lag, which must not be read as lag 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from ..run import Run
from .step_rows import columns_of

COLUMNS = (
    "sequence_id", "group_id", "token_ids", "mask", "loss_mask", "reward", "rollout_versions", "rollout_version_min",
)  # fmt: skip
_GROUP = ("attempt", "step", "group_id")
_TEXT = pl.col("token_ids").list.eval(pl.element().cast(pl.String)).list.join(",").alias("text")


@dataclass(frozen=True)
class Count:
    """So many of so many have a property."""

    code: str
    """Its name in JSON."""
    count: int
    """Number with the property."""
    of: int
    """The number that could have it. 0 if the record lacks what the count needs."""
    words: str
    """The statement, with both numbers."""
    absent: str = ""
    """The argument of Collector.log that is missing; empty if the count could be made."""

    @property
    def is_odd(self) -> bool:
        """Whether there is anything to report."""
        return self.count > 0


@dataclass(frozen=True)
class _Sequences:
    """The sequences of all steps that were read, each once."""

    frame: pl.DataFrame

    def has(self, *columns: str) -> bool:
        return all(self.frame[name].null_count() < len(self.frame) for name in columns)


def group_facts(run: Run, steps: Sequence[int]) -> tuple[Count, ...]:
    """The counts at these steps of a run."""
    return group_facts_of([columns_of(run, step, COLUMNS) for step in steps])


def group_facts_of(parts: Sequence[pa.Table]) -> tuple[Count, ...]:
    """The counts of joined Records, one table per step. A sequence that has several minibatches is counted once."""
    frames = [pl.DataFrame(part.select(_known(part))) for part in parts]
    frame = pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()
    if frame.is_empty():
        return ()
    frame = frame.with_columns(pl.lit(None).alias(name) for name in COLUMNS if name not in frame.columns)
    rows = _Sequences(frame.unique(["attempt", "step", "sequence_id"], keep="first", maintain_order=True))
    return (
        _of_groups(rows, "equal_completions", "token_ids", _copies),
        _of_groups(rows, "groups_of_one_completion", "token_ids", _same_groups),
        _of_groups(rows, "groups_without_variance", "reward", _flat_rewards),
        _without_version(rows),
        _wholly_masked(rows),
    )


def _known(part: pa.Table) -> list[str]:
    return [name for name in ("attempt", "step", *COLUMNS) if name in part.column_names]


def _of_groups(
    rows: _Sequences, code: str, column: str, counted: Callable[[pl.DataFrame], tuple[int, int, str]]
) -> Count:
    """A count of the rows of groups that have the column. counted: (how many have the property, of how many, in words)."""
    if not rows.has("group_id", column):
        arguments = {"group_id": "group_ids", "reward": "rewards", "token_ids": "token_ids"}
        return Count(
            code, 0, 0, "", " and ".join(arguments[name] for name in ("group_id", column) if not rows.has(name))
        )
    known = rows.frame.filter(pl.col("group_id").is_not_null() & pl.col(column).is_not_null())
    count, of, words = counted(known.filter(pl.len().over(*_GROUP) > 1))
    return Count(code, count, of, f"{count:,} of {of:,} {words}")


def _copies(grouped: pl.DataFrame) -> tuple[int, int, str]:
    copies = grouped.select(pl.struct(*_GROUP, _TEXT).is_first_distinct().not_().sum()).item()
    return int(copies), len(grouped), "completions repeat another one of their group, token for token"


def _same_groups(grouped: pl.DataFrame) -> tuple[int, int, str]:
    kinds = grouped.group_by(*_GROUP).agg(_TEXT.n_unique())["text"]
    return int((kinds == 1).sum()), len(kinds), "groups hold one completion many times: a seed may be fixed"


def _flat_rewards(grouped: pl.DataFrame) -> tuple[int, int, str]:
    flat = grouped.group_by(*_GROUP).agg(flat=pl.col("reward").max() == pl.col("reward").min())["flat"]
    words = "groups have equal rewards: no gradient where advantages are relative to the group"
    return int(flat.sum()), len(flat), words


def _without_version(rows: _Sequences) -> Count:
    lists = [name for name in ("token_ids", "mask", "rollout_versions") if rows.has(name)]
    lengths = [pl.col(name).list.len() for name in lists]
    tokens = pl.max_horizontal(*lengths) if lengths else pl.lit(0)
    of_tokens = pl.col("rollout_versions")
    none = of_tokens.list.len() if rows.has("rollout_versions") else pl.lit(None)
    missing = of_tokens.list.eval(pl.element().is_null()).list.sum() if rows.has("rollout_versions") else pl.lit(None)
    own = rows.frame.select(
        tokens=tokens,
        missing=pl.when(pl.col("rollout_version_min").is_not_null()).then(0)
        .when(none > 0).then(missing).otherwise(tokens),
    )  # fmt: skip
    whole, count = int(own["tokens"].sum()), int(own["missing"].sum())
    words = (
        f"{count:,} of {whole:,} tokens have no version of the weights that sampled them: their lag is unknown, not 0"
    )
    return Count("tokens_without_version", count, whole, words)


def _wholly_masked(rows: _Sequences) -> Count:
    name = "loss_mask" if rows.has("loss_mask") else "mask"
    if not rows.has(name):
        return Count("sequences_wholly_masked", 0, 0, "", "loss_mask")
    known = rows.frame.filter(pl.col(name).is_not_null())
    count = int(known.select(pl.col(name).list.any().not_().sum()).item())
    words = (
        f"{count:,} of {len(known):,} sequences have no token left in the loss, yet count in averages over sequences"
    )
    return Count("sequences_wholly_masked", count, len(known), words)


def plain_counts(counts: Sequence[Count]) -> list[dict[str, Any]]:
    """The counts as values that JSON can hold."""
    return [asdict(each) for each in counts]
