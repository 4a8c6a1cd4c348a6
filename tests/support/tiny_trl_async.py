"""TRL's real AsyncGRPOTrainer on a CPU, with or without a collector: what it did, to the last bit.

Real: the trainer, its queue dataset, planners, collator, dispatch, packing, fused head and loss. Ours: the worker, which samples
from a bfloat16 copy of the weights it was last sent, a few samples ahead of training so that some are stale; the transfer of
weights to it; and the attention kernel, which TRL has for a GPU only and which is written out here over the same arguments.
"""

from __future__ import annotations

import importlib
import queue
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch
from safetensors.torch import save_file

from support.tiny_trl import MAX_NEW, PROMPTS, TrainingTrace, attached, datasets, tiny_model, tiny_tokenizer

if TYPE_CHECKING:
    from ratioscope.collectors.watching.recording import AttachOptions

# Any: their annotations describe every model and processor there is
async_grpo: Any = importlib.import_module("trl.experimental.async_grpo")
trainer_module: Any = importlib.import_module("trl.experimental.async_grpo.async_grpo_trainer")
packing: Any = importlib.import_module("trl.experimental.async_grpo.packing")
worker_module: Any = importlib.import_module("trl.experimental.async_grpo.async_rollout_worker")

GENERATIONS = 4
_CLOCKS = re.compile("time|per_second|^perf/")


def train_async(
    run_dir: Path | None,
    *,
    steps: int = 4,
    ahead: int = 8,
    options: AttachOptions | None = None,
    **settings: Any,
) -> TrainingTrace:
    """Trains, with a collector writing to `run_dir` or, if that is None, without. ahead: samples drawn with the same weights."""
    with TemporaryDirectory() as folder, without_a_gpu():
        trainer = make_async_trainer(folder, ahead=ahead, max_steps=steps, **settings)
        attachment = attached(trainer, run_dir, options)
        trainer.train()
        if attachment is not None:
            attachment.detach()
    return TrainingTrace(
        log_history=[{k: v for k, v in entry.items() if not _CLOCKS.search(k)} for entry in trainer.state.log_history],
        losses=trainer.losses,
        gradients=trainer.gradients,
        parameters={name: p.detach().clone() for name, p in trainer.model.named_parameters()},
        random_state=(random.getstate(), np.random.get_state(), torch.get_rng_state()),
        settings={k: v for k, v in trainer.args.to_dict().items() if "dir" not in k},
        batches=trainer.batches,
        rewards={},
        sensitivities=[],
        gathered=[],
        sampled={},
        attachment=attachment,
    )


class WatchedAsyncTrainer(async_grpo.AsyncGRPOTrainer):  # type: ignore[misc]
    """The real trainer, which keeps copies of what it held."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.losses: list[torch.Tensor] = []
        self.gradients: list[dict[str, torch.Tensor]] = []
        self.batches: list[dict[str, Any]] = []
        super().__init__(*arguments, **named)

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
        held = {k: v.detach().clone() for k, v in inputs.items() if not k.startswith("ratioscope")}
        kept: list[Any] = []
        handle = model.register_forward_hook(lambda *seen: kept.append(seen[-1]))
        loss = super().compute_loss(model, inputs, *arguments, **named)
        handle.remove()
        held |= {"current": kept[0].log_probs.detach().clone(), "entropy": kept[0].entropy.detach().clone()}
        self.batches.append({**held, "global_step": self.state.global_step})
        self.losses.append(loss.detach().clone())
        return loss

    def training_step(self, *arguments: Any, **named: Any) -> Any:
        result = super().training_step(*arguments, **named)
        grads = {name: p.grad.detach().clone() for name, p in self.model.named_parameters() if p.grad is not None}
        self.gradients.append(grads)
        return result


def make_async_trainer(folder: str, *, ahead: int = 8, **settings: Any) -> Any:
    """A trainer with two micro-batches of four samples per step, weights synced after every step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = tiny_model()
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    save_file(
        model.state_dict(), Path(folder) / "model.safetensors", {"format": "pt"}
    )  # save_pretrained: rank 0's alone
    defaults: dict[str, Any] = dict(
        output_dir=folder, use_cpu=True, max_steps=3, per_device_train_batch_size=4, num_generations=GENERATIONS,
        gradient_accumulation_steps=2, temperature=0.9, learning_rate=5e-3, logging_steps=1, report_to=[], save_strategy="no",
        dataloader_pin_memory=False, disable_tqdm=True, seed=3, bf16=False, gradient_checkpointing=False, dtype="float32",
        token_budget=0, max_staleness=4,
    )  # fmt: skip
    worker = Worker(ahead)
    return WatchedAsyncTrainer(
        model=folder,
        args=async_grpo.AsyncGRPOConfig(**{**defaults, **settings}),
        train_dataset=datasets.Dataset.from_dict({"prompt": list(PROMPTS)}),
        processing_class=tiny_tokenizer(),
        rollout_worker=worker,
        weight_transfer=worker,
    )


@contextmanager
def without_a_gpu() -> Iterator[None]:
    """In the place of what TRL asks a GPU for: the attention kernel, and the device's speed, which it only divides by."""
    kernel = SimpleNamespace(flash_attn_varlen_func=attention)
    with (
        patch.object(packing, "_flash_attn", lambda: kernel),
        patch.object(trainer_module, "get_peak_flops_per_device", lambda *_: None),
    ):
        yield


class Worker:
    """Samples when it is asked to, `ahead` samples at a time with the weights it has then, and tells which they are.

    Every other conversation has two turns, with tokens of a tool in between; a group is four conversations.
    """

    def __init__(self, ahead: int) -> None:
        self.rollout_buffer, self.metrics_queue = self, queue.Queue[Any]()
        self.model_version = 0
        self.given: list[Any] = []
        self._ahead, self._ready, self._number = ahead, queue.Queue[Any](), 0
        self._generator = torch.Generator().manual_seed(11)
        self._tokenizer = tiny_tokenizer()
        with torch.random.fork_rng():
            self._engine = tiny_model().to(torch.bfloat16).eval()

    def get(self, timeout: float | None = None) -> Any:
        if self._ready.empty():
            for _ in range(self._ahead):
                self._ready.put(self._sampled())
        self.given.append(self._ready.get())
        return self.given[-1]

    def qsize(self) -> int:
        return self._ready.qsize()

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def init_weight_transfer(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def destroy(self) -> None: ...

    def check_health(self, stale_after_s: float) -> None:
        raise AssertionError("there is always a sample")

    def update_model_version(self, model_version: int) -> None:
        self.model_version = model_version

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        self._engine.load_state_dict(dict(iterator), strict=False)

    def _sampled(self) -> Any:
        number, self._number = self._number, self._number + 1
        group = number // GENERATIONS
        prompt = PROMPTS[group % len(PROMPTS)]
        ids = list(self._tokenizer(prompt)["input_ids"])
        mask, logprobs = [0] * len(ids), [0.0] * len(ids)
        self._turn(ids, mask, logprobs, MAX_NEW // 2)
        if number % 2:  # a tool answers, and the model goes on
            ids += [15, 16]
            mask += [0, 0]
            logprobs += [0.0, 0.0]
            self._turn(ids, mask, logprobs, MAX_NEW // 2)
        reward = sum(3 <= token <= 12 for token in ids) / MAX_NEW
        return worker_module.RolloutSample(
            prompt=[{"role": "user", "content": prompt}], completion=[], input_ids=np.array(ids),
            completion_mask=np.array(mask), old_log_probs=np.array(logprobs, np.float32), advantage=reward - 0.5,
            model_version=self.model_version, group_id=group, metrics={"reward": reward, "rewards/digits": reward},
        )  # fmt: skip

    @torch.no_grad()
    def _turn(self, ids: list[int], mask: list[int], logprobs: list[float], most: int) -> None:
        for _ in range(most):
            logits = self._engine(torch.tensor([ids])).logits[0, -1].float() / 0.9
            distribution = torch.log_softmax(logits, -1)
            token = int(torch.multinomial(distribution.exp(), 1, generator=self._generator))
            ids.append(token)
            mask.append(1)
            logprobs.append(float(distribution[token]))
            if token == 1:
                return


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_q: torch.Tensor, cu_k: torch.Tensor, *sizes: int, **named: Any
) -> torch.Tensor:
    """Attention of packed segments: query i of a segment sees the keys up to its own, which are the last of its path."""
    made = []
    for (a, b), (c, d) in zip(_pairs(cu_q), _pairs(cu_k), strict=True):
        sees = torch.ones(b - a, d - c, dtype=torch.bool).tril(d - c - (b - a))
        query, key, value = (tensor.transpose(0, 1) for tensor in (q[a:b], k[c:d], v[c:d]))
        weights = (query @ key.transpose(1, 2) * named["softmax_scale"]).masked_fill(~sees, -torch.inf).softmax(-1)
        out = weights @ value
        made.append(out.transpose(0, 1))
    return torch.cat(made)


def _pairs(edges: torch.Tensor) -> Iterator[tuple[int, int]]:
    ends = edges.tolist()
    return zip(ends[:-1], ends[1:], strict=True)
