"""Stand-ins of slime and of its fork miles: their modules, names and signatures, with a bigram table for a model.

No line of theirs is here. Signatures, and what calls what with which objects, follow THUDM/slime at 624b824a:
    slime/ray/rollout.py                       RolloutManager: generate, _convert_samples_to_train_data, _split_train_data_by_dp
    slime/utils/types.py, misc.py, data.py     Sample, Box, load_function, process_rollout_data
    slime/observability/*.py                   log_rollout_data (two), tensorize_rollout_data_for_training, log
    slime/backends/megatron_utils/actor.py     MegatronTrainRayActor: train, train_actor, update_weights
    slime/backends/megatron_utils/model.py     train, train_one_step; loss.py, cp_utils.py, data.py: the functions named below
and radixark/miles at 31f1ca96:
    miles/ray/rollout/metrics.py, train_data_conversion.py; miles/utils/types.py, misc.py, data.py
    miles/backends/megatron_utils/actor.py, model.py; miles/backends/training_utils/*.py, loss_hub/*.py
    miles/utils/tracking_utils/tracking.py

Functions look each other up in the module that upstream has them in, at every call, so that a patch there is seen as it would be.
`drive` runs a small training in one process; `sample_rollouts` and `train_rollouts` are its two halves, for two processes.
"""

from __future__ import annotations

import asyncio
import importlib
import pickle
import random
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch

import ratioscope
from ratioscope.collectors.watching.recording import AttachOptions
from standins import slime_loss as losses
from standins import slime_sampling as sampling
from standins import slime_training as training
from standins.slime_places import Ranks, StandIn, arguments
from standins.slime_sampling import Engine, RolloutManager


def _log(s: StandIn) -> Callable[..., None]:
    def log(args: Any, metrics: Any, step_key: str) -> None:
        s.logged.append(dict(metrics))

    return log


def load_function(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


class Box:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def inner(self) -> Any:
        return self._inner


def _contents(s: StandIn) -> dict[str, dict[str, Any]]:
    """What is defined where: module -> name -> object."""
    box = type("Box", (), {name: vars(Box)[name] for name in ("__init__", "inner")})
    contents: dict[str, dict[str, Any]] = {
        "rollout_metrics": {"log_rollout_data": sampling.log_samples(s)},
        "train_metrics": {"log_rollout_data": lambda rollout_id, args, rollout_data: None},
        "log": {"log": _log(s)},
        "types": {"Sample": sampling.sample_class(s)},
        "misc": {"load_function": load_function, "Box": box},
        "data": dict(losses.data(s)),
        "cp_utils": {"get_sum_of_sample_mean": losses.reducer(s)},
        "scores": {"get_log_probs_and_entropy": losses.scores(s)},
        "tis": {
            "vanilla_tis_function": losses.vanilla_tis_function,
            "rejecting_tis_function": losses.rejecting_tis_function,
        },
        "losses": {"policy_loss_function": losses.policy_loss(s)},
        "loss": {"loss_function": losses.loss(s)},
        "model": {"train_one_step": training.train_one_step(s), "train": training.train(s)},
    }
    if s.is_slime:
        contents["ppo"] = {"calculate_topk_log_probs": losses.calculate_topk_log_probs}
        contents["centering"] = {"score_centering_correction": losses.score_centering_correction}
        contents["tensorize"] = {"tensorize_rollout_data_for_training": lambda rollout_data: None}
        contents["actor"] = {"MegatronTrainRayActor": training.slime_actor(s)}
        return contents
    contents["shards"] = {"process_rollout_data_shard": lambda args, rollout_data: losses.take_out(s, rollout_data)}
    contents["server"] = {"RolloutServer": sampling.RolloutServer}
    contents["parallel"] = {"get_parallel_state": lambda: _parallel_state(s.ranks)}
    megatron, fsdp = training.miles_actors(s)
    return {**contents, "actor": {"MegatronTrainRayActor": megatron}, "fsdp_actor": {"FSDPTrainRayActor": fsdp}}


_BY_NAME: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "losses": {"scores": ("get_log_probs_and_entropy",), "cp_utils": ("get_sum_of_sample_mean",)},
    "loss": {"cp_utils": ("get_sum_of_sample_mean",)},
    "model": {"loss": ("loss_function",)},
    "actor": {
        "model": ("train",),
        "scores": ("get_log_probs_and_entropy",),
        "data": ("process_rollout_data",),
        "train_metrics": (),
    },
    "fsdp_actor": {"loss": ("loss_function",), "scores": ("get_log_probs_and_entropy",)},
}
"""What a module imports by name (`from .loss import loss_function`): importer -> where from -> names."""


def _parallel_state(ranks: Ranks) -> SimpleNamespace:
    last = 0 if ranks.is_last_stage else -1
    return SimpleNamespace(
        cp=SimpleNamespace(size=ranks.cp_size, rank=ranks.cp_rank),
        tp=SimpleNamespace(size=2, rank=ranks.tp_rank),
        pp=SimpleNamespace(size=1, rank=last),
        effective_dp_cp=SimpleNamespace(rank=ranks.dp_rank * ranks.cp_size + ranks.cp_rank),
    )


def _mpu(ranks: Ranks) -> SimpleNamespace:
    return SimpleNamespace(
        get_context_parallel_world_size=lambda: ranks.cp_size,
        get_context_parallel_rank=lambda: ranks.cp_rank,
        get_tensor_model_parallel_rank=lambda: ranks.tp_rank,
        is_pipeline_last_stage=lambda ignore_virtual=False: ranks.is_last_stage,
        get_data_parallel_rank=lambda with_context_parallel=False: ranks.dp_rank * ranks.cp_size + ranks.cp_rank,
    )


class _Finder(MetaPathFinder):
    """Finds the stand-in's modules, and the packages they are in."""

    def __init__(self, s: StandIn) -> None:
        self._s, self._contents = s, _contents(s)
        self._names = set(s.places.values()) | {s.trainer}
        self._packages = {name.rpartition(".")[0] for name in self._names}

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        known = any(name == fullname or name.startswith(f"{fullname}.") for name in self._names)
        return ModuleSpec(fullname, _Loader(self), is_package=True) if known else None

    def fill(self, module: ModuleType) -> None:
        for place in [place for place, name in self._s.places.items() if name == module.__name__]:
            for source, names in _BY_NAME.get(place, {}).items():
                for name in names:
                    if self._s.places[source] != module.__name__:
                        setattr(module, name, getattr(self._s.at(source), name))
            for name, value in self._contents[place].items():
                setattr(module, name, _defined_in(module.__name__, name, value))


class _Loader(Loader):
    def __init__(self, finder: _Finder) -> None:
        self._finder = finder

    def exec_module(self, module: ModuleType) -> None:
        self._finder.fill(module)


def _defined_in(module: str, name: str, value: Any) -> Any:
    """The function or class as if it were written there."""
    if isinstance(value, types.FunctionType):
        made = types.FunctionType(value.__code__, value.__globals__, name, value.__defaults__, value.__closure__)
        made.__kwdefaults__ = value.__kwdefaults__
        made.__qualname__, made.__module__ = name, module
        return made
    value.__module__, value.__qualname__ = module, name
    return value


@contextmanager
def placed(trainer: str, ranks: Ranks | None = None) -> Iterator[StandIn]:
    """The trainer's modules can be imported; afterwards they cannot, and what was imported is forgotten."""
    s = StandIn(trainer, ranks or Ranks())
    finder, megatron = _Finder(s), ("megatron", "megatron.core")
    kept = {name: sys.modules[name] for name in megatron if name in sys.modules}
    sys.meta_path.append(finder)  # after those that only watch
    for name in megatron:
        sys.modules[name] = ModuleType(name)
    sys.modules["megatron.core"].mpu = _mpu(s.ranks)  # type: ignore[attr-defined]
    try:
        yield s
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name in megatron or name.partition(".")[0] == trainer]:
            del sys.modules[name]
        sys.modules.update(kept)


def import_all(s: StandIn) -> None:
    """What a process of the trainer imports before it begins."""
    for place in s.places:
        s.at(place)


def run(s: StandIn, args: Any, rollouts: int = 2, first: int = 0) -> tuple[RolloutManager, Any]:
    """train.py; with `asynchronous` train_async.py, which samples the next rollout before it trains on this one."""
    manager, actor = RolloutManager(s, args), new_actor(s, args)
    push(s, actor, manager.engine)
    waiting = manager.generate(first) if args.asynchronous else None
    for rollout_id in range(first, first + rollouts):
        shards = waiting if args.asynchronous else manager.generate(rollout_id)
        if args.asynchronous and rollout_id + 1 < first + rollouts:
            waiting = manager.generate(rollout_id + 1)
        actor.train(rollout_id, shards)
        if not args.asynchronous or (rollout_id + 1) % args.update_weights_interval == 0:
            push(s, actor, manager.engine)
    return manager, actor


def new_actor(s: StandIn, args: Any) -> Any:
    place, name = ("fsdp_actor", "FSDPTrainRayActor") if args.fsdp else ("actor", "MegatronTrainRayActor")
    return getattr(s.at(place), name)(s, args)


def push(s: StandIn, actor: Any, engine: Engine) -> None:
    if s.is_slime:
        actor.engine = engine
        actor.update_weights()
    else:
        actor.update_weights(SimpleNamespace(engine=engine))
        if actor.args.engines_checked:
            server = s.at("server").RolloutServer([engine] * actor.args.engines_checked)
            asyncio.run(server.check_weights("checksum"))


def drive(
    run_dir: Path | None,
    trainer: str = "slime",
    *,
    ranks: Ranks | None = None,
    rollouts: int = 2,
    first: int = 0,
    options: AttachOptions | None = None,
    spoil: Callable[[StandIn], None] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Runs a small training, recorded into run_dir or not; all that it computed.

    trainer: slime or miles. settings: of `arguments`. options: of `attach`. spoil: is called with the stand-in before attach.
    """
    args = arguments(**settings)
    random.seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002
    torch.manual_seed(args.seed)
    with placed(trainer, ranks) as s:
        import_all(s)
        if spoil is not None:
            spoil(s)
        before = names_of(s)
        attachment = None if run_dir is None else ratioscope.attach(trainer, run_dir, **(options or AttachOptions()))
        try:
            manager, actor = run(s, args, rollouts, first)
        finally:
            finished = attachment is None or attachment.detach()
        return {
            "logs": s.logged,
            "gradients": [gradient.numpy() for gradient in actor.model[0].gradients],
            "weights": actor.model[0].weights.detach().numpy(),
            "history": [weights.numpy() for weights in actor.model[0].history],
            "rollout_data": actor.rollout_data,
            "samples": manager.samples,
            "rng": (random.getstate(), np.random.get_state(), torch.get_rng_state()),  # noqa: NPY002
            "config": dict(vars(args)),
            "finished": finished,
            "refused": None if attachment is None else attachment.refused,
            "is_restored": names_of(s) == before,
        }


def sample_rollouts(s: StandIn, args: Any, path: Path, rollouts: int = 1) -> None:
    """The rollout manager's process: samples with the engine's first weights and sends the shards off, as bytes in a file."""
    import_all(s)
    manager = RolloutManager(s, args)
    manager.engine.version = "1"
    path.write_bytes(pickle.dumps([manager.generate(rollout_id) for rollout_id in range(rollouts)]))


def train_rollouts(s: StandIn, args: Any, path: Path) -> Any:
    """A training rank's process: trains on what the other has sent, and pushes its weights to nobody."""
    import_all(s)
    actor = new_actor(s, args)
    push(s, actor, Engine(args))
    for rollout_id, shards in enumerate(pickle.loads(path.read_bytes())):
        actor.train(rollout_id, shards)
        push(s, actor, Engine(args))
    return actor


def names_of(s: StandIn) -> dict[str, Any]:
    """Every function and method of the stand-in's modules, as they are now."""
    found = {}
    for name in s.places.values():
        for attribute, value in vars(sys.modules[name]).items():
            found[f"{name}.{attribute}"] = value
            if isinstance(value, type):
                found |= {f"{name}.{attribute}.{method}": given for method, given in vars(value).items()}
    return {name: value for name, value in found.items() if callable(value)}
