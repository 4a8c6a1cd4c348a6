"""Tiny models of transformers: Llama, Qwen 2 and 3, GPT-NeoX, with several vocabularies and first policies."""

from __future__ import annotations

import importlib
import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported

import torch

from .torch_loop import Net

transformers: Any = importlib.import_module("transformers")  # Any: its lazy module has no types that mypy can follow


def _built(kind: str, net: Net, **more: int) -> torch.nn.Module:
    """A model of transformers with random weights."""
    shared = {
        "vocab_size": net.vocab,
        "hidden_size": net.hidden,
        "intermediate_size": 2 * net.hidden,
        "num_hidden_layers": net.layers,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    config = getattr(transformers, f"{kind}Config")(**shared, **more)
    model: torch.nn.Module = getattr(transformers, f"{kind}ForCausalLM")(config)
    return model


def _llama(net: Net) -> torch.nn.Module:
    return _built("Llama", net, num_key_value_heads=2)


def _qwen2(net: Net) -> torch.nn.Module:
    return _built("Qwen2", net, num_key_value_heads=2)


def _qwen3(net: Net) -> torch.nn.Module:
    return _built("Qwen3", net, num_key_value_heads=4, head_dim=16)


def _neox(net: Net) -> torch.nn.Module:
    return _built("GPTNeoX", net)


LLAMA = ("model.embed_tokens.weight", "lm_head.weight")
NEOX = ("gpt_neox.embed_in.weight", "lm_head.weight")
NETS: tuple[Net, ...] = (
    Net("llama_97", _llama, 97, 64, 2, moved=LLAMA),
    Net("llama_512", _llama, 512, 32, 3, moved=LLAMA, seed=1),
    Net("llama_sharp_160", _llama, 160, 48, 2, start="sharp", moved=LLAMA, seed=2),
    Net("llama_taught_97", _llama, 97, 64, 2, start="taught", tied=True, moved=LLAMA, seed=3),
    Net("llama_taught_300", _llama, 300, 48, 3, start="taught", moved=LLAMA, seed=4, lessons=160),
    Net("qwen2_640", _qwen2, 640, 32, 2, tied=True, moved=LLAMA, seed=5),
    Net("qwen2_taught_160", _qwen2, 160, 64, 2, start="taught", moved=LLAMA, seed=6, lessons=160),
    Net("qwen3_taught_97", _qwen3, 97, 64, 2, start="taught", tied=True, moved=LLAMA, seed=7, lessons=130),
    Net("qwen3_sharp_97", _qwen3, 97, 64, 2, start="sharp", moved=LLAMA, seed=8),
    Net("neox_97", _neox, 97, 64, 2, moved=NEOX, seed=9),
    Net("neox_taught_160", _neox, 160, 64, 2, start="taught", moved=NEOX, seed=10, lessons=130),
    Net("llama_taught_1024", _llama, 1024, 48, 2, start="taught", moved=LLAMA, seed=11, lessons=130),
)
