"""Megatron-RL's own preparation of a batch on a CPU: statistics of groups, rows, and the comparison of both log-probs.

Needs a checkout of NVIDIA/Megatron-LM in a folder of SOURCES. Stood in for: Megatron's core and training, the agents and their
requests, and the model, whose log-probs come from a table.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from support.hollow import hollow
from support.sources import on_path

import ratioscope
from ratioscope.collectors.watching.recording import AttachOptions

VOCABULARY, WIDTH, PAD, BOS, EOD = 17, 12, 0, 1, 2
ABSENT = (
    "megatron.core", "megatron.training", "wandb", "torch_memory_saver", "transformer_engine_torch", "megatron.rl.agent",
    "megatron.rl.inference", "megatron.rl.server", "megatron.rl.sequence_packing_utils", "megatron.rl.rollout_granularity",
    "megatron.rl.types",
)  # fmt: skip
TOKENIZER = SimpleNamespace(
    library="null", pad=PAD, bos=BOS, eod=EOD, vocab_size=VOCABULARY, detokenize=lambda ids: " ".join(map(str, ids))
)


@dataclass
class Rollout:
    """What rl_utils.py reads of a TokenRollout."""

    trajectory: list[list[int]]
    generation_mask: list[list[bool]]
    logprobs: list[list[float]]
    reward: float
    completion_ids: list[str] = field(default_factory=list)
    env_id: str = "digits"
    generation_cap: int | None = None
    rollout_status: str = "ok"
    failure_reason: str | None = None
    problem_id: str | None = None


@contextmanager
def importable() -> Iterator[Any]:
    """megatron.rl.rl_utils; afterwards every module is as before."""
    board: Any = ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = object
    one: Any = {
        f"get_{kind}_parallel_rank": lambda: 0 for kind in ("tensor_model", "pipeline_model", "context", "data")
    }
    with (
        on_path("megatron_rl"),
        hollow(ABSENT, "megatron") as imports,
        mock.patch.dict(sys.modules, {board.__name__: board}),
    ):
        imports.put("wandb", wandb_run=SimpleNamespace(Run=object))
        imports.put("megatron.core", mpu=SimpleNamespace(**one))
        imports.put("megatron.core.utils", log_single_rank=lambda *given: None)
        imports.put("megatron.rl.agent.api", TokenRollout=Rollout)
        yield import_module("megatron.rl.rl_utils")


def rollouts(table: torch.Tensor, iteration: int) -> tuple[list[list[Rollout]], dict[str, Any]]:
    """Two groups of two, and the records of their requests. An engine rounds; it tells no log-prob of an end token."""
    draw, ledger, groups = random.Random(iteration), dict[str, Any](), []
    logs = torch.log_softmax(table.to(torch.bfloat16).float(), -1)
    for group in range(2):
        prompt = [BOS, *(3 + draw.randrange(VOCABULARY - 3) for _ in range(2 + group))]
        made = []
        for sample in range(2):
            answer = [3 + draw.randrange(VOCABULARY - 3) for _ in range(3 + draw.randrange(3))] + [EOD]
            ids = prompt + answer
            told = [float(logs[a, b]) for a, b in zip(ids[len(prompt) - 1 : -1], answer, strict=True)]
            name = f"{iteration}-{group}-{sample}"
            mask = [False] * len(prompt) + [True] * len(answer)
            made.append(Rollout([ids], [mask], [told[:-1] if sample else told], float(sum(answer) % 3), [name]))
            half = len(prompt) + 2  # the weights changed while this one was sampled
            ledger[name] = SimpleNamespace(
                policy_epoch=[(0, max(iteration - 1, 0)), (half, iteration)], kv_cache_epoch=[(0, max(iteration - 1, 0))],
                num_evictions=0,
            )  # fmt: skip
        groups.append(made)
    return groups, ledger


def drive(run_dir: Path | None, *, steps: int = 3, options: AttachOptions | None = None) -> dict[str, Any]:
    """Prepares batches with Megatron's own code, recorded into run_dir or not; all that it computed."""
    with importable() as module:
        attachment = None
        if run_dir is not None:
            attachment = ratioscope.attach("megatron_rl", run_dir, **(options or AttachOptions()))
        table = torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(3))
        held = []
        for iteration in range(steps):
            module.get_args = lambda iteration=iteration: SimpleNamespace(curr_iteration=iteration, seq_length=WIDTH)
            groups, ledger = rollouts(table, iteration)
            stats = module.compute_group_stats(groups, TOKENIZER, WIDTH, ledger)
            rows = [rollout for group in groups for rollout in group] + [None]
            trajs, masks, told = module.prepare_trajectories(rows, TOKENIZER, WIDTH, False)
            logs = torch.log_softmax(table, -1)
            old = logs[trajs[:, :-1]].gather(2, trajs[:, 1:, None])[..., 0]
            kept = [one for one in told if one is not None]
            aligned = module.align_unpacked_inference_logprobs(
                [one if one is not None else torch.zeros(0) for one in told], old, masks, stats
            )
            held.append(
                {"groups": groups, "old": old, "aligned": aligned, "masks": masks, "trajs": trajs, "told": kept}
            )
            held[-1]["mean"] = stats.mean_piold_to_inf_prob
            held[-1]["advantages"] = list(stats.advantages)
        finished = attachment is None or attachment.detach()
    return {"held": held, "finished": finished, "refused": None if attachment is None else attachment.refused}
