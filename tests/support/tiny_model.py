"""A Llama of random weights, so small that a test makes it, samples from it and scores with it in a second."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ratioscope import Collector

torch.set_num_threads(1)  # more threads than a matrix of 32 columns has work for only wait for each other
VOCABULARY = 96
STEPS = (10, 20, 30)


def model(seed: int = 0, **config: Any) -> Any:
    """A Llama whose next-token distributions differ clearly from token to token."""
    transformers: Any = import_module("transformers")  # Any: its types are those of all its models, in 2,800 files
    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    own = transformers.LlamaConfig(
        **(shape | {"vocab_size": VOCABULARY, "max_position_embeddings": 128, "initializer_range": 0.3} | config)
    )
    made: Any = transformers.LlamaForCausalLM(own)
    return made.float().eval()


def trained_on(weights: Any, seed: int, size: float = 0.02) -> Any:
    """A copy of the model after a step of "training": each weight moved by chance."""
    from copy import deepcopy

    after, chance = deepcopy(weights), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in after.parameters():
            parameter += size * torch.randn(parameter.shape, generator=chance)
    return after


def saved(weights: Any, folder: Path) -> Path:
    """The folder, with the model in it."""
    weights.save_pretrained(folder)
    return folder


def prompts(number: int, seed: int = 0) -> list[list[int]]:
    chance = np.random.default_rng(seed)
    return [chance.integers(1, VOCABULARY, chance.integers(3, 12)).tolist() for _ in range(number)]


def sampled(weights: Any, prompt: list[int], tokens: int, seed: int) -> list[int]:
    """Tokens by the engine: `generate` of transformers."""
    return list(_sampled(weights, tuple(prompt), tokens, seed))


@cache
@torch.no_grad()
def _sampled(weights: Any, prompt: tuple[int, ...], tokens: int, seed: int) -> tuple[int, ...]:
    torch.manual_seed(seed)
    found = weights.generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), do_sample=True, min_new_tokens=tokens,
        max_new_tokens=tokens, top_k=0, pad_token_id=0,
    )  # fmt: skip
    return tuple(found[0, len(prompt) :].tolist())


@torch.no_grad()
def trainer_logprobs(weights: Any, prompt: list[int], response: list[int]) -> NDArray[np.float32]:
    """Log-probs as a trainer computes them: one sequence, all logits, log_softmax."""
    logits = weights(torch.tensor([prompt + response])).logits.float()[0, len(prompt) - 1 : -1]
    own = torch.log_softmax(logits, -1).gather(1, torch.tensor(response)[:, None])[:, 0]
    found: NDArray[np.float32] = own.numpy()
    return found


def record(folder: Path, engine: Any, trainer: Any, **options: Any) -> Path:
    """A run of STEPS, four sequences each, sampled and scored by the same weights in every step.

    engine(prompt, response) and trainer(prompt, response) give log-probs. options: sampler, prompts_of (what is recorded as the
    prompt), without (columns to leave out), config (settings on record), more columns of `log`.
    """
    sampler, recorded = options.pop("sampler"), options.pop("prompts_of", lambda prompt: prompt)
    without, steps = options.pop("without", ()), options.pop("steps", STEPS)
    each, config = options.pop("sequences", 4), options.pop("config", None)
    with Collector(folder, writer="thread", strict=True, config=config) as collector:
        for step in steps:
            asked = prompts(each, step)
            answers = [sampled(sampler, prompt, 6 + 3 * (k % 5), step + k) for k, prompt in enumerate(asked)]
            pairs = list(zip(asked, answers, strict=True))
            columns = {
                "rollout_logprobs": [engine(*pair) for pair in pairs],
                "old_logprobs": [trainer(*pair) for pair in pairs],
                "token_ids": answers,
                "prompt_ids": [recorded(prompt) for prompt in asked],
                "sequence_ids": [f"{step}-{k}" for k in range(len(asked))],
            }
            kept: dict[str, Any] = {name: value for name, value in columns.items() if name not in without}
            collector.log(step=step, **kept, **options)
    return folder
