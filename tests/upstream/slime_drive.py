"""slime's own modules on a CPU: a checkout's Sample, conversion, batches, scores, loss and training loop, as far as they go.

Needs a checkout of THUDM/slime in a folder of SOURCES. Megatron, SGLang, Ray and the memory saver are stood in for:
Megatron's process-group queries say one rank, its pipeline calls the forward step once per micro-batch, and cross entropy is
torch's.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from support.hollow import hollow
from support.sources import on_path

import ratioscope
from ratioscope.collectors.watching.recording import AttachOptions

VOCABULARY = 13
ABSENT = (
    "ray",
    "megatron",
    "sglang",
    "sglang_router",
    "torch_memory_saver",
    "transformer_engine",
    "mbridge",
    "pylatexenc",
)


def _one_rank() -> SimpleNamespace:
    kinds = ("data", "context", "tensor_model", "pipeline_model")
    groups = (
        "context_parallel_group",
        "data_parallel_group",
        "data_parallel_group_gloo",
        "tensor_model_parallel_group",
    )
    answers: dict[str, int | None] = {f"get_{kind}_parallel_rank": 0 for kind in kinds}
    answers |= {f"get_{kind}_parallel_world_size": 1 for kind in kinds}
    answers |= {f"get_{group}": None for group in groups}
    answers |= {"get_virtual_pipeline_model_parallel_world_size": None, "get_data_parallel_src_rank": 0}
    names = {name: _always(answer) for name, answer in answers.items()}
    return SimpleNamespace(**names, is_pipeline_last_stage=_always(True))


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *given, **named: answer


def _forward_backward(
    *, forward_step_func: Any, data_iterator: Any, model: Any, num_microbatches: int, forward_only: bool, **_: Any
) -> list[Any]:
    """Megatron's pipeline of one stage."""
    found = []
    for _micro_batch in range(num_microbatches):
        output, loss_function = forward_step_func(data_iterator[0], model[0])
        if forward_only:
            found.append(loss_function(output)[1])
            continue
        loss, _count, logged = loss_function(output)
        (loss / num_microbatches).backward()
        found.append(logged)
    return found


def _log_probs(logits: torch.Tensor, tokens: torch.Tensor, tp_group: Any, **given: Any) -> Any:
    rows = torch.log_softmax(logits, -1)
    entropy = -(rows.exp() * rows).sum(-1) if given.get("with_entropy") else None
    return rows.gather(1, tokens[:, None]), entropy


@contextmanager
def importable(args: Any) -> Iterator[Callable[[str], Any]]:
    """slime's modules, by their names within it; afterwards everything is as before."""
    with on_path("slime"), hollow(ABSENT, "slime", "examples") as imports:
        put = imports.put
        put("megatron.core", mpu=_one_rank())
        put("megatron.core.pipeline_parallel", get_forward_backward_func=lambda: _forward_backward)
        put("megatron.core.utils", get_model_config=lambda model: SimpleNamespace())
        put("megatron.training.global_vars", get_args=lambda: args)
        put("megatron.core.packed_seq_params", PackedSeqParams=SimpleNamespace)
        put("torch.distributed", all_reduce=lambda values, **_: values, gather_object=_gathered)
        put("torch.distributed", get_rank=lambda *_: 0, get_world_size=lambda *_: 1)
        put("torch", compile=lambda function=None, **_: function or (lambda given: given))  # compiling draws numbers
        put("ray", remote=_remote, put=lambda value, **_: value, get=lambda value: value)
        put("slime.utils.ppo_utils", calculate_log_probs_and_entropy=_log_probs)
        cpu = torch.device("cpu")
        put("slime.utils.accelerator", current_device=lambda *_: cpu, device=lambda *_: cpu)
        put("slime.observability.train_metric_utils", log_perf_data=lambda *_, **__: None)
        yield lambda name: importlib.import_module(f"slime.{name}")


def _remote(*given: Any, **named: Any) -> Any:
    """`ray.remote`: a class within a class of Ray's, as Ray does it, and functions unchanged."""
    if not given:
        return _remote
    if not isinstance(given[0], type):
        return given[0]
    return SimpleNamespace(__ray_metadata__=SimpleNamespace(modified_class=given[0]))


def _gathered(value: Any, gathered: list[Any], **_: Any) -> None:
    gathered[0] = value


class Bigram(torch.nn.Module):
    role = "actor"

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(
            torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(seed))
        )
        self.module = SimpleNamespace()

    def forward(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        return self.table[input_ids]

    def zero_grad_buffer(self) -> None:
        pass


class Optimizer:
    """A Megatron optimizer as the training loop calls it."""

    def __init__(self, model: Bigram) -> None:
        self._own, self._model = torch.optim.SGD(model.parameters(), lr=0.5), model
        self.param_groups = self._own.param_groups
        self.history: list[torch.Tensor] = []
        self.gradients: list[torch.Tensor] = []

    def zero_grad(self) -> None:
        self._own.zero_grad()

    def scale_loss(self, loss: Any) -> Any:
        return loss

    def step(self) -> tuple[bool, float, None]:
        self.history.append(self._model.table.detach().clone())
        assert self._model.table.grad is not None
        self.gradients.append(self._model.table.grad.clone())
        norm = float(self._model.table.grad.norm())
        self._own.step()
        return True, norm, None


def arguments(**given: Any) -> Any:
    defaults: dict[str, Any] = dict(
        advantage_estimator="grpo", rewards_normalization=True, grpo_std_normalization=True, n_samples_per_prompt=2,
        rollout_batch_size=4, global_batch_size=4, micro_batch_size=2, use_dynamic_batch_size=False, balance_by_flops=False,
        balance_data=False, rollout_temperature=1.0, rollout_top_p=1.0, allgather_cp=False, log_probs_chunk_size=-1,
        entropy_coef=0.0, eps_clip=0.2, eps_clip_high=0.2, eps_clip_c=None, use_opsm=False, get_mismatch_metrics=False,
        use_tis=False, tis_clip=2.0, tis_clip_low=0.0, custom_tis_function_path=None,
        custom_pg_loss_reducer_function_path=None, use_kl_loss=False, kl_coef=0.0, use_rollout_logprobs=False,
        calculate_per_token_loss=False, loss_type="policy_loss", recompute_loss_function=False, use_critic=False,
        use_opd=False, keep_old_actor=False, use_routing_replay=False, use_rollout_routing_replay=False,
        compute_advantages_and_returns=True, normalize_advantages=False, use_rollout_entropy=False,
        data_pad_size_multiplier=1, custom_megatron_before_log_prob_hook_path=None, seq_length=0, decoder_seq_length=None,
        custom_megatron_before_train_step_hook_path=None, save_debug_train_data=None, save_debug_rollout_data=None,
        enable_mtp_training=False,
        ci_test=False, check_for_nan_in_loss_and_grad=True, use_distributed_optimizer=False, overlap_param_gather=False,
        overlap_grad_reduce=False, reset_optimizer_states=False, manual_gc=False, ci_save_grad_norm=None,
        ci_load_grad_norm=None, log_multi_turn=False, log_passrate=False, log_correct_samples=False, use_tensorboard=False,
        wandb_always_use_train_step=False, ref_update_interval=None, custom_rollout_log_function_path=None,
        load_debug_rollout_data=None, reward_key=None, use_wandb=True, log_reward_category=None,
        sglang_speculative_algorithm=None, rollout_num_gpus=1, update_weights_interval=1, colocate=True,
        custom_advantage_function_path=None, rollout_data_transport="object-store", seed=5, num_experts=None,
    )  # fmt: skip
    return SimpleNamespace(**{**defaults, **given})


def make_samples(sample_class: Any, args: Any, rollout_id: int) -> list[Any]:
    """Samples by slime's own class: single turns, every third of two with a tool's tokens between, every fifth taken out."""
    draw, count = random.Random(rollout_id + args.seed), args.rollout_batch_size * args.n_samples_per_prompt
    samples = []
    for index in range(rollout_id * count, (rollout_id + 1) * count):
        sample = sample_class(group_index=index // args.n_samples_per_prompt, index=index, prompt=f"prompt {index}")
        sample.tokens = [draw.randrange(VOCABULARY) for _ in range(2 + index % 3)]
        for turn in range(2 if index % 3 == 0 else 1):
            if turn:
                sample.append_response_tokens(args, tokens=[1, 2, 3], trainable=False)
            tokens = [draw.randrange(VOCABULARY) for _ in range(3 + index % 4)]
            meta = {
                "finish_reason": {"type": "stop"},
                "weight_version": str(rollout_id + 1),
                "cached_tokens": 1,
                "prompt_tokens": 2,
            }
            log_probs = [-2.5 - draw.random() * 0.1 for _ in tokens]
            sample.append_response_tokens(args, tokens=tokens, log_probs=log_probs, meta_info=meta)
        sample.reward, sample.remove_sample = float(draw.random() < 0.5), index % 5 == 4
        samples.append(sample)
    return samples


def drive(
    run_dir: Path | None, *, rollouts: int = 2, options: AttachOptions | None = None, **settings: Any
) -> dict[str, Any]:
    """Trains a bigram table with slime's own code, recorded into run_dir or not; all that it computed."""
    args = arguments(**settings)
    with importable(args) as module:
        for name in ("backends.megatron_utils.actor", "ray.rollout"):  # what they import may draw
            module(name)
        random.seed(args.seed)
        np.random.seed(args.seed)  # noqa: NPY002
        torch.manual_seed(args.seed)
        attachment = None if run_dir is None else ratioscope.attach("slime", run_dir, **(options or AttachOptions()))
        logs: list[dict[str, Any]] = []
        own_log = SimpleNamespace(log=lambda metrics: logs.append(dict(metrics)))
        with mock.patch.object(module("observability.logging_utils"), "wandb", own_log):
            manager, actor = _manager(module, args), _actor(module, args)
            batches, samples = [], []
            for rollout_id in range(rollouts):
                made = make_samples(module("utils.types").Sample, args, rollout_id)
                samples.append([(one.index, list(one.loss_mask), list(one.weight_versions)) for one in made])
                actor.weight_updater.weight_version = rollout_id + 1
                batches.append(_trained(module, actor, rollout_id, _sent(module, manager, args, rollout_id, made)))
        finished = attachment is None or attachment.detach()
    return {
        "logs": [{k: v for k, v in row.items() if not k.startswith("perf/")} for row in logs],
        "gradients": actor.optimizer.gradients,
        "history": actor.optimizer.history,
        "batches": batches,
        "samples": samples,
        "finished": finished,
        "refused": None if attachment is None else attachment.refused,
        "rng": (random.getstate(), np.random.get_state(), torch.get_rng_state()),  # noqa: NPY002
        "table": actor.model[0].table.detach(),
    }


def _sent(module: Callable[[str], Any], manager: Any, args: Any, rollout_id: int, samples: list[Any]) -> Any:
    """What RolloutManager.generate does with samples; its first half needs engines."""
    dump = module("observability.rollout_data_utils").save_debug_rollout_data
    dump(args.save_debug_rollout_data, samples, rollout_id=rollout_id, evaluation=False)
    module("observability.rollout_metrics").log_rollout_data(rollout_id, args, samples, None, 1.0)
    return manager._split_train_data_by_dp(manager._convert_samples_to_train_data(samples))


def _trained(module: Callable[[str], Any], actor: Any, rollout_id: int, boxes: Any) -> Any:
    """What MegatronTrainRayActor.train does, less putting the model to sleep."""
    timer = module("observability.timer").Timer()
    timer.start("train_wait")
    data = actor._get_rollout_data(boxes)
    actor.train_actor(rollout_id, data)
    timer.end("train_wait")
    return data


def _actor(module: Callable[[str], Any], args: Any) -> Any:
    """A MegatronTrainRayActor whose `init`, which asks for GPUs, is stood in for. The reference model is the actor's own."""
    actor = object.__new__(module("backends.megatron_utils.actor").MegatronTrainRayActor)
    model = Bigram(args.seed)
    actor.args, actor.role, actor.tokenizer = args, "actor", None
    actor.model, actor.optimizer = [model], Optimizer(model)
    actor.opt_param_scheduler = SimpleNamespace(step=lambda increment: None, get_lr=lambda group: 0.5)
    actor.weights_backuper = SimpleNamespace(
        backup_tags={"actor", "ref"}, backup=lambda tag: None, restore=lambda tag: None
    )
    actor._active_model_tag = "actor"
    actor.weight_updater = SimpleNamespace(weight_version=1, pop_metrics=dict)
    actor.rollout_data_postprocess, actor.prof = None, SimpleNamespace(step=lambda rollout_id: None)
    return actor


def _manager(module: Callable[[str], Any], args: Any) -> Any:
    """A RolloutManager without engines, for the methods that turn samples into a batch."""
    manager = object.__new__(module("ray.rollout").RolloutManager.__ray_metadata__.modified_class)
    manager.args, manager.custom_reward_post_process_func = args, None
    manager.custom_convert_samples_to_train_data_func = None
    manager.train_parallel_config = {"dp_size": 1, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}
    return manager
