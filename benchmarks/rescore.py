"""Tokens per second of the referee's reading, beside the bare forward of transformers over the same batches.

The bare forward makes logits of every position and no log-prob: what a script without ratioscope would begin with. The model has
random weights in the shape of a small one, so that nothing is downloaded. On CUDA where there is one, else on the CPU.
"""

import statistics
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch

from ratioscope.app.referee.inputs import Sequence_, batches
from ratioscope.app.referee.scoring import BATCH_TOKENS, scores

transformers: Any = import_module("transformers")  # Any: its types are those of all its models, in 2,800 files
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPE: dict[str, Any] = {
    "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30 if DEVICE == "cuda" else 4,
    "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 4096,
}  # fmt: skip
SEQUENCES, LONGEST = (512, 1024) if DEVICE == "cuda" else (12, 96)
REPEATS = 5


def sequences() -> list[Sequence_]:
    """Prompts and responses of many lengths."""
    chance = np.random.default_rng(0)
    made = []
    for index in range(SEQUENCES):
        prompt, response = (chance.integers(0, 49152, chance.integers(LONGEST // 8, LONGEST)).tolist() for _ in (0, 1))
        made.append(Sequence_(0, 0, str(index), tuple(prompt), tuple(response)))
    return made


@torch.inference_mode()
def bare(model: Any, every: list[Sequence_]) -> None:
    """All logits of the same batches."""
    for few in batches([each.length for each in every], BATCH_TOKENS[DEVICE]):
        width = max(every[index].length for index in few)
        ids = torch.zeros((len(few), width), dtype=torch.long)
        for row, index in enumerate(few):
            ids[row, : every[index].length] = torch.tensor((*every[index].prompt, *every[index].response))
        model(input_ids=ids.to(DEVICE), use_cache=False)
        if DEVICE == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    torch.manual_seed(0)
    model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE))
    model = model.float().to(DEVICE).eval()
    every = sequences()
    tokens = sum(each.length for each in every)

    def seconds(call: Callable[[], Any]) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    pairs = [(lambda: bare(model, every)), (lambda: list(scores(model, every)))]
    for call in pairs:
        call()
    times = [[seconds(call) for call in pairs] for _ in range(REPEATS)]
    ratio = statistics.median(ours / forward for forward, ours in times)
    forward, ours = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"{tokens:,} tokens on {DEVICE}, median of {REPEATS} side by side")
    print(f"{'bare forward':16}{tokens / forward:12,.0f} tokens/s")
    print(f"{'rescore':16}{tokens / ours:12,.0f} tokens/s{ratio:8.2f}x the time")
    if DEVICE == "cuda":
        print(f"most memory {torch.cuda.max_memory_allocated() / 1e9:.1f} GB")


if __name__ == "__main__":
    main()
