"""A stand-in for open-instruct, which is not published as a package: its training loop around functions of exact signature.

The loop follows PolicyTrainerRayProcess.step of grpo_fast.py, preparation DataPreparationActor of data_loader.py (allenai/
open-instruct at e6c3044a, 2026-08-20); both are Ray actors, whose classes an adapter cannot watch. What it can is in
open_instruct_functions.py. The model is a table of bigram logits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import ratioscope
from standins.module_table import importable
from standins.open_instruct_functions import (
    TABLE,
    Batch,
    CollatedBatchData,
    GenerationResult,
    Tensors,
    accumulate_inference_batches,
    maybe_mask_truncated_completions,
    pack_sequences,
    prepare_collated_data_for_workers,
)

VOCABULARY, PAD, PROMPTS, SAMPLES, PACK = 9, 0, 4, 2, 26


class Tokenizer:
    pad_token_id = PAD

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(chr(97 + int(i)) for i in ids)

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        return [chr(97 + i) for i in ids]


@dataclass
class Setting:
    """What a run is made with: part of GRPOExperimentConfig, and the place of this rank."""

    num_mini_batches: int = 2
    num_epochs: int = 2
    use_vllm_logprobs: bool = False
    use_rho_correction: bool = True
    rho_mask_upper_bound: float = 1.02
    record_entropy: bool = True
    load_ref_policy: bool = True
    mask_tool_use: bool = True
    mask_truncated: bool = False
    data_parallel: int = 1
    data_rank: int = 0
    sequence_parallel: int = 1
    sequence_rank: int = 0


def generated(logits: torch.Tensor, step: int) -> tuple[GenerationResult, Batch]:
    """Responses of one step, with tool tokens and one log-prob that the engine did not give."""
    logprobs = logits.detach().log_softmax(1)
    result, batch = GenerationResult([], [], [], []), Batch([], [], [], [], [])
    for number in range(PROMPTS * SAMPLES):
        prompt, last = number // SAMPLES, 3
        response, mask, scores = list[int](), list[int](), list[float]()
        for place in range(4 + number):
            is_tool = place in (2, 3) and number % 3 == 0
            token = 2 if is_tool else 1 + int(torch.multinomial(logprobs[last, 1:].exp(), 1))
            response.append(token)
            mask.append(int(not is_tool))
            scores.append(0.0 if is_tool else min(float(logprobs[last, token]) + 0.02 * random.gauss(0, 1), -1e-6))
            last = token
        if number == 1:
            scores[-1] = math.nan
        result.responses.append(response)
        result.masks.append(mask)
        result.logprobs.append(scores)
        result.finish_reasons.append("length" if number == 5 else "stop")
        batch.queries.append([1 + prompt, 3][: 1 + prompt % 2] + [3])
        assert batch.raw_queries is not None and batch.indices is not None and batch.scores is not None
        batch.raw_queries.append(f"question {prompt}")
        batch.indices.append(100 + prompt)
        batch.scores.append(number / 8)
        batch.model_steps.append(max(0, step - number % 3))
    return result, batch


def prepared(setting: Setting, logits: torch.Tensor, step: int, names: Any) -> tuple[list[CollatedBatchData], Any]:
    """The loop of DataPreparationActor, of one step counted from 0. names: the module, or this one where nobody watches."""
    result, batch = names.accumulate_inference_batches(
        lambda training_step: generated(logits, training_step), None, num_prompts=PROMPTS, training_step=step
    )
    batch = names.maybe_mask_truncated_completions(result, batch, setting.mask_truncated)
    packed = names.pack_sequences(
        queries=batch.queries, responses=result.responses, masks=result.masks, pack_length=PACK, pad_token_id=PAD,
        vllm_logprobs=result.logprobs, mask_tool_use=setting.mask_tool_use,
    )  # fmt: skip
    advantages = torch.tensor([0.0, *(score - 0.5 for score in batch.scores)])
    packed.advantages = [advantages[mask] for mask in packed.response_masks]
    packed.response_masks = [mask.bool() for mask in packed.response_masks]
    sent = names.prepare_collated_data_for_workers(packed, setting.data_parallel, 1, PAD)
    return sent, (result, batch)


class Worker:
    """A rank of the trainer, as grpo_fast's."""

    def __init__(self, setting: Setting, loader: Any) -> None:
        self.setting, self.loader = setting, loader
        self.logits = torch.nn.Parameter(torch.linspace(-1, 1, VOCABULARY**2).reshape(VOCABULARY, VOCABULARY).clone())
        self.reference = self.logits.detach().clone() * 0.9
        self.optimizer = torch.optim.SGD([self.logits], lr=2.0)
        self.losses: list[float] = []
        self.gradients: list[list[float]] = []
        self.held: list[dict[str, Any]] = []
        self.logs: list[dict[str, Any]] = []

    def scores(self, logits: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        every = logits[tokens[:, :-1]].log_softmax(-1)
        return every.gather(-1, tokens[:, 1:, None])[..., 0], -(every.exp() * every).sum(-1).detach()

    def step(self, whole: CollatedBatchData) -> None:
        setting, loss_module = self.setting, import_module("open_instruct.grpo_utils")
        data = whole
        if setting.sequence_parallel > 1:
            splitter = import_module("open_instruct.utils").UlyssesSPSplitter
            data = splitter(setting.sequence_rank, setting.sequence_parallel).split_collated_batch(whole)
        data = data.to(torch.device("cpu"))
        each_update = max(math.ceil(len(data) / setting.num_mini_batches - 0.5), 1)
        data = data[: len(data) - len(data) % each_update]
        packs = len(data)
        masks = [mask[:, 1:] for mask in data.response_masks]
        cache: list[torch.Tensor | None] = [None] * packs
        updates = packs // each_update
        for i in range(packs if updates > 1 else 0):
            with torch.no_grad():
                given = data.vllm_logprobs[i][:, 1:] if setting.use_vllm_logprobs else None
                own = self.scores(self.logits, data.query_responses[i])[0] if given is None else given
                cache[i] = loss_module.mask_logprobs(own, masks[i])
        stats: dict[str, Any] = {"loss/total": torch.zeros(packs)}
        histograms: dict[str, Tensors] = {}
        for epoch in range(setting.num_epochs):
            for i in range(packs):
                new, entropy = self.scores(self.logits, data.query_responses[i])
                new = loss_module.mask_logprobs(new, masks[i])
                vllm = loss_module.mask_logprobs(data.vllm_logprobs[i][:, 1:], masks[i])
                old = loss_module.resolve_old_logprob(cache, i, epoch, updates, setting.use_vllm_logprobs, vllm, new)
                rho = loss_module.compute_rho_correction(old, vllm, masks[i], data.advantages[i][:, 1:], setting)
                for key, values in rho.histogram_metrics.items():
                    histograms.setdefault(key, []).append(values.detach())
                ratio = (new - old).exp()
                per_token = -rho.weights * ratio * data.advantages[i][:, 1:] * masks[i]
                loss = per_token.sum() / 20
                loss.backward()
                if (i + 1) % each_update == 0:
                    assert self.logits.grad is not None
                    self.gradients.append(self.logits.grad.reshape(-1).tolist())
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                self.losses.append(float(loss.detach()))
                with torch.no_grad():
                    reference = self.scores(self.reference, data.query_responses[i])[0]
                loss_module.populate_sample_loss_stats(
                    stats, i, per_token, ratio, ratio, loss, masks[i], new, reference if setting.load_ref_policy else None,
                    entropy if setting.record_entropy else None, setting, rho_metrics=rho.metrics,
                )  # fmt: skip
                self.held.append(
                    {"step": self.loader.training_step, "pack": i, "update": (epoch * packs + i) // each_update,
                     "current": new.tolist(), "old": old.tolist(), "kept": (rho.weights != 0).tolist(),
                     "entropy": entropy.tolist(), "reference": reference.tolist()}
                )  # fmt: skip
        self.logs.append({"loss": self.losses[-1], **loss_module.finalize_rho_histograms(histograms)})
        sync = import_module("open_instruct.vllm_utils").broadcast_weights_to_vllm
        sync(self.logits, [], None, model_step=self.loader.training_step)


def plain(data: CollatedBatchData) -> dict[str, Any]:
    return {one.name: [tensor.tolist() for tensor in getattr(data, one.name)] for one in fields(data)}


Elsewhere = SimpleNamespace(
    accumulate_inference_batches=accumulate_inference_batches,
    maybe_mask_truncated_completions=maybe_mask_truncated_completions,
    pack_sequences=pack_sequences,
    prepare_collated_data_for_workers=prepare_collated_data_for_workers,
)
"""The data preparation of another process: nobody watches it here."""


def drive(
    run_dir: Path | None,
    *,
    steps: int = 2,
    setting: Setting | None = None,
    preparation: bool = True,
    first_step: int = 1,
    during: Callable[[], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Trains one rank for some steps, data preparation included, recorded into run_dir if there is one; what it computed.

    preparation: whether that is in this process; it runs in any case. during: called when the modules have been imported.
    options: of `ratioscope.attach`.
    """
    torch.manual_seed(11)
    random.seed(11)
    np.random.seed(11)
    own = setting or Setting()
    before = repr(own)
    attached = None if run_dir is None else ratioscope.attach("open-instruct", run_dir, **options)
    try:
        with importable(TABLE):
            modules = {name: import_module(name) for name in TABLE}
            if during is not None:
                during()
            data_loader = modules["open_instruct.data_loader"]
            loader = data_loader.StreamingDataLoader(tokenizer=Tokenizer(), dp_rank=own.data_rank)
            worker = Worker(own, loader)
            batches, results = [], []
            for step in range(first_step, first_step + steps):
                names = data_loader if preparation else Elsewhere
                sent, result = prepared(own, worker.logits, step - 1, names)
                loader.training_step = step
                batches.append(plain(sent[own.data_rank]))
                results.append(repr(result))
                worker.step(sent[own.data_rank])
                if attached is not None and options.get("scalars"):
                    attached.collector.flush(30)  # so that which step's scalars are ready is no matter of speed
    finally:
        if attached is not None:
            assert attached.detach(60)
    return {
        "losses": worker.losses,
        "gradients": worker.gradients,
        "weights": worker.logits.detach().reshape(-1).tolist(),
        "batch": batches,
        "results": results,
        "held": worker.held,
        "logs": worker.logs,
        "config_unchanged": repr(own) == before,
        "rng": (random.random(), float(np.random.rand()), float(torch.rand(()))),
    }
