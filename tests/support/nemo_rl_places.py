"""What stands in for what NeMo-RL needs and a CPU does not have, in one process and in each process of a real Ray.

CUDA                 every tensor that goes to "cuda" stays; NCCL groups are Gloo's; CUDA's own queries answer nothing
flash-attention      sdpa, which finds a pack's sequences by their positions, as flash-attention does by their lengths
weights' broadcast   a file, where NeMo-RL broadcasts to the engine by NCCL
its driver's tables  matplotlib, MLflow, Prometheus, TensorBoard, NVML: hollow
nemo_automodel       hollow, so the loop and the loss of the v2 worker are real and its model is built as the v1 worker builds it
megatron             hollow, and nothing of it runs
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch

from support import ray_in_process
from support.hollow import Imports, hollow
from support.sources import on_path

ABSENT = (
    "absl", "matplotlib", "math_verify", "megatron", "mlflow", "modelopt", "nccl", "nemo_automodel", "prometheus_client",
    "pynvml", "soundfile", "tensorrt_llm", "vllm", "zstandard",
    "nemo_rl.models.automodel.setup", "nemo_rl.models.automodel.checkpoint",
)  # fmt: skip
WORKERS = ("dtensor_policy_worker", "dtensor_policy_worker_v2")
WEIGHTS = "NEMO_RL_WEIGHTS"
"""Variable: the folder through which weights reach the engine."""


def _on_cpu(own: Any) -> Any:
    """A function of torch: what it would make on CUDA or send there is made on the CPU or stays."""

    def function(*given: Any, **named: Any) -> Any:
        named.pop("pin_memory", None)
        return own(*map(_cpu, given), **{name: _cpu(value) for name, value in named.items()})

    return function


class TorchOnCpu(ModuleType):
    """torch for one module of NeMo-RL. Others get torch itself: transformers compares its functions with torch's."""

    tensor, empty = staticmethod(_on_cpu(torch.tensor)), staticmethod(_on_cpu(torch.empty))

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return TorchOnCpu, ("torch",)


def _cpu(value: Any) -> Any:
    is_cuda = isinstance(value, str | torch.device) and str(value).startswith("cuda")
    return "cpu" if is_cuda else value


@contextmanager
def importable() -> Iterator[Callable[[str], Any]]:
    """NeMo-RL's modules, by their names within it, in one process; afterwards everything is as before."""
    with on_path("nemo_rl"), hollow((*ABSENT, "ray"), "nemo_rl") as imports, ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ))
        put = imports.put
        put("ray", **ray_in_process.NAMES)
        put("ray.actor", ActorHandle=ray_in_process.Handle)
        put("ray.exceptions", RayError=RuntimeError, RayActorError=RuntimeError, GetTimeoutError=TimeoutError)
        put("ray.util.placement_group", placement_group=ray_in_process.placement_group,
            remove_placement_group=lambda group: None)  # fmt: skip
        put("ray.util.scheduling_strategies", PlacementGroupSchedulingStrategy=SimpleNamespace)
        put("ray._private.services", get_node_ip_address=lambda: "127.0.0.1")
        stand_in(imports)
        client = _data_plane(importlib.import_module("nemo_rl.data_plane.adapters.noop").NoOpDataPlaneClient)
        for user in ("nemo_rl.data_plane", "nemo_rl.models.policy.tq_policy"):
            put(user, build_data_plane_client=client)
        yield lambda name: importlib.import_module(f"nemo_rl.{name}")


def in_this_process() -> None:
    """NeMo-RL can be imported from now on: for a driver of a real Ray, and, as its setup hook, for each of its workers."""
    kept = globals().setdefault("_KEPT", ExitStack())
    kept.enter_context(on_path("nemo_rl"))
    stand_in(kept.enter_context(hollow(ABSENT, "nemo_rl")))


def stand_in(imports: Imports) -> None:
    put, put_on = imports.put, imports.put_on
    put("matplotlib.pyplot")
    put("ray.scripts.scripts", memory_summary=lambda **_: "")  # it asks Ray's dashboard
    imports.empty("torch.utils.tensorboard")
    os.environ["NEMO_RL_PY_EXECUTABLES_SYSTEM"] = "1"
    transformers = importlib.import_module("transformers")
    put(
        "typing", TypedDict=importlib.import_module("typing_extensions").TypedDict
    )  # pydantic wants it before Python 3.12
    put("transformers", __version__="5.11.0")  # NeMo-RL refuses 5.12 and later, for the tokenizer of one model
    put("nemo_automodel._transformers.auto_model", NeMoAutoModelForCausalLM=transformers.AutoModelForCausalLM)
    put("nemo_automodel.components.distributed.cp_utils", get_train_context=lambda *_: nullcontext)
    put("nemo_automodel.components.training.utils", scale_grads_and_clip_grad_norm=_clipped)
    put_on(transformers.AutoTokenizer, from_pretrained=transformers.AutoTokenizer.from_pretrained)
    put_on(transformers.AutoConfig, from_pretrained=_with_sdpa(transformers.AutoConfig.from_pretrained))
    put_on(torch.Tensor, to=_on_cpu(torch.Tensor.to), cuda=lambda self, *_, **__: self)
    for name in ("synchronize", "empty_cache", "get_device_name"):
        put_on(torch.cuda, **{name: lambda *_, **__: "CPU"})
    for name in ("range_push", "range_pop"):
        put_on(torch.cuda.nvtx, **{name: lambda *_: None})
    autocast = torch.autocast
    put("torch", autocast=lambda device_type, **given: autocast("cpu", **given))
    group, mesh = torch.distributed.init_process_group, torch.distributed.device_mesh.init_device_mesh
    put("torch.distributed", init_process_group=lambda backend, **given: group(backend="gloo", **given))
    put("torch.distributed.device_mesh", init_device_mesh=lambda kind, *given, **named: mesh("cpu", *given, **named))
    table = importlib.import_module("nemo_rl.distributed.ray_actor_environment_registry").ACTOR_ENVIRONMENT_REGISTRY
    put("nemo_rl.distributed.ray_actor_environment_registry",
        ACTOR_ENVIRONMENT_REGISTRY=dict.fromkeys(table, sys.executable))  # fmt: skip
    workers = "nemo_rl.models.policy.workers"
    put_on(importlib.import_module(f"{workers}.base_policy_worker").AbstractPolicyWorker, model_update_group=None)
    first = importlib.import_module(f"{workers}.{WORKERS[0]}")
    shared = {"to_local_if_dtensor": first.to_local_if_dtensor, "get_cpu_state_dict": first.get_cpu_state_dict}
    put("nemo_automodel.components.distributed.tensor_utils", **shared)
    second = importlib.import_module(f"{workers}.{WORKERS[1]}")
    put_on(second.DTensorPolicyWorkerV2Impl, __init__=_built_as(first.DTensorPolicyWorkerImpl))
    for worker in (first, second):
        put_on(worker, packed_broadcast_producer=_weights_to_a_file)
    for user in (
        "automodel.data",
        "automodel.train",
        "dtensor.parallelize",
        *(f"policy.workers.{name}" for name in WORKERS),
    ):
        put(f"nemo_rl.models.{user}", torch=TorchOnCpu("torch"))


def _built_as(first: Any) -> Any:
    """The constructor of the v2 worker: the v1 worker's, as nemo_automodel's model and mesh are not to be had."""

    def __init__(self: Any, config: Any, **named: Any) -> None:
        own = importlib.import_module("transformers").AutoTokenizer.from_pretrained(config["model_name"])
        first.__init__(self, config, own, **named)
        self.allow_flash_attn_args = self.autocast_enabled = False
        self.moe_mesh = None

    return __init__


def _clipped(size: float | None, models: list[Any], **_: Any) -> float:
    norm: Any = torch.nn.utils.clip_grad_norm_(models[0].parameters(), size or float("inf"), foreach=False)
    return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


def _data_plane(own: Any) -> Any:
    """What builds a client of the data plane. The driver's first one is everyone's until the driver builds another."""
    stack: Any = importlib.import_module("tensordict").NonTensorStack

    class Client(own):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._texts: dict[tuple[str, str], Any] = {}

        def put_samples(self, sample_ids: list[str], partition_id: str, fields: Any = None, tags: Any = None) -> Any:
            kept = fields
            if fields is not None:
                others = [name for name in fields.keys() if not isinstance(fields[name], torch.Tensor)]
                for name in others:
                    self._texts |= {(key, name): text for key, text in zip(sample_ids, fields[name], strict=True)}
                kept = fields.exclude(*others)
            return super().put_samples(sample_ids=sample_ids, partition_id=partition_id, fields=kept, tags=tags)

        def get_samples(self, sample_ids: list[str], partition_id: str, select_fields: list[str]) -> Any:
            others = [name for name in select_fields if (sample_ids[0], name) in self._texts]
            found = super().get_samples(
                sample_ids, partition_id, [name for name in select_fields if name not in others]
            )
            for name in others:
                found[name] = stack(*(self._texts[key, name] for key in sample_ids))
            return found

    clients: list[Client] = []

    def build(config: Any, *, bootstrap: bool = True) -> Client:
        clients[:] = [Client()] if bootstrap else clients
        return clients[0]

    return build


def _with_sdpa(own: Any) -> Any:
    def from_pretrained(*given: Any, **named: Any) -> Any:
        if named.get("attn_implementation") == "flash_attention_2":
            named["attn_implementation"] = "sdpa"
        return own(*given, **named)

    return from_pretrained


def _weights_to_a_file(*, iterator: Any, group: Any, src: int, post_iter_func: Any, **_: Any) -> None:
    """All ranks gather the tensors, the first one writes them."""
    found = {name: post_iter_func((name, value)) for name, value in iterator}
    if torch.distributed.get_rank() == src:
        folder = Path(os.environ[WEIGHTS])
        place = folder / f"{len(list(folder.glob('*.pt')))}.pt"
        torch.save(found, place.with_suffix(".part"))
        place.with_suffix(".part").rename(place)
