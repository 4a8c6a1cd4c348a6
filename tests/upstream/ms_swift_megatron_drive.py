"""ms-swift's own MegatronGRPOTrainer on a CPU: its collation, advantages, corrections and loss are its source's.

Stood in for, beside what ms_swift_drive.py names: Megatron (one rank), the mixins that talk to it and to an engine, and the
forward pass that its `compute_per_token_logps` makes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

import ratioscope
from ratioscope.collectors.watching.recording import AttachOptions

hf: Any = import_module("upstream.ms_swift_drive")

ABSENT = tuple(
    f"swift.megatron.{name}"
    for name in (
        "init", "arguments", "utils", "convert", "model", "trainers.utils", "trainers.rollout_mixin", "trainers.rlhf_mixin",
        "trainers.vocab_parallel_utils",
    )
)  # fmt: skip
ARGUMENTS = hf.ARGUMENTS | {
    "num_generations_eval": None, "global_batch_size": 2, "micro_batch_size": 1, "per_device_generation_batch_size": 4,
    "truncation_strategy": "raise", "teacher_kl_coef": 0.0, "padding_free": False, "router_replay_mode": "disabled",
    "num_microbatches": 2, "temperature": 1.0,
}  # fmt: skip
ONE_RANK = {
    "get_tensor_model_parallel_rank": 0, "get_context_parallel_rank": 0, "get_data_parallel_group": None,
    "get_data_parallel_world_size": 1, "get_tensor_model_parallel_world_size": 1,
    "get_pipeline_model_parallel_world_size": 1, "get_context_parallel_world_size": 1,
}  # fmt: skip


def _logps(model: Any, inputs: Any) -> torch.Tensor:
    """Log-probs (B, T): place t has that of token t+1."""
    logs = torch.log_softmax(model(inputs["input_ids"]).logits, -1)
    return logs.gather(2, inputs["input_ids"].roll(-1, 1)[..., None])[..., 0]


def _always(value: Any) -> Any:
    return lambda *given, **named: value


def _mixins() -> dict[str, Any]:
    base: Any = import_module("swift.rlhf_trainers.base_rollout_mixin").BaseRolloutTrainerMixin

    class MegatronRolloutMixin(base):  # type: ignore[misc]
        def _get_rollout_group(self) -> None:
            return None

        def _generate_completions(self, samples: list[Any]) -> list[Any]:
            self._last_loaded_step = self._step
            for place, sample in enumerate(samples):
                sample.prompt_id, sample.request_id = sample.messages[-1]["content"], f"request-{place}"
            self._engine.load(self.model)
            return self._postprocess_rollout_outputs(samples, self._engine.answers(samples))  # type: ignore[no-any-return]

        def _log_completions_from_samples(self, samples: list[Any]) -> None:
            pass

        def _flush_log_completions(self) -> None:
            pass

        def _setup_teacher(self) -> None:
            self._has_teacher = self._has_teacher_explicit = self.use_teacher_api = False

        def _prepare_logging(self) -> None:
            self._logs: Any = defaultdict(deque)

        def _all_reduce_metric(self, metrics: Any) -> Any:
            return metrics

        def compute_per_token_logps(self, model: Any, batches: Any, temperature: float) -> Any:
            with torch.no_grad():
                return _logps(model, next(batches)), None

        @contextmanager
        def null_ref_context(self) -> Any:
            yield [self.reference]

    return {"rollout_mixin": MegatronRolloutMixin, "rlhf_mixin": type("MegatronRLHFTrainer", (), {})}


def drive(
    run_dir: Path | None, *, steps: int = 2, options: AttachOptions | None = None, of_ray: bool = False, **settings: Any
) -> dict[str, Any]:
    """Trains a bigram table with ms-swift's Megatron trainer, recorded into run_dir or not; all that it computed.

    of_ray: whether the loss is that of the Ray entry point's workers, which get micro-batches that a driver has made.
    """
    one_rank = SimpleNamespace(**{name: _always(value) for name, value in ONE_RANK.items()})
    with (
        mock.patch.object(hf, "ABSENT", (*hf.ABSENT, *ABSENT)),
        hf.importable(one_rank),
        mock.patch("torch.distributed.all_reduce", lambda *_, **__: None),
        mock.patch("torch.distributed.get_rank", lambda *_, **__: 0),
        mock.patch("torch.distributed.get_world_size", lambda *_, **__: 1),
    ):
        mixins = _mixins()
        for name, mixin in mixins.items():
            setattr(import_module(f"swift.megatron.trainers.{name}"), mixin.__name__, mixin)
        utils: Any = import_module("swift.megatron.trainers.utils")
        utils.gather = lambda values, group=None: values
        utils.gather_object = lambda values, group=None: values
        utils.get_padding_to = None
        import_module("swift.megatron.utils").get_padding_to = lambda args: None  # type: ignore[attr-defined]
        module = import_module("swift.megatron.trainers.grpo_trainer")
        attachment = None if run_dir is None else ratioscope.attach("ms_swift", run_dir, **(options or AttachOptions()))
        trainer, held = _trainer(module, settings), list[Any]()
        worker = import_module("swift.ray.megatron.loss.grpo").GRPOLoss(trainer.args) if of_ray else trainer
        optimizer, losses = torch.optim.SGD(trainer.model.parameters(), lr=0.5), list[torch.Tensor]()
        for step in range(steps):
            buffer = trainer._build_rollout_buffer(iter([[row] for row in _prompts(step)]))
            for batches in buffer:
                optimizer.zero_grad()
                trainer._step += 1
                for data in batches:
                    loss = _loss(trainer, worker, data)
                    (loss / len(batches)).backward()  # type: ignore[no-untyped-call]
                    losses.append(loss.detach())
                    held.append((trainer.state.iteration + 1, data, trainer.model.table.detach().clone()))
                optimizer.step()
                trainer.state.iteration += 1
        finished = attachment is None or attachment.detach()
    return {"losses": losses, "table": trainer.model.table.detach(), "held": held, "attachment": finished}


def _loss(trainer: Any, worker: Any, data: Any) -> torch.Tensor:
    """What `forward_step` hands to the loss on the last stage of a pipeline without packing."""
    current = _logps(trainer.model, data)
    logs = torch.log_softmax(trainer.model(data["input_ids"]).logits, -1)
    entropy = -(logs.exp() * logs).sum(-1) if trainer.compute_entropy else None
    return worker.loss_func(current, data={**data, "per_token_entropy": entropy})[0]  # type: ignore[no-any-return]


def _trainer(module: Any, settings: Any) -> Any:
    args = SimpleNamespace(**{**ARGUMENTS, **settings})
    trainer = object.__new__(module.MegatronGRPOTrainer)
    trainer.args, trainer.template, trainer.model, trainer.reference = args, hf.Template(), hf.Bigram(5), hf.Bigram(6)
    trainer._init_grpo_params()
    trainer.unwrapped_models, trainer.device, trainer.process_index = [trainer.model], torch.device("cpu"), 0
    trainer.state, trainer._step, trainer.temperature = SimpleNamespace(iteration=0), 0, 1.0
    trainer._setup_teacher()
    trainer.use_gym_env = False
    trainer._is_dynamic_self_distillation = trainer.enable_routing_replay = False
    trainer.disable_rollout_importance_sampling, trainer.max_completion_length = False, 8
    trainer.reward_funcs, trainer.reward_model_plugins = [hf._reward], [None]
    trainer.reward_func_names, trainer.reward_weights = ["digits"], torch.ones(1)
    trainer._metrics, trainer._logs = {"train": defaultdict(list)}, defaultdict(deque) | {"rewards": defaultdict(deque)}
    trainer._engine = hf.Engine(trainer.model)
    trainer.get_num_iters_per_step = lambda: 2
    return trainer


def _prompts(step: int) -> list[dict[str, Any]]:
    return [{"messages": [{"role": "user", "content": f"{1 + step} {2 + group} {3 + group}"}]} for group in range(2)]
