"""The time of a training step on a CUDA device with ratioscope beside the same step without it.

A model with random weights reads a batch for old log-probs, learns from it, and updates. Steps come in turns: plain, with `log`
of three policies, with the scalars of the torch engine (which end in one copy to the host, as a trainer's own metrics do), with
both. Prints the time of each, its ratio to the plain step beside it, and how long `log` held the thread.
"""

import argparse
import statistics
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from ratioscope import Collector
from ratioscope.metrics.engines import torch_engine

transformers: Any = import_module("transformers")  # Any: its types are those of all its models, in 2,800 files
SHAPE: dict[str, Any] = {
    "vocab_size": 32768, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_key_value_heads": 4, "max_position_embeddings": 2048,
}  # fmt: skip
SEQUENCES, LENGTH, AT_A_TIME = 64, 1024, 16
KINDS = {"plain": (), "log": ("log",), "scalars": ("scalars",), "log and scalars": ("log", "scalars")}
"""A kind of step -> the parts of ratioscope it uses."""


def logprobs(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Log-probs of each token but the first, (B, T - 1), float32."""
    with torch.autocast("cuda", torch.bfloat16):
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    return torch.log_softmax(logits.float(), -1).gather(2, ids[:, 1:, None])[:, :, 0]


class Training:
    """A model that learns, and a collector beside it."""

    def __init__(self, collector: Collector) -> None:
        torch.manual_seed(0)
        self.model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE)).to("cuda")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6, fused=True)
        self.ids = torch.randint(0, SHAPE["vocab_size"], (SEQUENCES, LENGTH), device="cuda")
        self.collector, self.held = collector, list[float]()

    def seconds(self, step: int, parts: tuple[str, ...]) -> float:
        """The time of a step, until the device is done."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.no_grad():
            old = torch.cat([logprobs(self.model, ids) for ids in self.ids.split(AT_A_TIME)])
        rollout, current = old + 0.01 * torch.randn_like(old), []
        for place, ids in enumerate(self.ids.split(AT_A_TIME)):
            current.append(logprobs(self.model, ids))
            (current[-1] - old[place * AT_A_TIME :][:AT_A_TIME]).exp().mean().neg().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        policies = {"rollout": rollout, "old": old, "current": torch.cat(current).detach()}
        if "log" in parts:
            before = time.perf_counter()
            self.collector.log(
                step=step, rollout_logprobs=rollout, old_logprobs=old, current_logprobs=policies["current"]
            )
            self.held.append(time.perf_counter() - before)
        if "scalars" in parts:
            torch_engine.scalars(**policies)
        torch.cuda.synchronize()
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    if not torch.cuda.is_available():
        return print("not available, because there is no CUDA device")
    with tempfile.TemporaryDirectory() as folder, Collector(Path(folder) / "run") as collector:
        training = Training(collector)
        took = [
            {
                kind: training.seconds(len(KINDS) * turn + place, parts)
                for place, (kind, parts) in enumerate(KINDS.items())
            }
            for turn in range(rounds + 2)
        ][2:]
    size = sum(parameter.numel() for parameter in training.model.parameters()) / 1e6
    print(f"{size:.0f} million parameters, {SEQUENCES} sequences of {LENGTH} tokens, on {torch.cuda.get_device_name()}")
    for kind in KINDS:
        ratio = statistics.median(turn[kind] / turn["plain"] for turn in took)
        print(f"{kind:20}{statistics.median(turn[kind] for turn in took) * 1e3:10.1f} ms{ratio:10.4f}x")
    first, *held = training.held
    print(
        f"log held the thread {statistics.median(held) * 1e3:.2f} ms, at most {max(held) * 1e3:.2f}; the first {first * 1e3:.1f}"
    )
    print(collector.counts.sequences)


if __name__ == "__main__":
    main()
