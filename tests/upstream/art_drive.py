"""ART's own packing, inputs, log-probs and loss on a CPU, of art/preprocessing/pack.py, art/unsloth/train.py and art/loss.py.

Needs the unpacked wheel of openpipe-art in a folder of SOURCES. Stood in for: what tokenises (openai's types), peft, the trainer
object, whose methods ART replaces anyway, and the model, which is a table of hidden states.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from support.adapter_properties import seed
from support.hollow import hollow
from support.sources import on_path

import ratioscope
from ratioscope.collectors.watching.recording import AttachOptions

VOCABULARY, HIDDEN, WIDTH = 13, 8, 64
ABSENT = (
    "peft", "nest_asyncio", "openai", "art.openai", "art.trajectories", "art.preprocessing.tokenize", "art.metrics",
    "art.metrics_taxonomy", "art.model",
)  # fmt: skip
PACKAGES = ("art", "art.utils", "art.unsloth", "art.preprocessing", "art.megatron")
"""Packages whose `__init__` imports all of ART; their modules are imported without it."""


@contextmanager
def importable(source: str) -> Iterator[Any]:
    """art.unsloth.train; afterwards every module is as before."""
    with on_path(source) as folder, hollow(ABSENT, "art"):
        for name in PACKAGES:
            module = ModuleType(name)
            module.__path__ = [str(folder / name.replace(".", "/"))]
            sys.modules[name] = module
        yield import_module


class Model(torch.nn.Module):
    """Hidden states by token, and a head."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(5)
        self.hidden = torch.nn.Parameter(torch.randn(VOCABULARY, HIDDEN, generator=draw))
        self.head = torch.nn.Parameter(torch.randn(VOCABULARY, HIDDEN, generator=draw), requires_grad=False)

    def get_output_embeddings(self) -> Any:
        return SimpleNamespace(weight=self.head)

    def forward(self, input_ids: torch.Tensor, causal_mask: torch.Tensor) -> Any:
        return SimpleNamespace(logits=self.hidden[input_ids])


class Result:
    """What pack.py reads of a TokenizedResult."""

    pixel_values = image_grid_thw = moe_routed_experts = None

    def __init__(self, prompt: list[int], answer: list[int], logprobs: list[float], **known: Any) -> None:
        vars(self).update(known)
        self.prompt_length, self.token_ids = (
            len(prompt) - 1,
            prompt + answer,
        )  # ART shares all of a prompt but its last token
        self.assistant_mask = [0] * len(prompt) + [1] * len(answer)
        self.logprobs = [float("nan")] * len(prompt) + logprobs
        self.input_pos = list(range(len(self.token_ids)))

    def without_prompt(self) -> Any:
        made = object.__new__(Result)
        vars(made).update(vars(self), prompt_length=0)
        for name in ("token_ids", "assistant_mask", "logprobs", "input_pos"):
            setattr(made, name, getattr(self, name)[self.prompt_length :])
        return made


def results(model: Model, step: int, missing: bool) -> list[Result]:
    """Three prompts with two answers each; the sampler rounds to bfloat16, and tells no log-prob of some tokens."""
    draw, found = random.Random(step), []
    table = torch.log_softmax((model.hidden @ model.head.t()).detach().to(torch.bfloat16).float(), -1)
    for prompt_id in (101, 102, 103):
        prompt = [draw.randrange(VOCABULARY) for _ in range(3)]
        for answer in range(2):
            ids = [draw.randrange(VOCABULARY) for _ in range(3 + draw.randrange(4))]
            before = [prompt[-1], *ids[:-1]]
            logprobs = [float(table[a, b]) for a, b in zip(before, ids, strict=True)]
            if missing and answer:
                logprobs[1] = float("nan")
            known = {"advantage": float(answer * 2 - 1), "weight": 1.0, "prompt_id": prompt_id * 10 + step}
            found.append(Result(prompt, ids, logprobs, **known))
    return found


def drive(
    run_dir: Path | None,
    *,
    source: str = "art",
    steps: int = 2,
    options: AttachOptions | None = None,
    missing: bool = False,
    precalculated: bool = False,
    **experimental: Any,
) -> dict[str, Any]:
    """Trains with ART's own code, recorded into run_dir or not; all that it computed."""
    with importable(source) as of:
        attachment = None if run_dir is None else ratioscope.attach("art", run_dir, **(options or AttachOptions()))
        train, pack = of("art.unsloth.train"), of("art.preprocessing.pack")
        inputs_of, types = of("art.preprocessing.inputs").create_train_inputs, of("art.types")
        seed()  # importing draws random numbers
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)  # ART sets the learning rate in its loss function
        trainer = SimpleNamespace(
            model=model, optimizer=optimizer, accelerator=SimpleNamespace(device=torch.device("cpu")),
            _metrics={"train": defaultdict(list)}, state=SimpleNamespace(global_step=0),
        )  # fmt: skip
        compute_loss = train.get_compute_loss_fn(trainer)
        config, held, losses = types.TrainConfig(learning_rate=0.5), list[Any](), list[torch.Tensor]()
        settings = {"logprob_calculation_chunk_size": WIDTH, **experimental}
        for step in range(steps):
            packed = pack.packed_tensors_from_tokenized_results(results(model, step, missing), WIDTH, pad_token_id=0)
            rows = len(packed["tokens"])
            if precalculated:  # as run_unsloth_rl_training does, by the same loss function
                packed["original_logprobs"] = packed["logprobs"]
                asked = [
                    inputs_of(packed, row, config, settings, False) | {"return_new_logprobs": True}
                    for row in range(rows)
                ]
                packed["logprobs"] = torch.cat([compute_loss(model, one) for one in asked])
            for row in range(rows):
                optimizer.zero_grad()
                inputs = inputs_of(packed, row, config, settings, False)
                tensors = {name: one for name, one in inputs.items() if torch.is_tensor(one)}
                held.append((trainer.state.global_step + 1, tensors, [p.detach().clone() for p in model.parameters()]))
                loss = compute_loss(model, inputs)
                loss.backward()
                losses.append(loss.detach())
                optimizer.step()
                trainer.state.global_step += 1
        finished = attachment is None or attachment.detach()
    return {
        "losses": losses,
        "parameters": [p.detach() for p in model.parameters()],
        "gradients": [p.grad for p in model.parameters()],
        "metrics": dict(trainer._metrics["train"]),
        "held": held,
        "random_state": random.getstate(),
        "attachment": (finished, None if attachment is None else attachment.refused),
    }
