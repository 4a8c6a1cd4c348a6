"""A small training by verl's own trainers, workers and losses, on a CPU in one process: see verl_tiny.py for what stands in.

`drive(run_dir)` trains with the adapter on and `drive(None)` without; both return all that training computed. trainer: sync,
colocate_async or separate_async (V1, verl's `fit`), v0 (RayPPOTrainer.fit) or fully_async (its steps in their order).
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

import ratioscope
from ratioscope.collectors.attach import Attachment

_REASON = "verl is not importable here"
tiny: Any = pytest.importorskip("upstream.verl_tiny", reason=_REASON)
hydra: Any = pytest.importorskip("hydra", reason=_REASON)
omegaconf: Any = pytest.importorskip("omegaconf", reason=_REASON)
tensordict: Any = pytest.importorskip("tensordict", reason=_REASON)
transfer_queue: Any = pytest.importorskip("transfer_queue", reason=_REASON)
verl: Any = pytest.importorskip("verl", reason=_REASON)
checkpoint_base: Any = pytest.importorskip("verl.checkpoint_engine.base", reason=_REASON)
ray_trainer: Any = pytest.importorskip("verl.trainer.ppo.ray_trainer", reason=_REASON)
trainer_base: Any = pytest.importorskip("verl.trainer.ppo.v1.trainer_base", reason=_REASON)
separate_async: Any = pytest.importorskip("verl.trainer.ppo.v1.trainer_separate_async", reason=_REASON)
colocate_async: Any = pytest.importorskip("verl.trainer.ppo.v1.trainer_colocate_async", reason=_REASON)
sync: Any = pytest.importorskip("verl.trainer.ppo.v1.trainer_sync", reason=_REASON)
fully_async: Any = pytest.importorskip("verl.experimental.fully_async_policy.fully_async_trainer", reason=_REASON)
transferqueue_utils: Any = pytest.importorskip("verl.utils.transferqueue_utils", reason=_REASON)
tu: Any = pytest.importorskip("verl.utils.tensordict_utils", reason=_REASON)
as_dataclass: Any = pytest.importorskip("verl.utils.config", reason=_REASON).omega_conf_to_dataclass
padding: Any = pytest.importorskip("verl.workers.utils.padding", reason=_REASON)
losses: Any = pytest.importorskip("verl.workers.utils.losses", reason=_REASON)
OmegaConf, DataProto = omegaconf.OmegaConf, verl.DataProto

PROMPTS, SAMPLES, LONGEST = 3, 2, 9
_V1 = {
    "sync": sync.PPOTrainerSync,
    "colocate_async": colocate_async.PPOTrainerColocateAsync,
    "separate_async": separate_async.PPOTrainerSeparateAsync,
}


class Training:
    """One run of training. Everything that computing it yields is in `trace`."""

    def __init__(
        self, trainer: str = "sync", *, steps: int = 2, workers: int = 1, copies: int = 0, **settings: Any
    ) -> None:
        self.kind, self.steps, self.most_tokens = trainer, steps, settings.get("most_tokens")
        self.config = configuration(trainer, steps, settings)
        self.queue = tiny.TinyQueue()
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.batches: list[dict[str, Any]] = []
        self.workers = [self._worker(rank, workers) for rank in range(workers)]
        self.group = tiny.TinyGroup(
            self.workers, [self._worker(rank, workers, is_source=False) for rank in range(copies)]
        )
        self.sampled = np.random.default_rng(11)
        self.noise = float(settings.get("noise", 0.05))
        self.trainer = self._trainer()

    def run(self) -> dict[str, Any]:
        seed(3)
        with ExitStack() as stack:
            for name in ("init", "get_client", "kv_batch_put", "kv_batch_get", "kv_clear", "kv_list"):
                stack.enter_context(mock.patch.object(transfer_queue, name, getattr(self.queue, name)))
            stack.enter_context(mock.patch.object(transferqueue_utils, "TQ_INITIALIZED", True))
            stack.enter_context(mock.patch.object(checkpoint_base, "ray", SimpleNamespace(get=lambda value: value)))
            stack.enter_context(mock.patch("verl.utils.tracking.Tracking.__init__", _tracking_to(self.logged)))
            stack.enter_context(mock.patch("verl.utils.tracking.Tracking.finish", lambda *a, **k: None))
            self._fit()
        return self.trace

    @property
    def engines(self) -> list[Any]:
        return [worker.actor.engine for worker in self.workers]

    @property
    def trace(self) -> dict[str, Any]:
        return {
            "weights": [engine.table.detach().clone() for engine in self.engines],
            "gradients": [engine.gradients for engine in self.engines],
            "losses": [engine.losses for engine in self.engines],
            "rng": (random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()),
            "logged": [(step, _untimed(metrics)) for step, metrics in self.logged],
            "config": OmegaConf.to_container(self.config, resolve=True),
            "batches": self.batches,
            "held": [held(self.batches, engine.seen) for engine in self.engines],
            "synced": self.group.versions,
        }

    def _fit(self) -> None:
        if self.kind in _V1:
            self.trainer._load_checkpoint()
            self.trainer.on_init_end()
            self.trainer.fit(None)
        elif self.kind == "v0":
            self.trainer.fit()
        else:
            _fully_async(self)

    def _worker(self, rank: int, workers: int, is_source: bool = True) -> Any:
        actor = as_dataclass(self.config.actor_rollout_ref.actor)
        engine = tiny.BigramEngine(dp_rank=rank, dp_size=workers, is_source=is_source)
        loss, most_tokens = partial(losses.ppo_loss, config=actor), self.most_tokens
        return tiny.TinyActorWorker(tiny.TinyTrainingWorker(engine, loss, most_tokens))

    def _trainer(self) -> Any:
        trainer = _bare_trainer(self)
        manager = object.__new__(checkpoint_base.CheckpointEngineManager)
        manager.backend, manager.actor_wg, manager.replicas = "naive", self.group, []
        trainer.checkpoint_manager = trainer.standalone_checkpoint_manager = manager
        trainer.actor_rollout_wg = trainer.actor_wg = self.group
        trainer.config, trainer.tokenizer = self.config, tiny.Words()
        trainer.use_critic = trainer.use_reference_policy = trainer.use_rm = False
        trainer.distillation_config = None
        trainer.total_training_steps, trainer.resource_pool_manager = self.steps, SimpleNamespace(get_n_gpus=lambda: 1)
        trainer._init_dump_executor()
        return trainer

    # what stands in for the engine

    def responses(self, version: int) -> list[dict[str, Any]]:
        """Samples of PROMPTS prompts from this version of the weights, as an engine with errors of its own reports them."""
        rows = []
        for prompt in range(PROMPTS):
            uid = f"prompt{len(self.batches)}{prompt}{self.sampled.integers(1000)}"
            for sample in range(SAMPLES):
                ids = self.sampled.integers(1, tiny.VOCABULARY, 3 + prompt + int(self.sampled.integers(2, LONGEST)))
                cut = 3 + prompt
                rows.append(self._response(uid, sample, torch.as_tensor(ids), cut, version))
        return rows

    def _response(self, uid: str, sample: int, ids: torch.Tensor, cut: int, version: int) -> dict[str, Any]:
        table = torch.log_softmax(self.engines[0].table.detach(), -1)
        log_probs = table[ids[cut - 1 : -1], ids[cut:]] + self.noise * torch.as_tensor(
            self.sampled.standard_normal(len(ids) - cut), dtype=torch.float32
        )
        mask = torch.ones(len(ids) - cut, dtype=torch.int64)
        if len(mask) > 4:
            mask[2] = 0  # a token of a tool
            log_probs[2] = 0.0
        scores = torch.zeros(len(mask))
        scores[-1] = float(self.sampled.random() < 0.5)
        return {
            "uid": uid, "session_id": sample, "prompts": ids[:cut], "responses": ids[cut:], "input_ids": ids,
            "position_ids": torch.arange(len(ids)), "response_mask": mask, "loss_mask": mask, "rm_scores": scores,
            "rollout_log_probs": log_probs.float(), "num_turns": 2, "data_source": "tiny",
            "versions": (max(version - sample, 0), version),
        }  # fmt: skip


def drive(run_dir: Path | None, **options: Any) -> dict[str, Any]:
    """What training computes. options: those of Training, and `attach`, options for the attachment."""
    attached = options.pop("attach", {})
    training = Training(**options)
    if run_dir is None:
        return training.run()
    attachment: Attachment = ratioscope.attach("verl", run_dir, **attached)
    try:
        return training.run()
    finally:
        assert attachment.detach()


Key = tuple[int, int | None, str]


def held(batches: list[dict[str, Any]], seen: list[dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    """(step, minibatch, id) -> what verl held of the sequence there, cut to its tokens; minibatch None: in the driver."""
    found: dict[Key, dict[str, Any]] = {}
    ids: dict[tuple[str, tuple[int, ...]], tuple[int, str]] = {}
    for batch in batches:
        for name, row in (_rows_of_v1 if "rows" in batch else _rows_of_v0)(batch):
            found[batch["step"], None, name] = row
            ids[name.rsplit("_", 2 if "rows" in batch else 1)[0], tuple(row["responses"])] = batch["step"], name
    updates: dict[int, list[int]] = {}
    for visit in seen:
        data, output = visit["data"], visit["output"]
        log_probs = padding.no_padding_2_padding(output["log_probs"], data)
        entropy = padding.no_padding_2_padding(output["entropy"], data)
        for index, (uid, tokens) in enumerate(zip(data["uid"].tolist(), _tokens(data), strict=True)):
            if (uid, tokens) in ids:
                step, name = ids[uid, tokens]
                numbers = updates.setdefault(step, [])
                numbers.extend([visit["update"]] if visit["update"] not in numbers else [])
                found[step, numbers.index(visit["update"]), name] = {
                    "current_logprobs": log_probs[index, : len(tokens)].tolist(),
                    "entropy": entropy[index, : len(tokens)].tolist(),
                }
    return found


def _tokens(data: Any) -> list[tuple[int, ...]]:
    if data["responses"].is_nested:
        return [tuple(row.tolist()) for row in data["responses"].unbind()]
    width = data["responses"].shape[1]
    lengths = data["attention_mask"][:, -width:].sum(-1).tolist()
    return [tuple(row[:length].tolist()) for row, length in zip(data["responses"], lengths, strict=True)]


def _rows_of_v1(batch: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    rows = [(key, row, tag) for (key, row), tag in zip(batch["rows"].items(), batch["tags"], strict=True)]
    return [
        (key, {**_listed(row), "versions": (tag["min_global_steps"], tag["max_global_steps"]), "uid": row["uid"]})
        for key, row, tag in rows
        if not tag.get("is_padding", False)
    ]


def _rows_of_v0(batch: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    tensors, beside = batch["batch"], batch["beside"]
    count: dict[str, int] = {}
    width, made = tensors["responses"].shape[1], []
    for index, uid in enumerate(beside["uid"]):
        length = int(tensors["attention_mask"][index, -width:].sum())
        row = {n: v[index, :length] for n, v in tensors.items() if v.ndim == 2 and v.shape[1] == width}
        versions = beside["min_global_steps"][index], beside["max_global_steps"][index]
        count[uid] = count.get(uid, -1) + 1
        made.append((f"{uid}_{count[uid]}", {**_listed(row), "versions": versions, "uid": uid}))
    return made


def _listed(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() for name, value in row.items() if isinstance(value, torch.Tensor) and value.ndim}


def configuration(trainer: str, steps: int, settings: dict[str, Any]) -> Any:
    """verl's own configuration for a training this small."""
    bypass = settings.get("bypass", False)
    prompts = 1 if trainer == "separate_async" else PROMPTS
    correction = {"bypass_mode": bypass, **settings.get("correction", {})}
    with hydra.initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        config = hydra.compose("ppo_trainer", overrides=["actor_rollout_ref.actor.strategy=fsdp"])
    changes = {
        "data.train_batch_size": PROMPTS, "actor_rollout_ref.rollout.n": SAMPLES, "algorithm.adv_estimator": "grpo",
        "actor_rollout_ref.actor.ppo_mini_batch_size": settings.get("mini_batch_size", prompts),
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 2,
        "actor_rollout_ref.actor.ppo_epochs": settings.get("epochs", 1), "actor_rollout_ref.actor.shuffle": True,
        "actor_rollout_ref.actor.use_torch_compile": False,
        "actor_rollout_ref.actor.calculate_entropy": True,
        "actor_rollout_ref.rollout.calculate_log_probs": settings.get("log_probs", True),
        "actor_rollout_ref.rollout.temperature": 1.0,
        "trainer.logger": ["console"], "trainer.val_before_train": False, "trainer.test_freq": -1,
        "trainer.save_freq": -1, "trainer.resume_mode": "disable", "trainer.total_epochs": 100,
        f"trainer.v1.{trainer}.num_warmup_batches": 0,
        "trainer.balance_batch": trainer != "v0", "trainer.v1.trainer_mode": trainer,
    }  # fmt: skip
    OmegaConf.set_struct(config, False)
    for name, value in changes.items():
        OmegaConf.update(config, name, value)
    for name, value in correction.items():
        OmegaConf.update(config, f"algorithm.rollout_correction.{name}", value)
    if settings.get("bypass_loss", False):
        config.actor_rollout_ref.actor.policy_loss.loss_mode = "bypass_mode"
        config.actor_rollout_ref.actor.policy_loss.rollout_correction = deepcopy(config.algorithm.rollout_correction)
    return config


def seed(number: int) -> None:
    """The same state for all that draws random numbers, and a process group of one for verl's collectives."""
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)
    if not torch.distributed.is_initialized():
        store = getattr(torch.distributed, "HashStore")()  # noqa: B009
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)


def _bare_trainer(training: Training) -> Any:
    trainer: Any
    if training.kind in _V1:
        trainer = object.__new__(type("Tiny", (_SampledTrainer, _V1[training.kind]), {}))
        trainer.training, trainer.trainer_mode = training, training.kind
        trainer.parameter_sync_step = 3 if training.kind == "separate_async" else 1
        trainer.local_trigger_step = 0
        trainer.replay_buffer = SimpleNamespace(sample=trainer.sample)
        trainer.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=[])
        trainer.hybrid_rollout_config = SimpleNamespace(enable_switch=False)
        trainer.current_mode, trainer._enable_hybrid_replicas = separate_async.HybridEngineMode.TRAINER, False
        trainer.steps_per_epoch, trainer._rollout_moe_lb_metrics_accumulator = training.steps, None
        trainer.llm_server_manager = None
        return trainer
    if training.kind == "v0":
        trainer = object.__new__(ray_trainer.RayPPOTrainer)
        trainer.async_rollout_manager = SimpleNamespace(generate_sequences=lambda batch: _generated(training, trainer))
        trainer.train_dataloader = [_prompts() for _ in range(training.steps)]
        trainer.train_dataset, trainer.llm_server_manager = object(), None
        return trainer
    trainer = object.__new__(fully_async.FullyAsyncTrainer.__ray_actor_class__)
    trainer.local_trigger_step, trainer.current_param_version, trainer.trigger_parameter_sync_step = 1, 0, 2
    return trainer


class _SampledTrainer:
    """Puts into the queue what agent loops would, and keeps what the trainer made of it."""

    training: Training
    global_steps: int

    def prepare_step(self) -> dict[str, Any]:
        return {}

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> Any:
        training, rows = self.training, self.training.responses(max(0, global_steps - 1))
        if training.kind == "separate_async":
            rows = [row for row in rows if row["uid"] == rows[0]["uid"]]
        if training.kind == "colocate_async":
            rows = rows[:-1]  # an odd number, so that verl has to pad
        keys = [f"{row['uid']}_{row['session_id']}_0" for row in rows]
        tags = [_tags(row, global_steps) for row in rows]
        fields = {name: [row[name] for row in rows] for name in rows[0] if name != "versions"}
        if not training.config.actor_rollout_ref.rollout.calculate_log_probs:
            fields.pop("rollout_log_probs")
        made = {
            name: torch.nested.as_nested_tensor(v, layout=torch.jagged)
            if isinstance(v[0], torch.Tensor)
            else np.array(v)
            for name, v in fields.items()
        }
        stack = {name: list(value) if isinstance(value, np.ndarray) else value for name, value in made.items()}
        return training.queue.kv_batch_put(keys, partition_id, tu.get_tensordict(stack), tags), {}

    def _update_actor(self, batch: Any, metrics: Any) -> Any:
        kept = {key: dict(self.training.queue.rows[key]) for key in batch.keys}
        self.training.batches.append({"step": self.global_steps, "rows": kept, "tags": deepcopy(batch.tags)})
        return super()._update_actor(batch, metrics)  # type: ignore[misc]


def _tags(row: dict[str, Any], step: int) -> dict[str, Any]:
    prompt, response = len(row["prompts"]), len(row["responses"])
    return {
        "status": "success", "prompt_len": prompt, "response_len": response, "seq_len": prompt + response,
        "global_steps": step, "min_global_steps": row["versions"][0], "max_global_steps": row["versions"][1],
    }  # fmt: skip


def _prompts() -> dict[str, Any]:
    return {"dummy": torch.zeros(PROMPTS, 1), "raw_prompt": np.array([f"p{i}" for i in range(PROMPTS)], dtype=object)}


def padded_batch(training: Training, version: int) -> Any:
    """The rows as V0's agent loops return them: prompts padded on the left, responses on the right."""
    rows = training.responses(version)
    before, behind = max(len(r["prompts"]) for r in rows), LONGEST + 3
    made: dict[str, list[torch.Tensor]] = {}
    for row in rows:
        prompt, response = row["prompts"], row["responses"]
        left, right = torch.zeros(before - len(prompt)).long(), torch.zeros(behind - len(response)).long()
        ids = torch.cat([left, prompt, response, right])
        attention = torch.cat([left, torch.ones(len(row["input_ids"])).long(), right])
        values = {
            "prompts": ids[:before], "responses": ids[before:], "input_ids": ids, "attention_mask": attention,
            "position_ids": (attention.cumsum(0) - 1).clamp(min=0), "response_mask": torch.cat([row["response_mask"], right]),
            "rm_scores": torch.cat([row["rm_scores"], right.float()]),
            "rollout_log_probs": torch.cat([row["rollout_log_probs"], right.float()]),
        }  # fmt: skip
        for name, value in values.items():
            made.setdefault(name, []).append(value)
    if not training.config.actor_rollout_ref.rollout.calculate_log_probs:
        made.pop("rollout_log_probs")
    beside = {
        "min_global_steps": np.array([row["versions"][0] for row in rows], dtype=object),
        "max_global_steps": np.array([row["versions"][1] for row in rows], dtype=object),
        "multi_modal_inputs": np.array([{} for _ in rows], dtype=object),
    }
    tensors = tensordict.TensorDict({name: torch.stack(values) for name, values in made.items()}, batch_size=len(rows))
    return DataProto(batch=tensors, non_tensor_batch=beside, meta_info={"timing": {}, "reward_extra_keys": []})


def _generated(training: Training, trainer: Any) -> Any:
    keep = trainer._update_actor

    def _update_actor(batch: Any) -> Any:
        training.batches.append(_copied(batch, trainer.global_steps))
        trainer.__dict__.pop("_update_actor")
        return keep(batch)

    trainer._update_actor = _update_actor
    return padded_batch(training, trainer.global_steps - 1)


def _fully_async(training: Training) -> None:
    trainer = training.trainer
    trainer.global_steps, trainer.metrics, trainer.timing_raw = 1, {}, {}
    trainer.checkpoint_manager.update_weights(global_steps=0)
    for _ in range(training.steps):
        for _ in range(trainer.trigger_parameter_sync_step):
            batch = padded_batch(training, trainer.current_param_version)
            batch.non_tensor_batch["uid"] = np.array(
                [f"uid{len(training.batches)}{i // SAMPLES}" for i in range(len(batch))], dtype=object
            )
            trainer.reward_tensor, trainer.reward_extra_infos_dict = batch.batch["rm_scores"], {}
            batch = trainer._fit_compute_log_prob(batch)
            batch = trainer._fit_compute_advantage(batch)
            training.batches.append(_copied(batch, trainer.current_param_version + 1))
            batch = trainer._fit_update_actor(batch)
            trainer._fit_update_local_step()
            trainer.global_steps += 1
        trainer.checkpoint_manager.update_weights(global_steps=trainer.current_param_version)
        trainer_base.Tracking().log(data=dict(trainer.metrics), step=trainer.current_param_version)


def _copied(batch: Any, step: int) -> dict[str, Any]:
    tensors = {name: value.clone() for name, value in batch.batch.items()}
    return {"step": step, "batch": tensors, "beside": deepcopy(batch.non_tensor_batch)}


def _tracking_to(logged: list[tuple[int, dict[str, Any]]]) -> Any:
    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        self._finished, self.logger = (
            True,
            {"kept": SimpleNamespace(log=lambda data, step: logged.append((step, dict(data))))},
        )

    return __init__


def _untimed(metrics: dict[str, Any]) -> dict[str, Any]:
    return {n: v for n, v in metrics.items() if not n.startswith(("timing", "perf"))}
