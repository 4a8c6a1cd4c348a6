"""The arms of a Hugging Face model: padded batch, packed row, cached prefix, decode with a cache, and a perturbed projection."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..inputs import Sequence_
from ..model import Referee
from ..scoring import Scoring
from .comparison import Arm, Columns, Pair, Reader, columns

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


def _alone(own: Reader) -> Columns:
    return own.once("alone", ALONE)


def _packed_or_not(own: Reader) -> list[Pair] | str:
    """Each sequence alone, and rows of several with positions that begin anew and a mask between them."""
    config = own.scorer.model.config
    layers = {*(getattr(config, "layer_types", None) or ["full_attention"])}
    if layers != {"full_attention"} or getattr(config, "sliding_window", None):
        return "the model has layers with a window or without attention, which take no mask of packed rows"
    most = min(PACK_TOKENS, own.scorer.room.positions or PACK_TOKENS)
    packed = [each for row in _rows(own.sequences, most) for each in _packed(own.scorer, row)]
    return [Pair("alone", "packed", (_alone(own), packed))]


def _perturbed_or_not(own: Reader) -> list[Pair] | str:
    """Before a perturbation of one projection, with it, and after it was taken back."""
    if (found := _projection(own.scorer.model)) is None:
        return f"the model has no linear layer named {', '.join(PROJECTIONS)}"
    name, weight = found
    with perturbed(weight):
        moved = own.once("perturbed")
    doubt = f"{name}, rank {RANK}, {SIZE:g} of its norm, seed {SEED}"
    return [
        Pair("before", "perturbed", (own.once(), moved), doubt=doubt, wanted="moved"),
        Pair("before", "taken back", (own.once(), own.once("taken back")), wanted="equal"),
    ]


ARMS: Mapping[str, Arm] = {
    "batch": lambda own: [Pair("alone", f"{own.together} together", (_alone(own), own.batched(own.scorer, TOGETHER)))],
    "packed": _packed_or_not,
    "prefix": lambda own: [Pair("alone", "prefix cached", (_alone(own), own.once("prefix cached", PREFIX)))],
    "decode": lambda own: [Pair("decode", "prefill", (own.once("decode", DECODE), _alone(own)))],
    "adapter": _perturbed_or_not,
}


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


def _projection(model: Any) -> tuple[str, Any] | None:
    """(name, weight) of the first projection of a layer."""
    for name, module in model.base_model.named_modules():
        if isinstance(module, torch.nn.Linear) and name.endswith(PROJECTIONS):
            return name, module.weight
    return None


def _rows(sequences: Sequence[Sequence_], most: int) -> list[list[Sequence_]]:
    """Sequences in their order, in rows of at most so many tokens, each of at least one."""
    rows: list[list[Sequence_]] = []
    for own in sequences:
        if not rows or sum(each.length for each in rows[-1]) + own.length > most:
            rows.append([])
        rows[-1].append(own)
    return rows


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
    ends = lengths.cumsum(0).tolist()
    return [whole[end - 1 - len(own.response) : end - 1] for own, end in zip(row, ends, strict=True)]
