"""A small training by SkyRL 0.4.0's own trainers, on the CPU and in one process.

Real are the trainers with their whole `train`, the configuration, TrainingInputBatch, WorkerDispatch, MeshDispatch, the policy
worker's forward and forward_backward with SkyRL's losses, StatefulDataLoader and Tracking. Stood in for are Ray (calls are made
at once, what is put is pickled), the model (a table of bigram logits), the optimizer's strategy, and the engine, which samples
from a copy of the table that weight sync refreshes, with a disturbance of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import random
import sys
import tempfile
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import typing_extensions

import ratioscope

TOKENS, END, MOST = 13, 1, 12
TRAINER = "skyrl.train.trainer"
ASYNC = "skyrl.train.fully_async_trainer"
DISPATCH = "skyrl.backends.skyrl_train.workers.worker_dispatch"
MESH = "skyrl.backends.skyrl_train.distributed.dispatch"
WORKER = "skyrl.backends.skyrl_train.workers.worker"
GENERATOR = "skyrl.train.generators.skyrl_gym_generator"

IDLE = ("save_memory_snapshot", "finalize_pending_saves", "init_weight_sync_state", "load_checkpoint")
"""Methods of workers that have nothing to do here."""

Generate = Callable[["Engine", Mapping[str, Any]], Any]


def load() -> None:
    """Imports SkyRL's trainers; skips where skyrl is not installed."""
    spec = find_spec("skyrl")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the skyrl package is not installed (make test-upstream installs it)")
    gym = str(Path(spec.submodule_search_locations[0]).parent / "skyrl-gym")  # its wheel holds it beside itself
    if gym not in sys.path:
        sys.path.append(gym)
    with pytest.MonkeyPatch.context() as patch:
        if sys.version_info < (3, 12):  # where pydantic takes no other; SkyRL asks for 3.12
            patch.setattr(typing, "TypedDict", typing_extensions.TypedDict)
        for name in (TRAINER, ASYNC, DISPATCH, MESH, WORKER, GENERATOR):
            import_module(name)
    import_module("loguru").logger.remove()


class Tokenizer:
    """As much of a tokenizer as trainer and adapter ask for."""

    pad_token_id, eos_token_id, eos_token = 0, END, "<1>"

    def decode(self, ids: list[int], **_: Any) -> str:
        return " ".join(map(str, ids))

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"<{i}>" for i in ids]

    def encode(self, text: str, **_: Any) -> list[int]:
        return [2 + ord(letter) % 5 for letter in text]

    def apply_chat_template(self, messages: list[dict[str, str]], add_generation_prompt: bool = False, **_: Any) -> Any:
        """Each message's content and an end; a 6 where the model goes on."""
        return [i for m in messages for i in (*self.encode(m["content"]), END)] + [6] * add_generation_prompt


class Prompts:
    """A data set like SkyRL's PromptDataset."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, item: int) -> tuple[Any, ...]:
        return [{"role": "user", "content": f"prompt {item}"}], "none", {}, str(item)

    def collate_fn(self, items: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
        return [{"prompt": p, "env_class": env, "env_extras": extra, "uid": uid} for p, env, extra, uid in items]


class Bigram(torch.nn.Module):
    """SkyRL's model wrapper around a table: log-probs of the last `num_actions` tokens, each given the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(TOKENS, TOKENS) * 0.5 + torch.eye(TOKENS)[END])

    def forward(
        self, sequences: Any, num_actions: int, attention_mask: Any = None, return_output: bool = False, **_: Any
    ) -> Any:
        logprobs = torch.log_softmax(self.table[sequences], -1)
        of_next = logprobs[:, :-1].gather(2, sequences[:, 1:, None])[..., 0]
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        found = of_next[:, -num_actions:]
        return (found, {"entropy": entropy}) if return_output else found


class Engine:
    """Samples and tells log-probs; is also SkyRL's client of inference engines. `version`: of its weights, from 0."""

    def __init__(self) -> None:
        self.logits = torch.zeros(TOKENS, TOKENS)
        self.version = -1
        self.calls: dict[tuple[str, int], list[tuple[list[int], list[float]]]] = {}
        self._begun: dict[str, int] = {}
        self._disturbance = 0.05 * torch.randn(TOKENS, TOKENS, generator=torch.Generator().manual_seed(9))

    def take(self, table: torch.Tensor) -> None:
        self.logits = table.detach().clone() + self._disturbance
        self.version += 1

    def increment_weight_version(self) -> None:
        pass

    async def generate(self, asked: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        """As SkyRL's generator calls it, for one sequence; `calls` keeps what was sampled, by session and its first version."""
        (prompt,), (session,) = asked["prompt_token_ids"], asked["session_ids"]
        ids, logprobs, reason = self.sample(f"{session} {len(prompt)}", prompt)
        first = self._begun.setdefault(session, self.version)  # weights may arrive between two turns
        self.calls.setdefault((session, first), []).append((list(ids), list(logprobs)))
        text = Tokenizer().decode(ids)
        return {"responses": [text], "response_ids": [ids], "stop_reasons": [reason], "response_logprobs": [logprobs]}

    async def finish_session(self, session: str) -> None:
        self._begun.pop(session, None)

    async def pause_generation(self) -> None:
        for _ in range(100):  # lets generation end that goes on at the same time, so that runs can be compared
            await asyncio.sleep(0)

    async def resume_generation(self) -> None:
        await self.pause_generation()

    def sample(self, seed: str, prompt: list[int]) -> tuple[list[int], list[float], str]:
        """Tokens, log-probs and stop reason; the same for the same seed and weights."""
        draws = random.Random(seed)
        ids: list[int] = []
        logprobs: list[float] = []
        last = prompt[-1]
        most = draws.randrange(4, MOST)
        while len(ids) < most and (not ids or last != END):
            row = torch.log_softmax(self.logits[last], -1)
            last = draws.choices(range(TOKENS), row.exp().tolist())[0]
            ids.append(last)
            logprobs.append(float(row[last]))
        return ids, logprobs, "stop" if last == END else "length"


def single_turn(engine: Engine, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a generator of SkyRL's returns; in every second sequence token 1 is a tool's, in every third one has no log-prob."""
    output: dict[str, Any] = {name: [] for name in ("prompt_token_ids", "response_ids", "rewards", "loss_masks")}
    output |= {"stop_reasons": [], "rollout_logprobs": [], "rollout_metrics": {}}
    step = asked["batch_metadata"].global_step
    for trajectory in asked["trajectory_ids"]:
        uid, sample = int(trajectory.instance_id), trajectory.repetition_id
        prompt = [2 + uid % 5] * (1 + uid % 3)
        ids, logprobs, reason = engine.sample(f"{uid} {sample} {step}", prompt)
        mask = [1] * len(ids)
        if (uid + sample) % 2 and len(ids) > 2:
            mask[1], logprobs[1] = 0, 0.0
        if (uid + sample) % 3 == 0:
            logprobs[0] = -9999.0
        output["prompt_token_ids"].append(prompt)
        output["response_ids"].append(ids)
        output["rewards"].append(float(sum(ids) % 4))
        output["loss_masks"].append(mask)
        output["stop_reasons"].append(reason)
        output["rollout_logprobs"].append(logprobs)
    return output


class Generator:
    """One of the user's own, with SkyRL's overlong filtering where that is set."""

    def __init__(self, engine: Engine, settings: Any, generate: Generate) -> None:
        self._engine, self._settings, self._generate = engine, settings, generate
        self.outputs: list[tuple[Any, Any]] = []

    async def generate(self, input_batch: Mapping[str, Any]) -> Any:
        output = self._generate(self._engine, input_batch)
        output = await output if asyncio.iscoroutine(output) else output
        self.outputs.append((input_batch, pickle.loads(pickle.dumps(output))))
        if self._settings.apply_overlong_filtering:
            filtered = sys.modules[GENERATOR].apply_overlong_filtering
            output["loss_masks"] = filtered(output["loss_masks"], output["stop_reasons"])
        return output


class Conversation:
    """An environment of SkyRL's gym: says "ab" after the first turn of every second prompt, then it is over."""

    def __init__(self, **_: Any) -> None:
        self._turns = 0

    def init(self, prompt: Any) -> tuple[Any, dict[str, Any]]:
        self._turns = 1 + int(prompt[0]["content"].split()[-1]) % 2
        return prompt, {}

    def step(self, action: str) -> dict[str, Any]:
        self._turns -= 1
        said = [{"role": "user", "content": "ab"}] if self._turns else []
        return {"observations": said, "reward": float(len(action) % 3), "done": not self._turns, "metadata": {}}

    def get_metrics(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


def gym_generator(cfg: Any, engine: Engine) -> Any:
    """SkyRL's own generator, on the small engine and the environment above."""
    gym: Any = import_module("skyrl_gym.envs.registration")
    environment = type("Environment", (Conversation, import_module("skyrl_gym.envs.base_text_env").BaseTextEnv), {})
    gym.registry.setdefault("none", gym.EnvSpec("none", entry_point=environment))
    return vars(sys.modules[GENERATOR])["SkyRLGymGenerator"](
        cfg.generator, cfg.environment.skyrl_gym, engine, Tokenizer()
    )


class Strategy:
    """The optimizer's side of a worker: gradients of both data-parallel ranks meet in the one table."""

    def __init__(self, trace: dict[str, Any]) -> None:
        self._trace = trace

    def backward(self, loss: Any, *_: Any) -> None:
        self._trace["losses"].append(float(loss.detach()))
        loss.backward()

    def optimizer_step(self, optimizer: Any, model: Any, *_: Any, **__: Any) -> Any:
        self._trace["gradients"].append(model.table.grad.clone())
        norm = model.table.grad.norm()
        optimizer.step()
        optimizer.zero_grad()
        return norm

    def all_reduce(self, metrics: Any, **_: Any) -> Any:
        return metrics


def _worker(cfg: Any, model: Any, engine: Engine, trace: dict[str, Any], role: str) -> Any:
    """SkyRL's policy worker without its Ray actor and process group."""
    module = sys.modules[WORKER]
    base: Any = module.PolicyWorkerBase

    class Worker(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.cfg, self.model, self.strategy = cfg, model, Strategy(trace)
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            self.scheduler = SimpleNamespace(get_last_lr=lambda: [0.5])
            self.mesh_rank = SimpleNamespace(dp_size=2)
            self.device_mesh = SimpleNamespace(get_group=lambda _: None)
            self.policy_loss_fn = module.PolicyLossRegistry.get(cfg.algorithm.policy_loss_type)

        def forward_backward(self, data: Any, **named: Any) -> Any:
            output = super().forward_backward(data, **named)
            trace["outputs"].append((len(data), pickle.loads(pickle.dumps(output.loss_fn_outputs))))
            return output

        def broadcast_to_inference_engines(self, *_: Any, **__: Any) -> None:
            engine.take(model.table)

    Worker.__name__ = role
    return Worker()


class _Handle:
    """A Ray actor whose methods are called at once. The optimizer of all ranks is the first one's, as the table is."""

    def __init__(self, worker: Any, rank: int) -> None:
        self._worker, self._rank = worker, rank

    def __getattr__(self, name: str) -> Any:
        if name in IDLE or (self._rank > 0 and name in ("optim_step", "broadcast_to_inference_engines")):
            return SimpleNamespace(remote=lambda *_, **__: None)
        return SimpleNamespace(remote=getattr(self._worker, name))


def _group(workers: list[Any]) -> Any:
    group_class, mesh = sys.modules[WORKER].PPORayActorGroup, sys.modules[MESH]
    group = object.__new__(group_class)
    handles = [_Handle(worker, rank) for rank, worker in enumerate(workers)]
    ranks = [mesh.MeshRank(dp=r, sp=0, tp=0, pp=0, world_size=2, dp_size=2, pp_size=1) for r in range(len(workers))]
    group.actor_infos = [mesh.ActorInfo(h, r) for h, r in zip(handles, ranks, strict=True)]
    group._actor_handlers = handles
    group.get_dp_size = lambda: len(workers)
    return group


class _Log:
    """The tracker's backend."""

    def __init__(self, rows: list[tuple[int, dict[str, Any]]]) -> None:
        self._rows = rows

    def log(self, data: Any, step: int) -> None:
        clocks = ("timing/", "per_second", "completion_time")
        self._rows.append((step, {k: v for k, v in data.items() if not any(clock in k for clock in clocks)}))


def config(folder: Path, **overrides: Any) -> Any:
    """SkyRL's configuration of the small run; overrides by dotted name, `__` for the dot."""
    load()
    cfg = sys.modules["skyrl.train.config"].SkyRLTrainConfig()
    settings: dict[str, Any] = {
        "trainer.placement.colocate_all": False, "trainer.placement.colocate_policy_ref": False,
        "trainer.placement.policy_num_gpus_per_node": 2,
        "trainer.train_batch_size": 4, "trainer.policy_mini_batch_size": 2, "trainer.update_epochs_per_batch": 2,
        "trainer.micro_train_batch_size_per_gpu": 2, "trainer.micro_forward_batch_size_per_gpu": 2,
        "trainer.epochs": 1, "trainer.eval_interval": -1, "trainer.ckpt_interval": -1, "trainer.hf_save_interval": -1,
        "trainer.print_example_interval": 0, "trainer.dump_data_batch": True, "trainer.export_path": str(folder),
        "trainer.ckpt_path": str(folder / "checkpoints"), "trainer.algorithm.use_kl_loss": True,
        "trainer.algorithm.zero_variance_filter": True, "generator.n_samples_per_prompt": 2,
        "generator.apply_overlong_filtering": True, "generator.inference_engine.enable_ray_prometheus_stats": False,
        "data.dataloader.num_workers": 0,
    }  # fmt: skip
    for name, value in {**settings, **{name.replace("__", "."): value for name, value in overrides.items()}}.items():
        *path, last = name.split(".")
        place = cfg
        for part in path:
            place = getattr(place, part)
        assert hasattr(place, last), name
        setattr(place, last, value)
    return cfg


ASYNC_SETTINGS = {
    "trainer__train_batch_size": 2, "trainer__policy_mini_batch_size": 2, "trainer__update_epochs_per_batch": 1,
    "trainer__algorithm__policy_loss_type": "rollout_is", "trainer__fully_async__enabled": True,
    "trainer__fully_async__max_staleness_steps": 2, "trainer__fully_async__num_parallel_generation_workers": 2,
}  # fmt: skip


def trainer_of(
    cfg: Any,
    trace: dict[str, Any],
    *,
    prompts: int = 8,
    generate: Generate | None = single_turn,
    kind: Callable[[Any, str], Any] | None = None,
) -> Any:
    """A trainer with its workers, ready for `train`. generate: None for SkyRL's own generator. kind: makes its class."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    trace |= {name: [] for name in ("losses", "gradients", "outputs", "logs", "staged")}
    engine, model = Engine(), Bigram()
    tracking = sys.modules["skyrl.train.utils.tracking"].Tracking("project", "run")
    tracking.logger = _Log(trace["logs"])
    module, name = (ASYNC, "FullyAsyncRayPPOTrainer") if cfg.trainer.fully_async.enabled else (TRAINER, "RayPPOTrainer")
    generator = gym_generator(cfg, engine) if generate is None else Generator(engine, cfg.generator, generate)
    trainer = (kind or getattr)(sys.modules[module], name)(
        cfg, tracking, Tokenizer(), Prompts(prompts), engine, generator
    )
    reference = Bigram()
    trainer.ref_model = _group([_worker(cfg.trainer, reference, engine, trace, "Ref") for _ in range(2)])
    trainer.policy_model = _group([_worker(cfg.trainer, model, engine, trace, "Policy") for _ in range(2)])
    trainer.dispatch = sys.modules[DISPATCH].WorkerDispatch(
        cfg, trainer.policy_model, ref_actor_group=trainer.ref_model, inference_engine_client=engine
    )
    trainer.model = model
    return trainer


@contextmanager
def no_ray(trace: dict[str, Any]) -> Iterator[None]:
    """Ray's put and get in this process, CUDA's current device on the CPU, and no progress bars."""

    def put(value: Any) -> Any:
        data = pickle.dumps(value)
        trace["staged"].append(data)
        return pickle.loads(data)

    ray = SimpleNamespace(put=put, get=lambda found: found)
    with pytest.MonkeyPatch.context() as patch:
        for name in (DISPATCH, MESH, WORKER):
            patch.setattr(sys.modules[name], "ray", ray)
        for name in (TRAINER, ASYNC):
            module: Any = sys.modules[name]
            patch.setattr(module, "tqdm", partial(module.tqdm, disable=True))
        patch.setattr(os, "_exit", sys.exit)  # how the async trainer answers a generator's failure
        patch.setattr(torch.cuda, "current_device", lambda: torch.device("cpu"))
        patch.setattr(sys.modules[TRAINER], "configure_ray_worker_logging", lambda: None)
        yield


def drive(run_dir: Path | None, **options: Any) -> dict[str, Any]:
    """Trains; returns all that was computed, and as `sampled` what was generated, before it was filtered.

    losses, gradients, weights, rng; outputs: of each rank's forward_backward; staged: every chunk sent to a worker, pickled;
    batch: by step, as SkyRL dumps it before training, with `metadata`; logs: (step, scalars) without times; config.
    run_dir: where the adapter records, attached to the trainer's object; None: no adapter. options: those of `trainer_of`,
    `is_async`, `attach` (options of attach), `prepare` (called with the folder and the configuration, before), and settings by
    dotted name, `__` for the dot.
    """
    load()
    is_async = options.pop("is_async", False)
    made = {name: options.pop(name) for name in ("generate", "prompts", "kind") if name in options}
    attach, prepare = options.pop("attach", {}), options.pop("prepare", None)
    trace: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, no_ray(trace):
        cfg = config(Path(folder), **{**(ASYNC_SETTINGS if is_async else {}), **options})
        if prepare is not None:
            prepare(Path(folder), cfg)
        trainer = trainer_of(cfg, trace, **made)
        attachment = None if run_dir is None else ratioscope.attach(trainer, run_dir, **attach)
        try:
            asyncio.run(trainer.train())
        finally:
            if attachment is not None:
                assert attachment.detach(60)
        trace["batch"] = _dumped(Path(folder))
        trace["config"] = json.dumps(asdict(cfg), default=str).replace(folder, "")
    trace["weights"] = trainer.model.table.detach().clone()
    trace["sampled"] = getattr(trainer.generator, "outputs", trainer.inference_engine_client.calls)
    trace["rng"] = (random.getstate(), np.random.get_state(), torch.get_rng_state())
    return trace


def _dumped(folder: Path) -> dict[int, dict[str, Any]]:
    found = {}
    for file in (folder / "dumped_data").glob("global_step_*_training_input.pkl"):
        batch = pickle.loads(file.read_bytes())
        found[int(file.name.split("_")[2])] = {**batch, "metadata": batch.metadata}
    return dict(sorted(found.items()))
