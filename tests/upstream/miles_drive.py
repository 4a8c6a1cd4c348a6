"""miles' own modules on a CPU: its Sample, conversion, batches, scores, corrections, loss and Megatron actor's training loop.

Needs a checkout of radixark/miles in a folder of SOURCES. Stood in for: Megatron, SGLang, Ray, the memory saver (hollow modules),
the process groups (one rank), Megatron's pipeline, the vocabulary-parallel cross entropy, and the object store. Flags that are
not set are off.
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

slime: Any = importlib.import_module("upstream.slime_drive")

ABSENT = (*slime.ABSENT, "msgspec", "sgl_router", "sglang_miles", "miles.backends.megatron_utils.update_weight")


class Flags(SimpleNamespace):
    """The arguments. A flag that is not set is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def arguments(**given: Any) -> Flags:
    extra = {"qkv_format": "thd", "compress_ratios": None, "opd_kl_coef": 0.0, "use_dynamic_global_batch_size": False}
    extra |= {
        "observe_training_entropy": True,
        "num_layers": 1,
        "hidden_size": 8,
        "num_attention_heads": 1,
        "num_query_groups": 1,
        "kv_channels": 8,
        "ffn_hidden_size": 8,
        "vocab_size": slime.VOCABULARY,
        "taken_out": 4,
    }
    return Flags(**{**vars(slime.arguments()), **extra, "rollout_data_transport": None, **given})


@contextmanager
def importable(args: Any) -> Iterator[Callable[[str], Any]]:
    """miles' modules, by their names within it; afterwards everything is as before."""
    with on_path("miles"), hollow(ABSENT, "miles", "examples") as imports:
        put = imports.put
        put("megatron.core", mpu=slime._one_rank())
        put("megatron.core.pipeline_parallel", get_forward_backward_func=lambda: _forward_backward)
        put("megatron.core.utils", get_model_config=lambda model: SimpleNamespace())
        put("megatron.training.global_vars", get_args=lambda: args)
        put("megatron.core.packed_seq_params", PackedSeqParams=SimpleNamespace)
        put("torch.cuda", current_device=lambda: torch.device("cpu"))
        imports.put_on(torch.Tensor, cuda=lambda tensor, *_, **__: tensor)
        put("torch", compile=lambda function=None, **_: function or (lambda own: own))  # compiling draws numbers
        put("ray", remote=slime._remote, put=lambda value, **_: value, get=lambda value: value)
        put("sglang.srt.debug_utils.dumper", DumperConfig=SimpleNamespace(_kv_pairs_to_dict=lambda pairs: {}))
        torch.distributed.init_process_group(
            "gloo", store=importlib.import_module("torch.distributed").HashStore(), rank=0, world_size=1
        )
        try:
            yield lambda name: importlib.import_module(f"miles.{name}")
        finally:
            torch.distributed.destroy_process_group()


def _forward_backward(
    *, forward_step_func: Any, data_iterator: Any, model: Any, num_microbatches: int, forward_only: bool, **_: Any
) -> list[Any]:
    """Megatron's pipeline of one stage. A pass without a loss collects what its function returns (collect_non_loss_data)."""
    found = []
    for _micro_batch in range(num_microbatches):
        output, loss_function = forward_step_func(data_iterator[0], model[0])
        if forward_only:
            found.append(loss_function(output, non_loss_data=True))
            continue
        loss, _count, logged = loss_function(output)
        (loss / num_microbatches).backward()
        found.append(logged)
    return found


def _place(module: Callable[[str], Any]) -> None:
    group = module("utils.ft_utils.process_group_utils").GroupInfo
    world = torch.distributed.group.WORLD
    one = group(rank=0, size=1, group=world, gloo_group=world)
    parallel = module("backends.training_utils.parallel")
    names = ("intra_dp", "intra_dp_cp", "cp", "tp", "pp", "ep", "etp", "indep_dp")
    parallel.set_parallel_state(parallel.ParallelState(**dict.fromkeys(names, one)))


class Store:
    """The object store, in this process."""

    def put(self, value: Any, value_spec: Any = None) -> Any:
        return dict(value)

    def get(self, ref: Any) -> Any:
        return SimpleNamespace(value=ref, __enter__=lambda: ref, __exit__=lambda *_: None)


def make_samples(sample_class: Any, args: Any, rollout_id: int) -> list[Any]:
    """Samples by miles' own class: single turns, every third of two with a tool's tokens between, every fifth taken out."""
    draw, count = random.Random(rollout_id + args.seed), args.rollout_batch_size * args.n_samples_per_prompt
    samples = []
    for index in range(rollout_id * count, (rollout_id + 1) * count):
        sample = sample_class(group_index=index // args.n_samples_per_prompt, index=index, prompt=f"prompt {index}")
        sample.tokens = [draw.randrange(slime.VOCABULARY) for _ in range(2 + index % 3)]
        sample.loss_mask, sample.rollout_log_probs = [], []
        for turn in range(2 if index % 3 == 0 else 1):
            if turn:
                _append(sample, [1, 2, 3], [0.0] * 3, sampled=False)
            tokens = [draw.randrange(slime.VOCABULARY) for _ in range(3 + index % 4)]
            _append(sample, tokens, [-2.5 - draw.random() * 0.1 for _ in tokens], sampled=True)
            meta = {"finish_reason": {"type": "stop"}, "weight_version": str(rollout_id + 1), "cached_tokens": 1}
            sample.update_from_meta_info(args, meta | {"prompt_tokens": 2, "completion_tokens": len(tokens)})
        sample.reward, sample.remove_sample = float(draw.random() < 0.5), index % 5 == args.taken_out
        samples.append(sample)
    return samples


def _append(sample: Any, tokens: list[int], log_probs: list[float], *, sampled: bool) -> None:
    """What miles' generate functions do with the tokens of an engine or of a tool."""
    sample.tokens += tokens
    sample.response_length += len(tokens)
    sample.loss_mask += [int(sampled)] * len(tokens)
    sample.rollout_log_probs += log_probs


def drive(
    run_dir: Path | None, *, rollouts: int = 2, options: AttachOptions | None = None, **settings: Any
) -> dict[str, Any]:
    """Trains a bigram table with miles' own code, recorded into run_dir or not; all that it computed."""
    args = arguments(**settings)
    with importable(args) as module:
        for name in ("backends.megatron_utils.actor", "ray.rollout.metrics", "ray.rollout.train_data_conversion"):
            module(name)
        _place(module)
        random.seed(args.seed)
        np.random.seed(args.seed)  # noqa: NPY002
        torch.manual_seed(args.seed)
        attachment = None if run_dir is None else ratioscope.attach("miles", run_dir, **(options or AttachOptions()))
        logs: list[dict[str, Any]] = []
        own_log = SimpleNamespace(log=lambda metrics, **_: logs.append(dict(metrics)))
        own_store = SimpleNamespace(**vars(module("utils.object_store")) | {"get_instance": Store})
        with (
            mock.patch.object(module("utils.tracking_utils.tracking"), "_manager", own_log),
            mock.patch.object(module("utils.data"), "object_store", own_store),
            mock.patch.object(module("ray.rollout.train_data_conversion"), "object_store", own_store),
            mock.patch.object(module("backends.training_utils.loss_hub.logit_processors"), SCORES, slime._log_probs),
        ):
            actor = _actor(module, args)
            batches, samples = list[Any](), list[Any]()
            for rollout_id in range(rollouts):
                made = make_samples(module("utils.types").Sample, args, rollout_id)
                samples.append([(one.index, list(one.loss_mask), list(one.weight_versions)) for one in made])
                actor.weight_updater.weight_version = rollout_id + 1
                batches.append(_trained(module, actor, rollout_id, made))
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


SCORES = "calculate_log_probs_and_entropy"


def _trained(module: Callable[[str], Any], actor: Any, rollout_id: int, samples: list[Any]) -> Any:
    """What RolloutManager does with samples that its engines made, and what MegatronTrainRayActor.train does with the shards."""
    conversion, args = module("ray.rollout.train_data_conversion"), actor.args
    module("ray.rollout.debug_data").save_debug_rollout_data(args, samples, rollout_id=rollout_id, evaluation=False)
    module("ray.rollout.metrics").log_rollout_data(rollout_id, args, samples, None, 1.0)
    data = conversion.convert_samples_to_train_data(args, samples, {}, None, None)
    refs = conversion.split_train_data_by_dp(args, data, {"dp_size": 1})
    timer = module("utils.timer").Timer()
    timer.start("train_wait")
    rollout, _ = module("backends.training_utils.data").get_rollout_data(args, refs)
    actor.train_actor(rollout_id, rollout, witness_info=None, attempt=0)
    timer.end("train_wait")
    return rollout


def _actor(module: Callable[[str], Any], args: Any) -> Any:
    """A MegatronTrainRayActor whose `init`, which asks for GPUs, is stood in for. The reference model is the actor's own."""
    actor = object.__new__(module("backends.megatron_utils.actor").MegatronTrainRayActor)
    model = slime.Bigram(args.seed)
    actor.args, actor.role, actor.tokenizer = args, "actor", None
    actor.model, actor.optimizer = [model], slime.Optimizer(model)
    actor.opt_param_scheduler = SimpleNamespace(step=lambda increment: None, get_lr=lambda group: 0.5)
    tags = {"actor", "ref"}
    actor.weights_backuper = SimpleNamespace(backup_tags=tags, backup=lambda tag: None, restore=lambda tag: None)
    actor.with_ref, actor.with_opd_teacher, actor._active_model_tag = True, False, "actor"
    actor.weight_updater = SimpleNamespace(weight_version=1, pop_metrics=dict)
    actor.rollout_data_postprocess, actor.prof = None, SimpleNamespace(step=lambda rollout_id: None)
    actor._ft_test_action_executor, actor._heartbeat = None, SimpleNamespace(bump=lambda: None)
    return actor
