"""A tiny Qwen2 as vLLM and SGLang hold it, cut and fused with torch, and the answers of their weight checkers.

Written from the loaders and checkers of vLLM 0.32 and SGLang 0.5.23, and not from our own.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

HIDDEN, HEADS, KV_HEADS, HEAD, INNER, VOCABULARY, LAYERS = 16, 4, 2, 4, 24, 70, 2
State = dict[str, torch.Tensor]


def state(seed: int, dtype: torch.dtype = torch.float32) -> State:
    """The weights of a step, by the names of transformers."""
    torch.manual_seed(seed)

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(dtype)

    own = {"model.embed_tokens.weight": made(VOCABULARY, HIDDEN), "lm_head.weight": made(VOCABULARY, HIDDEN)}
    own["model.norm.weight"] = made(HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for name, rows in (("q", HEADS * HEAD), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD)):
            own[f"{at}.self_attn.{name}_proj.weight"] = made(rows, HIDDEN)
            own[f"{at}.self_attn.{name}_proj.bias"] = made(rows)
        own[f"{at}.self_attn.o_proj.weight"] = made(HIDDEN, HEADS * HEAD)
        own[f"{at}.mlp.gate_proj.weight"], own[f"{at}.mlp.up_proj.weight"] = made(INNER, HIDDEN), made(INNER, HIDDEN)
        own[f"{at}.mlp.down_proj.weight"] = made(HIDDEN, INNER)
        own[f"{at}.input_layernorm.weight"], own[f"{at}.post_attention_layernorm.weight"] = made(HIDDEN), made(HIDDEN)
    return own


def saved(folder: Path, own: State, files: int = 1, **config: Any) -> Path:
    """The weights as `save_pretrained` writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "hidden_size": HIDDEN}
    (folder / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForCausalLM"], **sizes, **config}))
    names = list(own)
    parts = [names[at::files] for at in range(files)]
    for at, part in enumerate(parts):
        save_file({name: own[name] for name in part}, folder / f"model-{at}.safetensors")
    if files > 1:
        places = {name: f"model-{at}.safetensors" for at, part in enumerate(parts) for name in part}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def held(own: State, rank: int = 0, ranks: int = 1, dtype: torch.dtype = torch.bfloat16) -> State:
    """The parameters of a rank."""
    cast = {name: tensor.to(dtype) for name, tensor in own.items()}
    return dict(_fused(cast, rank, ranks))


def _fused(own: State, rank: int, ranks: int) -> list[tuple[str, torch.Tensor]]:
    filled = torch.nn.functional.pad
    found = [
        (name, filled(own[name], (0, 0, 0, 128 - VOCABULARY)).chunk(ranks)[rank])
        for name in ("model.embed_tokens.weight", "lm_head.weight")
    ]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        kv = rank if ranks <= KV_HEADS else rank * KV_HEADS // ranks
        for end in ("weight", "bias"):
            q, k, v = (own[f"{at}.self_attn.{name}_proj.{end}"] for name in "qkv")
            shards = [q.chunk(ranks)[rank], *(each.chunk(min(ranks, KV_HEADS))[kv] for each in (k, v))]
            found.append((f"{at}.self_attn.qkv_proj.{end}", torch.cat(shards)))
        both = [own[f"{at}.mlp.{name}_proj.weight"].chunk(ranks)[rank] for name in ("gate", "up")]
        found.append((f"{at}.mlp.gate_up_proj.weight", torch.cat(both)))
        for name in (f"{at}.self_attn.o_proj.weight", f"{at}.mlp.down_proj.weight"):
            found.append((name, own[name].chunk(ranks, dim=1)[rank]))
        found += [
            (name, own[name]) for name in (f"{at}.input_layernorm.weight", f"{at}.post_attention_layernorm.weight")
        ]
    return [*found, ("model.norm.weight", own["model.norm.weight"])]


def octets(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def vllm_answer(ranks: Mapping[tuple[int, int], State]) -> dict[str, Any]:
    """ranks: (data-parallel, tensor-parallel) rank -> its parameters."""
    return {
        "checksums": {
            f"dp{dp}:pp0:pcp0:tp{tp}:{name}": hashlib.sha256(octets(tensor)).hexdigest()
            for (dp, tp), own in ranks.items()
            for name, tensor in own.items()
        }
    }


def sglang_answer(ranks: Mapping[tuple[int, int], State]) -> dict[str, Any]:
    """The same from an SGLang on the CPU, with the buffer of a KV scale that no checkpoint has."""
    told = []
    for (dp, tp), own in ranks.items():
        own = {**own, "model.layers.0.self_attn.attn.k_scale": torch.ones(1)}
        checksums = {name: hashlib.sha256(octets(tensor)).hexdigest()[:16] for name, tensor in own.items()}
        place = {"role": "target", "tp_rank": tp, "tp_size": 2, "dp_rank": dp, "dp_size": 1, "pp_rank": 0, "pp_size": 1}
        info = [{**place, "rank": tp, "size": 2}]
        told.append({"checksums": checksums, "per_gpu_checksum": "f" * 64, "parallelism_info": info})
    return {"success": True, "message": "Success.", "ranks": told, "per_engine_checksum": "f" * 64}


ANSWERS = {"vllm": vllm_answer, "sglang": sglang_answer}
