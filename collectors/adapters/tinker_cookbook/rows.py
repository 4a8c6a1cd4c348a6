"""Rows of the Record from tinker's Datums, on the host, with the facts of each datum. Fireworks' cookbook has the same Datums."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.arrays import Array, Booleans

from ..sampled_spans import sampled_span

Datum = Any
"""A tinker.Datum: `model_input` of chunks, text chunks with `tokens`. `Any`, because tinker is no dependency."""
Group = Any
"""A TrajectoryGroup. `Any`, because tinker-cookbook is no dependency."""


@dataclass(frozen=True)
class Source:
    """The group and the trajectory of a datum."""

    group: Group
    group_index: int
    """The group's number within the iteration."""
    trajectory_index: int
    """The trajectory's number within the group."""


@dataclass(frozen=True)
class Tokens:
    """The tokens of a datum from its first sampled token to its last; arrays have one value per such token."""

    span: slice
    """The place of these tokens in the datum's lists."""
    sampled: Booleans
    in_loss: Booleans
    """True if the token has a weight in the loss."""
    turns: NDArray[np.int16]
    """The turn of each token within the datum, from 0."""


def datum_rows(
    step: int, trained: Iterable[tuple[Datum, Any, Source | None]], version_of: Callable[[Source | None], int | None]
) -> Iterator[dict[str, Any]]:
    """Arguments of `Collector.log`, one dict per datum with a sampled token; `index` is the datum's place in the iteration.

    trained: (datum, its current log-probs, its source) of each. version_of: source -> version of the weights that sampled it.
    """
    turns_before: Counter[tuple[int, int]] = Counter()
    data_before: Counter[tuple[int, int]] = Counter()
    for index, (datum, current, source) in enumerate(trained):
        inputs = datum.loss_fn_inputs
        rollout = inputs["logprobs"].to_numpy()
        tokens = sampled_tokens(inputs["mask"].to_numpy() > 0, rollout)
        place = (-1, index) if source is None else (source.group_index, source.trajectory_index)
        if tokens is not None:
            yield {
                "index": index,
                "sequence_ids": f"{step}-{place[0]}-{place[1]}-{data_before[place]}",
                "rollout_logprobs": rollout[tokens.span],
                "current_logprobs": current[tokens.span],
                "mask": tokens.sampled,
                "loss_mask": tokens.in_loss,
                "token_ids": inputs["target_tokens"].to_numpy()[tokens.span],
                "prompt_ids": prompt_of(datum, tokens.span.start),
                "advantages": inputs["advantages"].to_numpy()[tokens.span],
                "turns": tokens.turns + turns_before[place],
                "trainer_version": step,
                "rollout_versions": version_of(source),
                **_facts(step, source),
            }
            turns_before[place] += int(tokens.turns[-1]) + 1
        data_before[place] += 1


def sampled_tokens(trained: Booleans, rollout: Array) -> Tokens | None:
    """The sampled tokens of a datum, from its mask and log-probs; None without any. A gap between them begins a new turn."""
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


def prompt_of(datum: Datum, start: int) -> list[int] | None:
    """The tokens in front of the target token `start`; None if there is an image among them, which has no token ids."""
    left, prompt = start + 1, list[int]()  # a datum predicts tokens[1:], so its target t is token t + 1
    for chunk in datum.model_input.chunks:
        if left <= 0:
            break
        if (tokens := getattr(chunk, "tokens", None)) is None:
            return None
        prompt += tokens[:left]
        left -= len(tokens)
    return prompt
