"""The arms of a Hugging Face model: padded batch, packed row, cached prefix, decode with a cache, and a perturbed projection."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from ..inputs import Sequence_
from ..model import Referee
from ..scoring import Scoring
from .arm import Known, Pair, Plan, columns, once
from .comparison import Columns

ALONE = Scoring(batch_tokens=1)
"""Each sequence is a batch of its own."""
TOGETHER = Scoring(batch_tokens=1 << 62)
PREFIX = Scoring(batch_tokens=1, older=lambda model: model, kept=lambda prompt: prompt - 1)
"""The prompt but its last token is read first, and its keys and values are kept."""
DECODE = Scoring(batch_tokens=1, token_by_token=True)
PACK_TOKENS = 4096
"""Tokens of a packed row, unless a longer sequence needs more. A convention."""
RANK, SIZE, SEED = 8, 0.2, 20
"""Rank of the perturbation, its Frobenius norm as a part of the weight's, and the seed of its random numbers. Conventions."""
PROJECTIONS = ("q_proj", "qkv_proj", "query_key_value", "Wqkv", "in_proj")
"""Names of the projection that is perturbed, in the first layer that has one."""


def together_or_alone(model: Referee, sequences: Sequence[Sequence_], plan: Plan, known: Known) -> list[Pair] | str:
    """Each sequence alone, and padded batches of many."""
    if len(sequences) < 2:
        return "there is one sequence alone"
    parts = [sequences[first : first + plan.together] for first in range(0, len(sequences), plan.together)]
    together = [own for part in parts for own in columns(model, part, TOGETHER)]
    return [Pair("alone", f"{plan.together} together", (_alone(model, sequences, known), together))]


def packed_or_not(model: Referee, sequences: Sequence[Sequence_], plan: Plan, known: Known) -> list[Pair] | str:
    """Each sequence alone, and rows of several with positions that begin anew and a mask between them."""
    config = model.model.config
    if {*(getattr(config, "layer_types", None) or ["full_attention"])} != {"full_attention"} or getattr(
        config, "sliding_window", None
    ):
        return "the model has layers with a window or without attention, which take no mask of packed rows"
    if len(sequences) < 2:
        return "there is one sequence alone"
    most = min(PACK_TOKENS, model.room.positions or PACK_TOKENS)
    packed = [own for row in _rows(sequences, most) for own in _packed(model, row)]
    return [Pair("alone", "packed", (_alone(model, sequences, known), packed))]


def cached_or_not(model: Referee, sequences: Sequence[Sequence_], plan: Plan, known: Known) -> list[Pair] | str:
    """One forward over prompt and response, and one over the rest behind the keys and values of the prompt."""
    return [Pair("alone", "prefix cached", (_alone(model, sequences, known), columns(model, sequences, PREFIX)))]


def decode_or_prefill(model: Referee, sequences: Sequence[Sequence_], plan: Plan, known: Known) -> list[Pair] | str:
    """The response read token by token with a cache, and one forward over all."""
    decode = columns(model, sequences, DECODE)
    return [Pair("decode", "prefill", (decode, _alone(model, sequences, known)))]


def perturbed_or_not(model: Referee, sequences: Sequence[Sequence_], plan: Plan, known: Known) -> list[Pair] | str:
    """Before a perturbation of one projection, with it, and after it was taken back."""
    if (found := _projection(model.model)) is None:
        return f"the model has no linear layer named {', '.join(PROJECTIONS)}"
    name, weight = found
    with perturbed(weight):
        moved = columns(model, sequences)
    doubt = f"{name}, rank {RANK}, {SIZE:g} of its norm, seed {SEED}"
    return [
        Pair("before", "perturbed", (known["base"], moved), doubt=doubt, wanted="moved"),
        Pair("before", "taken back", (known["base"], columns(model, sequences)), wanted="equal"),
    ]


@contextmanager
def perturbed(weight: Any) -> Iterator[None]:
    """A low-rank change of a weight in place, the same for the same shape and norm; after it every bit is as it was."""
    before, chance = weight.detach().clone(), torch.Generator().manual_seed(SEED)
    tall, wide = (torch.randn(shape, generator=chance) for shape in ((weight.shape[0], RANK), (RANK, weight.shape[1])))
    change = tall @ wide
    norm = float(f"{before.float().norm().item():.1e}")  # one number, whatever precision the weight has
    change *= SIZE * norm / change.norm()
    try:
        with torch.no_grad():
            weight.copy_(before.float() + change.to(before.device))
        yield
    finally:
        with torch.no_grad():
            weight.copy_(before)


def sampled(model: Referee, prompts: Sequence[tuple[int, ...]], tokens: int) -> list[Sequence_]:
    """A response to each prompt, untruncated and at temperature 1, of at most so many tokens."""
    torch.manual_seed(SEED)
    device, found = next(model.model.parameters()).device, []
    for index, prompt in enumerate(prompts):
        ids = torch.tensor([prompt], device=device)
        with torch.inference_mode():
            own = model.model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=True, max_new_tokens=tokens, temperature=1.0, top_k=0,
                top_p=1.0, repetition_penalty=1.0, pad_token_id=0,
            )  # fmt: skip
        found.append(Sequence_(0, 0, f"sampled-{index}", prompt, tuple(own[0, len(prompt) :].tolist())))
    return found


def _alone(model: Referee, sequences: Sequence[Sequence_], known: Known) -> Columns:
    return once(known, "alone", partial(columns, model, sequences, ALONE))


def _projection(model: Any) -> tuple[str, Any] | None:
    """(name, weight) of the first projection of a layer."""
    for name, module in model.base_model.named_modules():
        if isinstance(module, torch.nn.Linear) and name.endswith(PROJECTIONS):
            return name, module.weight
    return None


def _rows(sequences: Sequence[Sequence_], most: int) -> Iterator[list[Sequence_]]:
    """Sequences in their order, in rows of at most so many tokens, each of at least one."""
    row: list[Sequence_] = []
    for own in sequences:
        if row and sum(each.length for each in row) + own.length > most:
            yield row
            row = []
        row.append(own)
    if row:
        yield row


def _packed(model: Referee, row: Sequence[Sequence_]) -> Columns:
    """The log-probs of the responses of a packed row."""
    ids = [id for own in row for id in (*own.prompt, *own.response)]
    device = next(model.model.parameters()).device
    lengths = torch.tensor([own.length for own in row], device=device)
    block = torch.repeat_interleave(torch.arange(len(row), device=device), lengths)
    local = torch.cat([torch.arange(own.length, device=device) for own in row])
    how = Scoring(
        positions=lambda along, starts, leads: local[along],
        visible=lambda queries, keys, leads: block[queries] == block[keys],
    )
    (whole,) = columns(model, [Sequence_(0, 0, "packed", (ids[0],), tuple(ids[1:]))], how)
    ends, found = lengths.cumsum(0).tolist(), []
    for own, end in zip(row, ends, strict=True):
        found.append(whole[end - 1 - len(own.response) : end - 1])
    return found
