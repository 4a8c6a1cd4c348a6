"""torchtitan RL's own training samples, batches, losses and policy trainer on a CPU.

Needs torchmonarch and torchtitan's own dependencies on PYTHONPATH, and torchtitan in a folder of SOURCES. Stood in for: vLLM,
torchstore and the kernels of expert parallelism, which need a GPU; the trainer's start, which builds meshes and checkpoints; and
the model, which is a table.
"""

from __future__ import annotations

import asyncio
import pickle
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
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

import_module("monarch.actor")  # its decorators are the real ones
RL = "torchtitan.experiments.rl"
VOCABULARY, HIDDEN, ROW = 13, 8, 32
ABSENT = ("vllm", "torchstore", "renderers", "datasets", "torchtitan.distributed.minimal_async_ep", f"{RL}.models")


@contextmanager
def importable(source: str) -> Iterator[Any]:
    """import_module; afterwards every module is as before."""
    board: Any = ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = object
    with on_path(source), hollow(ABSENT, "torchtitan"):
        before = sys.modules.get(board.__name__)
        sys.modules[board.__name__] = board  # not by mock.patch.dict, which would take torch's later modules off
        try:
            yield import_module
        finally:
            del sys.modules[board.__name__]
            if before is not None:
                sys.modules[board.__name__] = before


class Model(torch.nn.Module):
    """Hidden states by token, and a head, as a Decoder of torchtitan is called."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(5)
        self.hidden = torch.nn.Parameter(torch.randn(VOCABULARY, HIDDEN, generator=draw))
        self.lm_head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.lm_head.weight.data = torch.randn(VOCABULARY, HIDDEN, generator=draw)
        self._skip_lm_head = False

    def get_attention_masks(self, positions: torch.Tensor) -> None:
        return None

    def forward(self, token_ids: torch.Tensor, attention_masks: Any, positions: torch.Tensor) -> torch.Tensor:
        hidden = self.hidden[token_ids]
        return hidden if self._skip_lm_head else self.lm_head(hidden)

    def logprobs(self) -> torch.Tensor:
        """(V, V): of each token after each."""
        return torch.log_softmax((self.hidden @ self.lm_head.weight.t()).detach(), -1)


def trainer_class(of: Any) -> Any:
    """torchtitan's PolicyTrainer, whose start is stood in for."""
    actors, losses = of(f"{RL}.actors.trainer"), of(f"{RL}.losses")

    class Scheduler(SimpleNamespace):
        def step(self) -> None:
            """A constant learning rate."""

    class Trainer(actors.PolicyTrainer):  # type: ignore[name-defined, misc]
        def __init__(self, *, loss: str = "GRPO", chunks: int = 0, dp_rank: int | None = None) -> None:
            config = {"DAPO": losses.DAPOLoss.Config(ratio_clip_high=0.28), "GRPO": losses.GRPOLoss.Config()}[loss]
            if chunks:
                config = of("torchtitan.components.loss").ChunkedLossWrapper.Config(num_chunks=chunks, loss_fn=config)
            self.config = SimpleNamespace(training=SimpleNamespace(max_norm=1.0))
            self.dp_rank = import_module("monarch.actor").current_rank().rank if dp_rank is None else dp_rank
            self.loss_fn, self.device, self.policy_version = config.build(), torch.device("cpu"), 0
            self.parallel_dims = SimpleNamespace(get_optional_mesh=lambda name: None, ep_enabled=False)
            self.train_context = nullcontext
            self.model = Model()
            self.model_parts = [self.model]
            if chunks:
                self.loss_fn.set_lm_head(self.model.lm_head)
                self.model._skip_lm_head = True
            self.optimizers = torch.optim.SGD(self.model.parameters(), lr=0.5)
            self.lr_schedulers = Scheduler(schedulers=[SimpleNamespace(get_last_lr=lambda: [0.5])])

    return Trainer


@dataclass(frozen=True)
class Sampler:
    """An engine that rounds to bfloat16, and tells no log-prob of some tokens."""

    of: Any
    table: torch.Tensor
    draw: random.Random
    version: int
    missing: bool

    def turn(self, prompt: list[int], group: int, rollout: int, turn: int) -> Any:
        ids = [self.draw.randrange(VOCABULARY) for _ in range(2 + self.draw.randrange(3))]
        logprobs = [float(self.table[a, b]) for a, b in zip([prompt[-1], *ids[:-1]], ids, strict=True)]
        if self.missing and rollout:
            logprobs[1] = float("nan")
        return self.of(f"{RL}.rollout.types").RolloutTurn(
            rollout_id=self.of(f"{RL}.types").RolloutTurnID(group_id=group, rollout_id=rollout, turn_id=turn),
            prompt_token_ids=prompt, completion_token_ids=ids, completion_logprobs=logprobs,
            min_policy_version=max(0, self.version - 1), max_policy_version=self.version,
        )  # fmt: skip

    def group(self, number: int, turns: int) -> Any:
        types, rollouts = self.of(f"{RL}.rollout.types"), list[Any]()
        for place in range(2):
            prompt, made = [self.draw.randrange(VOCABULARY) for _ in range(3)], list[Any]()
            for turn in range(turns):
                made.append(self.turn(prompt, number, place, turn))
                reply = [self.draw.randrange(VOCABULARY) for _ in range(2)]
                prompt = [*prompt, *made[-1].completion_token_ids, *reply]
            rollouts.append(
                types.Rollout(
                    group_id=number,
                    rollout_id=place,
                    turns=made,
                    status=types.RolloutStatus.COMPLETED,
                    reward=float(place),
                    advantage=float(place * 2 - 1),
                )  # fmt: skip
            )
        return types.RolloutGroup(group_id=number, rollouts=rollouts)


def batches(of: Any, model: Model, step: int, *, ranks: int, missing: bool, turns: int, multiple: int | None) -> Any:
    """A TrainingBatch of three groups, of torchtitan's own builder and batcher."""
    components = f"{RL}.components"
    batching = of(f"{components}.batcher")
    table = model.logprobs().to(torch.bfloat16).float()
    sampler = Sampler(of, table, random.Random(step), step, missing)
    batcher = batching.Batcher.Config(
        batch=batching.BatchConfig(local_batch_size=1, seq_len=ROW), per_sample_pad_multiple=multiple
    ).build(num_prompts_per_train_step=3, dp_degree=ranks, pad_id=0)
    builder = of(f"{components}.training_sample_builder").TrainingSampleBuilder.Config().build()
    made = None
    for number in range(3):
        group = builder.build_from_group(rollout_group=sampler.group(3 * step + number, turns))
        made = batcher.add_training_samples(training_sample_group=group)
    return made


def drive(
    run_dir: Path | None,
    *,
    source: str = "torchtitan",
    steps: int = 2,
    options: AttachOptions | None = None,
    loss: str = "GRPO",
    chunks: int = 0,
    missing: bool = False,
    turns: int = 2,
    multiple: int | None = None,
    ranks: int = 1,
    named: bool = True,
) -> dict[str, Any]:
    """Trains with torchtitan's own code, recorded into run_dir or not; all that it computed."""
    with importable(source) as of:
        of(f"{RL}.actors.trainer")
        of(f"{RL}.components.training_sample_builder")
        attachment = (
            None if run_dir is None else ratioscope.attach("torchtitan_rl", run_dir, **(options or AttachOptions()))
        )
        seed()
        trainer = trainer_class(of)(loss=loss, chunks=chunks, dp_rank=0)
        endpoint = type(trainer)
        told, held = list[Any](), list[Any]()

        async def train() -> None:
            for step in range(steps):
                batch = batches(of, trainer.model, step, ranks=ranks, missing=missing, turns=turns, multiple=multiple)
                for ranked in batch.microbatches:
                    sent = pickle.loads(pickle.dumps(ranked)) if named else [_plain(one) for one in ranked]  # noqa: S301
                    table = trainer.model.logprobs()
                    for trainer.dp_rank in range(ranks):
                        held.append((step + 1, sent[trainer.dp_rank], table))
                        told.append(
                            await endpoint.forward_backward._method.__wrapped__(
                                trainer, training_data=sent, num_global_valid_tokens=batch.num_global_valid_tokens
                            )
                        )
                told.append(vars_of(await endpoint.optim_step._method.__wrapped__(trainer)))

        asyncio.run(train())
        parameters = [p.detach().clone() for p in trainer.model.parameters()]
        finished = attachment is None or attachment.detach()
    return {
        "told": told,
        "parameters": parameters,
        "held": held,
        "random_state": random.getstate(),
        "attachment": (finished, None if attachment is None else attachment.refused),
    }


def vars_of(output: Any) -> Any:
    return {"policy_version": output.policy_version, "metrics": output.metrics}


def _plain(batch: Any) -> Any:
    """The batch as a transport would leave it that copies values alone."""
    return type(batch)(**{name: getattr(batch, name).clone() for name in batch.__slots__})
