"""Log-probs of given tokens under a model, in float32 and in bounded memory.

Sequences of about one length form a batch, padded at the right: causal attention never looks there, so no mask is needed and
none can be wrong. Logits are made for response positions alone, and for so many at a time that they take LOGITS_BYTES.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ratioscope.arrays import Singles

from .inputs import Sequence_

Logprobs = Singles
BATCH_TOKENS = {"cpu": 2048, "cuda": 16384}
"""Padded tokens in a batch. A convention; a longer sequence is a batch of its own."""
LOGITS_BYTES = 1 << 28
"""Bytes of the float32 logits that are held at a time."""


@dataclass(frozen=True)
class Scoring:
    """The settings of a scoring: everything but the weights and the tokens."""

    temperature: float = 1.0
    """Divides the logits."""
    restart: bool = False
    """True: position ids begin at 0 at the prompt and again at the response."""
    autocast: str | None = None
    """bfloat16 or float16: the forward runs under torch.autocast with it."""
    head_float32: bool = True
    """The head is multiplied in float32, whatever the weights are in. False: in the dtype of the weights."""
    batch_tokens: int | None = None
    """Padded tokens in a batch; None: BATCH_TOKENS of the device."""


PLAIN = Scoring()
"""At temperature 1, with the head in float32."""


def scores(model: Any, sequences: Sequence[Sequence_], how: Scoring | None = None) -> Iterator[tuple[int, Logprobs]]:
    """(index of a sequence, log-probs of its response tokens in nats), in the order of batches. The model is not changed."""
    how, device = how or PLAIN, next(model.parameters()).device
    most = how.batch_tokens or BATCH_TOKENS.get(device.type, 2048)
    for few in batches([sequence.length for sequence in sequences], most):
        chosen = [sequences[index] for index in few]
        yield from zip(few, _batch(model, chosen, how, device), strict=True)


def batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Indices by length, in batches of at most `most` padded tokens, each of at least one sequence.

    >>> list(batches([5, 1, 4, 1], 8))
    [[1, 3], [2], [0]]
    """
    few: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: (lengths[index], index)):
        if few and (len(few) + 1) * lengths[index] > most:
            yield few
            few = []
        few.append(index)
    if few:
        yield few


def _batch(model: Any, sequences: Sequence[Sequence_], how: Scoring, device: Any) -> list[Logprobs]:
    width = max(sequence.length for sequence in sequences)
    ids = torch.zeros((len(sequences), width), dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : sequence.length] = torch.tensor((*sequence.prompt, *sequence.response))
    before = [
        (row, place) for row, each in enumerate(sequences) for place in range(len(each.prompt) - 1, each.length - 1)
    ]
    rows, places = torch.tensor(before).T
    targets = ids[rows, places + 1]
    starts = torch.tensor([len(sequence.prompt) for sequence in sequences], device=device)[:, None]
    places_of = torch.arange(width, device=device)[None].expand(len(sequences), -1)
    again = torch.where(places_of < starts, places_of, places_of - starts)
    causal = (
        torch.ones((width, width), dtype=torch.bool, device=device).tril()[None, None].expand(len(sequences), 1, -1, -1)
    )
    # without a mask, transformers takes positions that begin anew for another sequence
    positions = {"position_ids": again, "attention_mask": causal} if how.restart else {}
    with torch.inference_mode(), _autocast(how, device):
        hidden = model.base_model(input_ids=ids.to(device), use_cache=False, **positions)[0]
        flat = _of_targets(model, hidden[rows.to(device), places.to(device)], targets.to(device), how)
    logprobs: Logprobs = flat.cpu().numpy().astype(np.float32)
    return np.split(logprobs, np.cumsum([len(each.response) for each in sequences])[:-1])


def _of_targets(model: Any, hidden: Tensor, targets: Tensor, how: Scoring) -> Tensor:
    """The log-prob of each target after its hidden state, shape (tokens,)."""
    head = model.get_output_embeddings()
    at_once = max(1, LOGITS_BYTES // (4 * head.weight.shape[0]))
    adjust = adjustment(model.config)
    parts = []
    for start in range(0, len(targets), at_once):
        logits = adjust(_logits(head, hidden[start : start + at_once], how)).float() / how.temperature
        own = targets[start : start + at_once, None]
        parts.append(logits.gather(1, own)[:, 0] - torch.logsumexp(logits, 1))
    return torch.cat(parts)


def _logits(head: Any, hidden: Tensor, how: Scoring) -> Tensor:
    if not how.head_float32:
        logits: Tensor = head(hidden)
        return logits
    with torch.autocast(hidden.device.type, enabled=False):
        bias = None if getattr(head, "bias", None) is None else head.bias.float()
        return torch.nn.functional.linear(hidden.float(), head.weight.float(), bias)


def adjustment(config: Any) -> Callable[[Tensor], Tensor]:
    """The change that the model makes to its logits after the head: a cap (Gemma), a factor (Cohere) or a divisor (Granite)."""
    cap, factor = getattr(config, "final_logit_softcapping", None), getattr(config, "logit_scale", None)
    divisor = getattr(config, "logits_scaling", None)

    def adjusted(logits: Tensor) -> Tensor:
        logits = logits if factor is None else logits * factor
        logits = logits if divisor is None else logits / divisor
        return logits if cap is None else torch.tanh(logits / cap) * cap

    return adjusted


def demand_own_head(model: Any, room: int) -> None:
    """ValueError unless our logits, head and adjustment, are those of the model's own forward."""
    ids = torch.arange(min(room, 7))[None].to(next(model.parameters()).device)
    with torch.inference_mode():
        own = model(input_ids=ids, use_cache=False).logits.float()
        hidden = model.base_model(input_ids=ids, use_cache=False)[0]
        ours = adjustment(model.config)(
            _logits(model.get_output_embeddings(), hidden, Scoring(head_float32=False))
        ).float()
    largest = float((own - ours).abs().max())
    if not largest <= 1e-3 * max(1.0, float(own.abs().max())):
        raise ValueError(f"its logits are made in a way of their own (off by {largest:.3g})")


def _autocast(how: Scoring, device: Any) -> Any:
    dtype = getattr(torch, how.autocast) if how.autocast else None
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
