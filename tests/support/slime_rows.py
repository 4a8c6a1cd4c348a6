"""Rows that a run of slime recorded, and what its batches held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ratioscope.metrics.engines.join import joined
from support.written_run import token_rows


def rows(run: Path) -> list[dict[str, Any]]:
    """The rows with a minibatch, completed from the facts of their sequences as readers do."""
    table = joined(token_rows(run))
    return [row for row in table.to_pylist() if row["minibatch"] is not None]


def held(trace: dict[str, Any]) -> dict[tuple[int, str], dict[str, Any]]:
    """What the trainer's batches held, by rollout and sequence id; `minibatch` is the optimizer step that trained on it."""
    found = {}
    for rollout, data in enumerate(trace["rollout_data"]):
        indices = [int(index) for index in data["sample_indices"]]
        for row, index in enumerate(indices):
            place = len(indices) - 1 - row  # the stand-in sends samples in reverse
            one = {name: data[name][row] for name in data if len(data[name]) == len(indices)}
            steps = trace["config"]["num_steps_per_rollout"]
            one |= {"minibatch": row * steps // len(indices), "sample": trace["samples"][rollout][place]}
            found[rollout, f"{index}-{place}"] = one
    return found


def scored(weights: np.ndarray[Any, Any], one: dict[str, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Log-probs and entropies of a sequence's response under a bigram table."""
    table = torch.log_softmax(torch.as_tensor(weights), -1)
    tokens, length = one["tokens"], one["response_lengths"]
    before = table[tokens[len(tokens) - length - 1 : -1]]
    log_probs = before.gather(1, tokens[len(tokens) - length :, None])[:, 0]
    return log_probs.numpy(), -(before.exp() * before).sum(-1).numpy()
