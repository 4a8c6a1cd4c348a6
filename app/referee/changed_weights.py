"""Changed copies of a model, for the alternatives of --try: other number formats, an adapter, a rounded KV cache."""

import json
from collections.abc import Callable
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from ratioscope.errors import SourceError

Perturbation = Callable[[Any], Any]
"""Takes a model and returns a changed copy."""
E4M3 = torch.float8_e4m3fn
LARGEST_E4M3 = float(torch.finfo(E4M3).max)
ADAPTER = "adapter_config.json"
_KV = "ratioscope_fp8_kv"


def rounded(dtype: torch.dtype) -> Perturbation:
    """Weights rounded to a dtype, computed in float32."""
    return lambda model: _each_weight(model, lambda weight: weight.to(dtype).float())


def quantised(levels: int) -> Perturbation:
    """Matrices rounded to so many levels on each side of 0, a scale per row; embeddings and norms stay."""
    return lambda model: _each_weight(model, lambda weight: _to_levels(weight, levels), only="layers")


def in_fp8(*, per_row: bool) -> Perturbation:
    """Matrices of the layers rounded to e4m3, with a scale per matrix or per row (output channel), computed in float32."""

    def change(weight: Any) -> Any:
        if weight.ndim != 2:
            return weight
        largest = weight.abs().amax(1, keepdim=True) if per_row else weight.abs().max()
        scale = largest.clamp_min(1e-12) / LARGEST_E4M3
        return (weight / scale).to(E4M3).float() * scale

    return lambda model: _each_weight(model, change, only="layers")


def computed_in(dtype: torch.dtype) -> Perturbation:
    """Weights and computation in a dtype."""
    return lambda model: deepcopy(model).to(dtype)


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
    changed = deepcopy(model)
    changed.set_attn_implementation(_KV)
    return changed


def with_adapter(folder: Path, sign: float = 1.0) -> Perturbation:
    """The LoRA adapter in a folder of PEFT's, merged into the model; with sign -1 taken away from it."""
    config = json.loads((folder / ADAPTER).read_text())
    if fault := _unmergeable(config):
        raise SourceError(f"{folder}: {fault}; merge it with PEFT and give the merged model as a checkpoint")
    safetensors: Any = import_module("safetensors.torch")
    tensors: dict[str, Any] = safetensors.load_file(str(folder / "adapter_model.safetensors"))
    rank = config["r"] ** 0.5 if config.get("use_rslora") else config["r"]
    scale = sign * config["lora_alpha"] / rank

    def change(model: Any) -> Any:
        changed = deepcopy(model)
        weights = dict(changed.named_parameters())
        with torch.no_grad():
            for name, down in tensors.items():
                if ".lora_A." not in name:
                    continue
                target = name.split("base_model.model.", 1)[-1].replace(".lora_A.weight", ".weight")
                if target not in weights:
                    raise SourceError(f"{folder}: the model has no {target}, so the adapter is of another model")
                up = tensors[name.replace(".lora_A.", ".lora_B.")]
                weights[target] += scale * (up.float() @ down.float()).to(weights[target])
        return changed

    return change


def _unmergeable(config: Any) -> str:
    """Why this adapter is not plain LoRA; "" if it is."""
    if config.get("peft_type") != "LORA":
        return f"its peft_type is {config.get('peft_type')}, wanted LORA"
    more = ("use_dora", "rank_pattern", "alpha_pattern", "fan_in_fan_out", "modules_to_save", "trainable_token_indices")
    used = [name for name in more if config.get(name)]
    return f"it uses {', '.join(used)}, which is not plain LoRA" if used else ""


def _to_levels(weight: Any, levels: int) -> Any:
    if weight.ndim != 2:
        return weight
    scale = weight.abs().amax(1, keepdim=True).clamp_min(1e-12) / levels
    return (weight / scale).round() * scale


def _each_weight(model: Any, change: Perturbation, only: str = "") -> Any:
    changed = deepcopy(model)
    with torch.no_grad():
        for name, weight in changed.named_parameters():
            if only in name:
                weight.copy_(change(weight))
    return changed
