"""Rows of what a loss closure of the Fireworks cookbook sees: lists in target-token coordinates, cut to the response.

A datum predicts tokens[1:] from tokens[:-1], and all its lists are of target tokens, so the response begins at
`max(0, prompt_len - 1)`. Log-probs that came without the prompt and those echoed with it look alike here: the cookbook has
put zeros before the former. A list that ends early is filled up with NaN, where the cookbook's losses would read 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Datum = Any
"""A tinker.Datum."""
Tensor = Any
"""A torch.Tensor."""
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Given:
    """The arguments that a loss closure was made of. old: None where the loss takes current's place for it."""

    advantages: Sequence[Any]
    prompt_lens: int | Sequence[int]
    rollout: Sequence[Sequence[float | None]]
    old: Sequence[Sequence[float]] | None
    reference: Sequence[Sequence[float]]
    raw: Sequence[Sequence[float | None]]

    @cached_property
    def is_anchored_at_rollout(self) -> bool:
        """Whether rollout stands in for old: the same lists, or lists of the same numbers."""
        if self.old is None or len(self.old) != len(self.rollout):
            return False
        return all(
            old is rollout or (isinstance(old, list) and old == rollout)
            for old, rollout in zip(self.old, self.rollout, strict=True)
        )

    @property
    def has_reference(self) -> bool:
        """Not where old's lists are passed for it, as a recipe without a reference model does."""
        return any(len(row) for row in self.reference) and self.reference is not self.old


def given(arguments: Mapping[str, Any]) -> Given:
    """From the arguments of any `make_..._loss_fn`; the losses name two of them differently."""
    prompt_lens = arguments["prompt_len"] if "prompt_len" in arguments else arguments["prompt_lens"]
    advantages = arguments["advantages"] if "advantages" in arguments else arguments["per_token_advantages"]
    return Given(
        advantages,
        prompt_lens,
        arguments["inf_logprobs"],
        arguments.get("old_policy_logprobs"),
        arguments.get("ref_logprobs") or [],
        arguments.get("raw_inf_logprobs") or [],
    )


@dataclass(frozen=True)
class Response:
    """Where one datum's response lies. tokens: how many current log-probs there are of it."""

    index: int
    start: int
    tokens: int
    active: NDArray[np.bool_]

    def of(self, row: Sequence[float | None], behind: float = np.nan) -> Floats:
        """The response's part of a list; null is NaN. behind: stands for what the list lacks."""
        found = np.asarray(row[self.start : self.start + self.tokens], np.float32)
        return np.concatenate((found, np.full(self.tokens - len(found), behind, np.float32)))


def responses(closure: Given, data: Sequence[Datum], logprobs: Sequence[Tensor]) -> list[Response]:
    """The datums that the loss reads: those with an active token."""
    lens = closure.prompt_lens
    found = []
    for index, current in enumerate(logprobs):
        start = max(0, (lens if isinstance(lens, int) else lens[index]) - 1)
        tokens = max(0, len(current) - start)
        active = _active(data[index], start, tokens)
        if active.any():
            found.append(Response(index, start, tokens, active))
    return found


def columns(
    closure: Given, rows: Sequence[Response], data: Sequence[Datum], logprobs: Sequence[Tensor]
) -> dict[str, Any]:
    """Per-token arguments of `Collector.log`, a list or array per row."""
    found: dict[str, Any] = {
        "rollout_logprobs": [row.of(closure.rollout[row.index]) for row in rows],
        "current_logprobs": [logprobs[row.index].detach()[row.start :] for row in rows],
        "mask": [row.active for row in rows],
        "loss_mask": [row.active for row in rows],
        "token_ids": [_values(data[row.index], "target_tokens")[row.start : row.start + row.tokens] for row in rows],
        "advantages": _advantages(closure, rows),
    }
    if closure.old is not None and not closure.is_anchored_at_rollout:
        found["old_logprobs"] = [row.of(closure.old[row.index]) for row in rows]
    if closure.has_reference:
        references = [closure.reference[row.index] if row.index < len(closure.reference) else [] for row in rows]
        found["reference_logprobs"] = [
            row.of(part) if len(part) else None for row, part in zip(rows, references, strict=True)
        ]
    return found


def raw_logprobs(closure: Given, row: Response) -> list[float | None] | None:
    """The sampler's log-probs before temperature and masks, None where it sent none."""
    found = closure.raw[row.index] if row.index < len(closure.raw) else []
    return list(found[row.start : row.start + row.tokens]) if len(found) else None


def is_short(closure: Given, rows: Sequence[Response]) -> bool:
    """Whether a list of old log-probs ends before its response does."""
    old = closure.old
    return old is not None and any(len(old[row.index]) < row.start + row.tokens for row in rows)


def _advantages(closure: Given, rows: Sequence[Response]) -> list[Any]:
    found = [closure.advantages[row.index] for row in rows]
    if not isinstance(found[0], (list, tuple, np.ndarray)):
        return [float(advantage) for advantage in found]
    return [
        np.nan_to_num(row.of(part)) for row, part in zip(rows, found, strict=True)
    ]  # the loss reads 0 behind the end


def _active(datum: Datum, start: int, tokens: int) -> NDArray[np.bool_]:
    name = next((name for name in ("weights", "loss_mask") if datum.loss_fn_inputs.get(name) is not None), None)
    if name is None:
        return np.ones(tokens, bool)
    found = np.asarray(_values(datum, name)[start : start + tokens], np.float64) > 0.5
    return np.concatenate((found, np.zeros(tokens - len(found), bool)))


def _values(datum: Datum, name: str) -> NDArray[Any]:
    return np.asarray(datum.loss_fn_inputs[name].data)
