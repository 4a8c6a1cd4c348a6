"""Changed copies of a model, for the alternatives of --try. A copy shares every tensor that it does not change."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from importlib import import_module
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import torch

from ratioscope.errors import SourceError

Perturbation = Callable[[Any], Any]
"""Takes a model and returns a changed copy."""
Change = Callable[[str, Any], Any]
"""A function of a tensor's name and the tensor: the tensor instead, or the same object."""
E4M3 = torch.float8_e4m3fn
LARGEST_E4M3 = float(torch.finfo(E4M3).max)
ADAPTER = "adapter_config.json"
_KV = "ratioscope_fp8_kv"
_LAYER = re.compile(r"\.(\d+)\.")
"""The number of a layer in the name of its tensors."""


def changed(model: Any, change: Change) -> Any:
    """A copy with the tensors that `change` gives."""
    with torch.no_grad():
        pairs = [(own, change(name, own)) for name, own in model.named_parameters()]
    new = {id(own): _fixed(other) for own, other in pairs if other is not own}
    copy = _copied(model, *(module.config for module in model.modules() if hasattr(module, "config")))
    for module in copy.modules():
        module._parameters.update({key: new[id(own)] for key, own in module._parameters.items() if id(own) in new})
    return copy


def _copied(model: Any, *shared: Any) -> Any:
    """A copy with the tensors and these objects of the model."""
    return deepcopy(model, {id(own): own for own in (*model.parameters(), *shared)})


def _fixed(tensor: Any) -> Any:
    return torch.nn.Parameter(tensor.detach(), requires_grad=False)


def rounded(dtype: torch.dtype) -> Perturbation:
    """Weights rounded to a dtype, computed in float32."""
    return lambda model: changed(model, lambda name, weight: weight.to(dtype).float())


def _with_matrices(change: Perturbation) -> Perturbation:
    """Matrices of the layers changed; embeddings and norms stay."""

    def changed_if(name: str, weight: Any) -> Any:
        return change(weight) if weight.ndim == 2 and _LAYER.search(name) else weight

    return lambda model: changed(model, changed_if)


def quantised(levels: float, group: int | None = None, *, shifted: bool = False) -> Perturbation:
    """Matrices of the layers rounded to so many levels on each side of 0.

    group: weights of a row that share a scale; None: the row. shifted: twice the levels from the smallest to the largest weight.
    """

    def change(weight: Any) -> Any:
        if group and weight.shape[1] % group:
            return weight
        parts = weight.reshape(len(weight), -1, group or weight.shape[1])
        least = parts.amin(2, keepdim=True) if shifted else torch.zeros_like(parts[..., :1])
        most = (parts.amax(2, keepdim=True) - least) / 2 if shifted else parts.abs().amax(2, keepdim=True)
        scale = most.clamp_min(1e-12) / levels
        zero = (least / scale).round()
        return (((parts / scale - zero).round() + zero) * scale).reshape(weight.shape)

    return _with_matrices(change)


def in_fp8(*, per_row: bool) -> Perturbation:
    """Matrices of the layers rounded to e4m3, with a scale per matrix or per row (output channel), computed in float32."""

    def change(weight: Any) -> Any:
        largest = weight.abs().amax(1, keepdim=True) if per_row else weight.abs().max()
        scale = largest.clamp_min(1e-12) / LARGEST_E4M3
        return (weight / scale).to(E4M3).float() * scale

    return _with_matrices(change)


def computed_in(dtype: torch.dtype) -> Perturbation:
    """Weights and computation in a dtype. Buffers, such as the frequencies of RoPE, stay in float32, as engines have them."""
    return lambda model: changed(model, lambda name, weight: weight.to(dtype))


def with_fp8_kv(model: Any) -> Any:
    """Keys (after their rotation) and values rounded to e4m3 at scale 1, as an fp8 KV cache without calibration holds them."""
    attention: Any = import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
    sdpa = attention["sdpa"]

    def rounded_sdpa(module: Any, query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
        key, value = (each.clamp(-LARGEST_E4M3, LARGEST_E4M3).to(E4M3).to(query.dtype) for each in (key, value))
        return sdpa(module, query, key, value, *rest, **named)

    attention.register(_KV, rounded_sdpa)
    masks: Any = import_module("transformers.masking_utils").ALL_MASK_ATTENTION_FUNCTIONS
    masks.register(_KV, masks["sdpa"])
    copy = _copied(model)
    copy.set_attn_implementation(_KV)
    return copy


def with_adapter(folder: Path, times: float = 1.0) -> Perturbation:
    """The LoRA adapter in a folder of PEFT's, merged so many times into the model; with a negative number taken away from it."""
    config = json.loads((folder / ADAPTER).read_text())
    if fault := _unmergeable(config):
        raise SourceError(f"{folder}: {fault}; merge it with PEFT and give the merged model as a checkpoint")
    safetensors: Any = import_module("safetensors.torch")
    tensors: dict[str, Any] = safetensors.load_file(str(folder / "adapter_model.safetensors"))
    rank = config["r"] ** 0.5 if config.get("use_rslora") else config["r"]
    scale = times * config["lora_alpha"] / rank
    downs = {
        name.split("base_model.model.", 1)[-1].replace(".lora_A.weight", ".weight"): name
        for name in tensors
        if ".lora_A." in name
    }

    def change(name: str, weight: Any) -> Any:
        if name not in downs:
            return weight
        down, up = tensors[downs[name]], tensors[downs[name].replace(".lora_A.", ".lora_B.")]
        return weight + scale * (up.float() @ down.float()).to(weight)

    def merge(model: Any) -> Any:
        if missing := downs.keys() - dict(model.named_parameters()).keys():
            raise SourceError(f"{folder}: the model has no {min(missing)}, so the adapter is of another model")
        return changed(model, change)

    return merge


def _unmergeable(config: Any) -> str:
    """Why this adapter is not plain LoRA; "" if it is."""
    if config.get("peft_type") != "LORA":
        return f"its peft_type is {config.get('peft_type')}, wanted LORA"
    more = ("use_dora", "rank_pattern", "alpha_pattern", "fan_in_fan_out", "modules_to_save", "trainable_token_indices")
    used = [name for name in more if config.get(name)]
    return f"it uses {', '.join(used)}, which is not plain LoRA" if used else ""


def with_ends(*, head: Any = None, embedding: Any = None) -> Perturbation:
    """Functions of a model that give the weight of its head, or of its embedding, instead. Tied ones are taken apart."""

    def change(model: Any) -> Any:
        copy = changed(model, lambda name, weight: weight)
        for end, own in ((copy.get_output_embeddings(), head), (copy.get_input_embeddings(), embedding)):
            if own is not None:
                end._parameters["weight"] = _fixed(own(model).to(end.weight))
        return copy

    return change


def with_frequencies(change: Callable[[Any], Any]) -> Perturbation:
    """The frequencies of RoPE (rad/token) changed."""

    def apply(model: Any) -> Any:
        copy = changed(model, lambda name, weight: weight)
        for module in copy.modules():
            for name in [name for name in module._buffers if name.endswith("inv_freq")]:
                module._buffers[name] = change(module._buffers[name].float())
        return copy

    return apply


def has_rope(model: Any) -> bool:
    """True if its positions are rotations, so that only their differences count."""
    return any(name.endswith("inv_freq") for name, _ in model.named_buffers())


def tensor_changes(model: Any) -> Iterator[tuple[str, Perturbation]]:
    """(words, change) of tensors that a load may have damaged: layers and tensors swapped, zeroed or laid out otherwise."""
    layers: dict[str, dict[str, Any]] = {}
    for name, own in model.named_parameters():
        if found := _LAYER.search(name):
            layers.setdefault(found[1], {})[name] = own
    kinds = {_LAYER.sub(".*.", name, count=1): own for name, own in next(iter(layers.values()), {}).items()}
    short = {kind: kind.rpartition(".*.")[2].removesuffix(".weight") for kind in kinds}
    for where, numbers in (("all layers", list(layers)), *((f"layer {number}", [number]) for number in layers)):
        names = {kind: [kind.replace("*", number) for number in numbers] for kind in kinds}
        for one, two in combinations(kinds, 2):
            if kinds[one].shape == kinds[two].shape:
                yield f"{short[one]} and {short[two]} swapped in {where}", _swapped(names[one], names[two])
        for words, makes, change in _LAID_OUT:
            for kind, own in kinds.items():
                if makes(kind, own):
                    yield f"{short[kind]} {words} in {where}", _replaced(names[kind], change)
    for one, two in pairwise(layers):
        others = [name.replace(f".{one}.", f".{two}.", 1) for name in layers[one]]
        yield f"layers {one} and {two} swapped", _swapped(list(layers[one]), others)


def _halves(weight: Any) -> Any:
    return torch.cat(weight.chunk(2)[::-1])


_LAID_OUT: tuple[tuple[str, Callable[[str, Any], bool], Perturbation], ...] = (
    ("zeroed", lambda kind, own: True, torch.zeros_like),
    ("not loaded (ones)", lambda kind, own: "norm" in kind or "ln_" in kind, torch.ones_like),
    ("transposed", lambda kind, own: own.ndim == 2 and own.shape[0] == own.shape[1], lambda weight: weight.T.contiguous()),
    ("with its two shards swapped", lambda kind, own: own.ndim == 2 and len(own) % 2 == 0, _halves),
    ("with the two shards of its columns swapped", lambda kind, own: own.ndim == 2 and own.shape[1] % 2 == 0,
     lambda weight: _halves(weight.T).T.contiguous()),
)  # fmt: skip
"""Words, a test of a tensor's kind and the tensor, and what the tensor becomes."""


def with_rope_layout(model: Any) -> Any:
    """The rows of queries and keys in the order of pairs (of Meta's checkpoints) where halves are wanted."""
    config = model.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    def change(name: str, weight: Any) -> Any:
        if not re.search(r"\b[qk]_proj\.", name):
            return weight
        return weight.reshape(-1, 2, size // 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)

    return changed(model, change)


def _replaced(names: Sequence[str], change: Perturbation) -> Perturbation:
    return lambda model: changed(model, lambda name, own: change(own) if name in names else own)


def _swapped(names: Sequence[str], others: Sequence[str]) -> Perturbation:
    """Each of these tensors in the place of its partner."""
    partner = dict(zip((*names, *others), (*others, *names), strict=True))

    def swap(model: Any) -> Any:
        every = dict(model.named_parameters())
        return changed(model, lambda name, own: every[partner.get(name, name)])

    return swap
