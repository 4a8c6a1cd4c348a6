"""Rows of the Record from a loss closure of the Fireworks cookbook: its lists, cut to the response.

A datum predicts tokens[1:] from tokens[:-1]. All its lists have one value per target token, so the response begins at
`max(0, prompt_len - 1)`. That is so with and without prompt log-probs, because the cookbook fills in zeros for missing ones. The
end of a list that is too short is filled with NaN; the cookbook's losses would read 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ratioscope.arrays import Array, Booleans, Singles

from ...foreign import Tensor
from ..tinker_cookbook.rows import prompt_of

Datum = Any
"""A tinker.Datum."""


@dataclass(frozen=True)
class Given:
    """The arguments of the factory that made a loss closure; a list has one item per datum."""

    advantages: Sequence[Any]
    prompt_lens: int | Sequence[int]
    """Tokens of each prompt; one number if all have as many."""
    rollout: Sequence[Sequence[float | None]]
    old: Sequence[Sequence[float]] | None
    """None if the loss uses current as old."""
    reference: Sequence[Sequence[float]]
    """Empty without a reference model."""
    raw: Sequence[Sequence[float | None]]
    """The sampler's log-probs before temperature and masks; empty if the sampler sent none."""
    heads: Sequence[Sequence[Sequence[float]]] | None = None
    """The sampler's log-probs at its likeliest tokens, (T, k) per datum; None without score centering, the only loss with any."""

    @cached_property
    def is_anchored_at_rollout(self) -> bool:
        """Whether rollout is used as old: the same lists, or lists of the same numbers."""
        if self.old is None or len(self.old) != len(self.rollout):
            return False
        return all(
            old is rollout or (isinstance(old, list) and old == rollout)
            for old, rollout in zip(self.old, self.rollout, strict=True)
        )

    @property
    def has_reference(self) -> bool:
        """Whether there are reference log-probs. A recipe without a reference model passes old's lists; they do not count."""
        return any(len(row) for row in self.reference) and self.reference is not self.old


def given(arguments: Mapping[str, Any]) -> Given:
    """The arguments of any `make_..._loss_fn`. The losses have two names for two of the arguments."""
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
    """The place of one datum's response in the datum's lists."""

    index: int
    """The datum's place in the call's data."""
    start: int
    """The first target token of the response."""
    tokens: int
    """The number of its current log-probs."""
    active: Booleans
    """Whether each token is in the loss."""

    def of(self, row: Sequence[float | None], behind: float = np.nan) -> Singles:
        """The response's part of a list; None becomes NaN. behind: the value for tokens behind the end of the list."""
        part = np.asarray(row[self.start : self.start + self.tokens], np.float32)
        return np.concatenate((part, np.full(self.tokens - len(part), behind, np.float32)))


def responses(closure: Given, data: Sequence[Datum], logprobs: Sequence[Tensor]) -> list[Response]:
    """The datums that the loss reads: those with an active token."""
    lens = closure.prompt_lens
    rows = []
    for index, current in enumerate(logprobs):
        start = max(0, (lens if isinstance(lens, int) else lens[index]) - 1)
        tokens = max(0, len(current) - start)
        active = _active(data[index], start, tokens)
        if active.any():
            rows.append(Response(index, start, tokens, active))
    return rows


def columns(
    closure: Given, rows: Sequence[Response], data: Sequence[Datum], logprobs: Sequence[Tensor]
) -> dict[str, Any]:
    """Per-token arguments of `Collector.log`, a list or array per row."""
    named: dict[str, Any] = {
        "rollout_logprobs": [row.of(closure.rollout[row.index]) for row in rows],
        "current_logprobs": [logprobs[row.index].detach()[row.start :] for row in rows],
        "mask": [row.active for row in rows],
        "loss_mask": [row.active for row in rows],
        "token_ids": [_values(data[row.index], "target_tokens")[row.start : row.start + row.tokens] for row in rows],
        "prompt_ids": [prompt_of(data[row.index], row.start) for row in rows],
        "advantages": _advantages(closure, rows),
    }
    if closure.old is not None and not closure.is_anchored_at_rollout:
        named["old_logprobs"] = [row.of(closure.old[row.index]) for row in rows]
    if closure.has_reference:
        references = [closure.reference[row.index] if row.index < len(closure.reference) else [] for row in rows]
        named["reference_logprobs"] = [
            row.of(part) if len(part) else None for row, part in zip(rows, references, strict=True)
        ]
    return named


def raw_logprobs(closure: Given, row: Response) -> list[float | None] | None:
    """The sampler's log-probs before temperature and masks; None if the sampler sent none."""
    logprobs = closure.raw[row.index] if row.index < len(closure.raw) else []
    return list(logprobs[row.start : row.start + row.tokens]) if len(logprobs) else None


def is_short(closure: Given, rows: Sequence[Response]) -> bool:
    """Whether any list of old log-probs ends before its response does."""
    old = closure.old
    return old is not None and any(len(old[row.index]) < row.start + row.tokens for row in rows)


def _advantages(closure: Given, rows: Sequence[Response]) -> list[Any]:
    advantages = [closure.advantages[row.index] for row in rows]
    if not isinstance(advantages[0], (list, tuple, np.ndarray)):
        return [float(advantage) for advantage in advantages]
    # the loss reads 0 behind the end
    return [np.nan_to_num(row.of(part)) for row, part in zip(rows, advantages, strict=True)]


def _active(datum: Datum, start: int, tokens: int) -> Booleans:
    name = next((name for name in ("weights", "loss_mask") if datum.loss_fn_inputs.get(name) is not None), None)
    if name is None:
        return np.ones(tokens, bool)
    weights = np.asarray(_values(datum, name)[start : start + tokens], np.float64) > 0.5
    return np.concatenate((weights, np.zeros(tokens - len(weights), bool)))


def table(datum: Datum, values: Any) -> Any:
    """Values of a datum as (T, 1 + k): the sampled token of each place, then the others, which score centering alone adds."""
    return values.reshape(datum.loss_fn_inputs["target_tokens"].shape[0], -1)


def sampled(datum: Datum, values: Any) -> Any:
    """The values of the sampled tokens, (T,)."""
    shape = datum.loss_fn_inputs["target_tokens"].shape
    return values if shape is None or len(shape) < 2 else table(datum, values)[:, 0]


def _values(datum: Datum, name: str) -> Array:
    return np.asarray(sampled(datum, np.asarray(datum.loss_fn_inputs[name].data)))
