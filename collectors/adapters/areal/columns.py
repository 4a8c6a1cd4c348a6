"""The rows of an AReaL micro-batch as columns of a Record, without prompts and padding, one value per sampled token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ratioscope.arrays import Booleans, Singles

from ...foreign import Tensor
from .batch import Rows, Update

PerToken = list[Any]


def facts(update: Update, rows: Rows, kept: Sequence[Singles | None] | None) -> dict[str, Any]:
    """The columns of these rows from the batch. kept: the batch's rollout log-probs before AReaL overwrote them; None: not."""
    data, name = update.data, f"{update.before.step}-{update.data_parallel_rank}"
    masks = [update.mask[row, span] for row, span in zip(rows, _spans(update, rows), strict=True)]
    rewards, groups = update.rewards, update.groups
    rollout = from_batch(update, update.rollout, rows) if kept is None else _from_kept(update, kept, rows)
    return {
        "sequence_ids": [f"{name}-{update.before.sequences + row}" for row in rows],
        "group_ids": None if groups is None else [f"{name}-{groups[row]}" for row in rows],
        "rewards": None if rewards is None else [rewards[row] for row in rows],
        "mask": masks,
        "turns": turns(masks) if update.has_turns else None,
        "token_ids": from_batch(update, data["input_ids"], rows, shift=1),
        "prompt_ids": [data["input_ids"][row, : int(update.spans.firsts[row]) + 1] for row in rows],
        "rollout_versions": from_batch(update, data.get("versions"), rows, shift=1),
        "rollout_logprobs": rollout,
        "old_logprobs": from_batch(update, update.old, rows),
        "reference_logprobs": from_batch(update, data.get("ref_logp"), rows),
        "advantages": from_batch(update, data.get("advantages"), rows),
    }


def from_batch(update: Update, column: Tensor | None, rows: Rows, shift: int = 0) -> PerToken | None:
    """Views of a padded (B, T) column. shift: 1 for values at the token itself, 0 for values at the position before it."""
    if column is None:
        return None
    return [column[row, span] for row, span in zip(rows, _spans(update, rows, shift), strict=True)]


def from_loss(update: Update, column: Tensor, rows: Rows, width: int | None) -> PerToken:
    """Views of one of the loss's columns, which has one row after the other; only for rows with sampled tokens.

    width: the length of a padded row; None if rows are packed without padding.
    """
    sizes: list[int] = []
    for row in rows:
        first, count = int(update.spans.firsts[row]), int(update.spans.counts[row])
        whole = int(update.lengths[row]) if width is None else width
        sizes += (first, count, whole - first - count)
    views = column.detach().reshape(-1).split(sizes)[1::3]
    return [view for row, view in zip(rows, views, strict=True) if update.spans.counts[row]]


def turns(masks: Sequence[Booleans]) -> PerToken:
    """The turn of each token, from 0: a turn is a run of sampled tokens and the tokens after it."""
    return [np.cumsum(mask & ~np.concatenate(([False], mask[:-1]))) - 1 for mask in masks]


def _spans(update: Update, rows: Rows, shift: int = 0) -> list[slice]:
    firsts, counts = update.spans.firsts, update.spans.counts
    return [slice(int(firsts[row]) + shift, int(firsts[row] + counts[row]) + shift) for row in rows]


def _from_kept(update: Update, kept: Sequence[Singles | None], rows: Rows) -> PerToken | None:
    copies = [kept[row] for row in rows]
    if all(values is None for values in copies):
        return None
    spans = _spans(update, rows, shift=1)
    return [None if values is None else values[span] for values, span in zip(copies, spans, strict=True)]
