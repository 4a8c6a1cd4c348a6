"""Facts of AsyncGRPOTrainer's samples in two tensors with a row per rank, which the trainer dispatches with its own batch.

    ratioscope_facts     (ranks, samples, FIELDS) float64, NaN in place of missing samples
    ratioscope_tokens    (ranks, tokens) int64, the responses one after the other: token id + turn * 2**32 for a trained token,
                         -1 minus this number for any other

A response begins with the first trained token and ends with the last. The loss has values of trained tokens only; `spread` puts
them at their places in the response. A rank thus needs only its own row, and the recorder sends no message of its own.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Integers

from ...foreign import Tensor
from .rows import prompt_text

FACTS, TOKENS = "ratioscope_facts", "ratioscope_tokens"
FIELDS = ("number", "group", "model_version", "rollout_version", "reward", "advantage", "stop", "tokens", "trained")
_TURN = 32
"""Bits of a token id."""


@dataclass(frozen=True)
class Sample:
    """One sample of the queue."""

    number: int
    """Its number within the run."""
    facts: tuple[float, ...]
    """In the order of FIELDS."""
    tokens: Integers
    """The tokens of the response, coded as in `ratioscope_tokens`."""
    prompt: str | None
    prompt_ids: Integers
    """The tokens in front of the response."""
    rewards: Mapping[str, float]
    """Reward function -> reward."""


@dataclass(frozen=True)
class RankSamples:
    """A rank's row: a list has one value per sequence, a tensor one per token of all responses, on the batch's device."""

    numbers: list[int]
    """The number of each sample within the run."""
    sequence_ids: list[str]
    groups: list[str]
    """The id of the prompt that samples share."""
    model_versions: list[int]
    """TRL's version of the weights that sampled each."""
    rollout_versions: list[int | None]
    rewards: list[float | None]
    advantages: list[float | None]
    finish_reasons: list[str | None]
    lengths: list[int]
    trained: Tensor
    """True at the tokens that the loss has."""
    token_ids: Tensor
    turns: Tensor

    def spread(self, values: Tensor) -> Tensor:
        """Values of the trained tokens at their places; 0 at the other tokens."""
        return values.new_zeros(len(self.trained)).masked_scatter(self.trained, values)


def sample_of(sample: Any, number: int, updates: int | None, ends: Sequence[int]) -> Sample:
    """The Sample of a RolloutSample. updates: the version of its weights; None if not known. ends: end-of-sequence tokens."""
    trained = np.asarray(sample.completion_mask).astype(bool)
    trained[0] = False  # no position predicts the first token, so TRL leaves it out of the loss
    places = np.flatnonzero(trained)
    response = slice(places[0], places[-1] + 1) if len(places) else slice(0)
    every = np.asarray(sample.input_ids).astype(np.int64)
    ids, trained = every[response], trained[response]
    begins = trained & ~np.concatenate(([False], trained[:-1]))
    coded = ids + (np.maximum(np.cumsum(begins) - 1, 0) << _TURN)
    facts = (
        number, int(sample.group_id), sample.model_version, math.nan if updates is None else updates,
        sample.metrics.get("reward", math.nan), sample.advantage, float(len(ids) > 0 and int(ids[-1]) in ends),
        len(ids), trained.sum(),
    )  # fmt: skip
    parts = {name.removeprefix("rewards/"): v for name, v in sample.metrics.items() if name.startswith("rewards/")}
    before = every[: places[0]] if len(places) else every
    coded = np.where(trained, coded, -1 - coded)
    return Sample(number, tuple(map(float, facts)), coded, prompt_text(sample.prompt), before, parts)


def sample_tensors(rows: Sequence[Sequence[Sample]]) -> dict[str, Tensor]:
    """The two tensors, by their names. rows: the samples of each rank."""
    facts = np.full((len(rows), max(map(len, rows)), len(FIELDS)), np.nan)
    tokens = np.zeros((len(rows), max(sum(len(sample.tokens) for sample in row) for row in rows)), np.int64)
    for index, row in enumerate(rows):
        flat = np.concatenate([np.zeros(0, np.int64), *(sample.tokens for sample in row)])
        facts[index, : len(row)] = [sample.facts for sample in row]
        tokens[index, : len(flat)] = flat
    from_numpy = sys.modules["torch"].from_numpy
    return {FACTS: from_numpy(facts), TOKENS: from_numpy(tokens)}


def rank_samples(facts: Tensor, tokens: Tensor, trained: int) -> RankSamples:
    """One rank's row from tensors of shapes (1, samples, FIELDS) and (1, tokens).

    trained: number of tokens in the rank's loss. ValueError if the row has another number.
    """
    (row,) = facts.tolist()
    column = dict(zip(FIELDS, zip(*(fact for fact in row if not math.isnan(fact[0])), strict=True), strict=True))
    if sum(column["trained"]) != trained:
        raise ValueError(f"the loss has {trained} tokens, the packed row has {sum(column['trained']):.0f}")
    lengths = [int(length) for length in column["tokens"]]
    coded = tokens[0, : sum(lengths)]
    is_trained = coded >= 0
    coded = coded.where(is_trained, -1 - coded)
    return RankSamples(
        numbers=[int(number) for number in column["number"]],
        sequence_ids=[
            f"{group:.0f}-{number:.0f}" for group, number in zip(column["group"], column["number"], strict=True)
        ],
        groups=[f"{group:.0f}" for group in column["group"]],
        model_versions=[int(version) for version in column["model_version"]],
        rollout_versions=[None if math.isnan(version) else int(version) for version in column["rollout_version"]],
        rewards=[None if math.isnan(reward) else reward for reward in column["reward"]],
        advantages=list(column["advantage"]),
        finish_reasons=["stop" if stop else "length" for stop in column["stop"]],
        lengths=lengths,
        trained=is_trained,
        token_ids=coded & ((1 << _TURN) - 1),
        turns=coded >> _TURN,
    )
