"""Rows of the Record from tinker's Datums, on the host; what is known of each beside its lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sampled_spans import sampled_span

Datum = Any
Group = Any
"""A TrajectoryGroup. `Any`, because tinker-cookbook is no dependency."""


@dataclass(frozen=True)
class Source:
    """Where a datum comes from: its group, numbered within the iteration, and the trajectory in it."""

    group: Group
    group_index: int
    trajectory_index: int


@dataclass(frozen=True)
class Tokens:
    """A datum from its first sampled token to its last."""

    span: slice
    sampled: NDArray[np.bool_]
    in_loss: NDArray[np.bool_]
    turns: NDArray[np.int16]


def datum_rows(
    step: int,
    trained: Iterable[tuple[Datum, Any, Source | None]],
    version_of: Callable[[Source | None], int | None],
) -> Iterator[dict[str, Any]]:
    """Arguments of `Collector.log`, one dict per datum with a sampled token; `index` is its place in the iteration.

    trained: a datum, its current log-probs and its source. version_of: the weights that sampled a source.
    """
    turns_before: Counter[tuple[int, int]] = Counter()
    data_before: Counter[tuple[int, int]] = Counter()
    for index, (datum, current, source) in enumerate(trained):
        inputs = datum.loss_fn_inputs
        rollout = inputs["logprobs"].to_numpy()
        tokens = sampled_tokens(inputs["mask"].to_numpy() > 0, rollout)
        of = (-1, index) if source is None else (source.group_index, source.trajectory_index)
        if tokens is not None:
            yield {
                "index": index,
                "sequence_ids": f"{step}-{of[0]}-{of[1]}-{data_before[of]}",
                "rollout_logprobs": rollout[tokens.span],
                "current_logprobs": current[tokens.span],
                "mask": tokens.sampled,
                "loss_mask": tokens.in_loss,
                "token_ids": inputs["target_tokens"].to_numpy()[tokens.span],
                "advantages": inputs["advantages"].to_numpy()[tokens.span],
                "turns": tokens.turns + turns_before[of],
                "trainer_version": step,
                "rollout_versions": version_of(source),
                **_facts(step, source),
            }
            turns_before[of] += int(tokens.turns[-1]) + 1
        data_before[of] += 1


def sampled_tokens(trained: NDArray[np.bool_], rollout: NDArray[Any]) -> Tokens | None:
    """What was sampled of a datum, from its mask and log-probs; None if nothing was. Turns are told from the gaps."""
    sampled = trained | (rollout != 0)
    span = sampled_span(sampled)
    if span is None:
        return None
    within = slice(*span)
    sampled = sampled[within]
    begins = sampled & ~np.concatenate(([False], sampled[:-1]))
    return Tokens(within, sampled, trained[within], (np.cumsum(begins) - 1).astype(np.int16))


def _facts(step: int, source: Source | None) -> dict[str, Any]:
    if source is None:
        return {}
    return {
        "group_ids": f"{step}-{source.group_index}",
        "rewards": float(source.group.get_total_rewards()[source.trajectory_index]),
        "finish_reasons": getattr(source.group.trajectories_G[source.trajectory_index], "stop_reason", None),
    }
