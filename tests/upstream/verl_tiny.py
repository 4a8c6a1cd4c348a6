"""As much of verl's surroundings as its own trainers and workers need on a CPU: an engine, a queue, a worker group.

What is verl's own here: configuration, data classes, trainers, workers, the loss, dispatch of the queue's metadata to
tensors. What stands in: a bigram table for the model (through verl's own BaseEngine), a dictionary for TransferQueue's storage
(0.1.10, transfer_queue/interface.py), and calls in one process for Ray's.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

_REASON = "verl is not importable here"
tensordict: Any = pytest.importorskip("tensordict", reason=_REASON)
transfer_queue: Any = pytest.importorskip("transfer_queue", reason=_REASON)
tu: Any = pytest.importorskip("verl.utils.tensordict_utils", reason=_REASON)
engine_base: Any = pytest.importorskip("verl.workers.engine.base", reason=_REASON)
engine_utils: Any = pytest.importorskip("verl.workers.engine.utils", reason=_REASON)
engine_workers: Any = pytest.importorskip("verl.workers.engine_workers", reason=_REASON)
py_functional: Any = pytest.importorskip("verl.utils.py_functional", reason=_REASON)

TensorDict = Any
"""tensordict.TensorDict."""
VOCABULARY = 23


class BigramEngine(engine_base.BaseEngine):  # type: ignore[misc]
    """A table of logits trained with SGD. is_source: whether verl collects this rank's outputs."""

    def __init__(self, *, dp_rank: int = 0, dp_size: int = 1, is_source: bool = True) -> None:
        self.dp_rank, self.dp_size, self.is_source = dp_rank, dp_size, is_source
        self.table = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(5)))
        self.optimizer = torch.optim.SGD([self.table], lr=0.3)
        self.seen: list[dict[str, Any]] = []
        self.gradients: list[torch.Tensor] = []
        self.losses: list[float] = []

    is_param_offload_enabled = is_optimizer_offload_enabled = False

    def train_mode(self, **kwargs: Any) -> Any:
        return nullcontext()

    eval_mode = train_mode

    def get_data_parallel_rank(self) -> int:
        return self.dp_rank

    def get_data_parallel_size(self) -> int:
        return self.dp_size

    def get_data_parallel_group(self) -> Any:
        return None

    def is_mp_src_rank_with_outputs(self) -> bool:
        return self.is_source

    def optimizer_zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def optimizer_step(self) -> float:
        assert self.table.grad is not None
        self.gradients.append(self.table.grad.clone())
        self.optimizer.step()
        return float(self.gradients[-1].norm())

    def lr_scheduler_step(self) -> float:
        return 0.3

    def get_per_tensor_param(self, **kwargs: Any) -> Any:
        return iter([("table", self.table)]), None

    def forward_backward_batch(self, data: TensorDict, loss_function: Any, forward_only: bool = False) -> Any:
        tokens = data["loss_mask"].values() if data["loss_mask"].is_nested else data["loss_mask"]
        tu.assign_non_tensor(data, sp_size=1, batch_num_tokens=int(tokens.sum()), dp_size=self.dp_size)
        micro_batches, indices = engine_utils.prepare_micro_batches(data=data, same_micro_num_in_dp=True)
        made: dict[str, Any] = {"model_output": {}, "loss": [], "metrics": {}}
        for micro_batch in micro_batches:
            output = self.outputs(micro_batch)
            if loss_function is not None:
                loss, metrics = loss_function(model_output=output, data=micro_batch, dp_group=None)
                py_functional.append_to_dict(made["metrics"], metrics)
                made["loss"].append(float(loss.detach()))
                if not forward_only:
                    self.seen.append({"update": len(self.gradients), "data": micro_batch, "output": output})
                    self.losses.append(float(loss.detach()))
                    loss.backward()
            for name, value in output.items():
                made["model_output"].setdefault(name, []).extend(value.detach().unbind())
        if indices is not None:
            places = [place for part in indices for place in part]
            for name, values in made["model_output"].items():
                made["model_output"][name] = [values[places.index(place)] for place in range(len(values))]
        jagged = {n: torch.nested.as_nested_tensor(v, layout=torch.jagged) for n, v in made["model_output"].items()}
        return {**made, "model_output": jagged if forward_only else {}}

    def outputs(self, data: TensorDict) -> dict[str, Any]:
        """Log-prob of the next token and entropy at every token, in verl's layout."""
        ids = data["input_ids"]
        temperature = float(tu.get_non_tensor_data(data, "temperature", default=1.0))
        scores = torch.log_softmax(self.table[ids.values()] / temperature, -1)
        following = torch.roll(ids.values(), -1)
        flat = {"log_probs": scores.gather(-1, following[:, None])[:, 0], "entropy": -(scores.exp() * scores).sum(-1)}
        return {n: torch.nested.nested_tensor_from_jagged(v, ids.offsets()) for n, v in flat.items()}


class TinyTrainingWorker(engine_workers.TrainingWorker):  # type: ignore[misc]
    """verl's worker around a given engine. Its metrics go unreduced: no device, no other ranks.

    most_tokens: of a micro-batch, which verl fills with rows in an order of its own then.
    """

    def __init__(self, engine: BigramEngine, loss: Any, most_tokens: int | None = None) -> None:
        rows = 2 if engine.dp_size == 1 else 1
        self.engine, self.loss_fn, self.flops_counter = engine, loss, None
        self.model_config: dict[str, Any] = {"use_remove_padding": True}
        self.engine_config = SimpleNamespace(
            use_dynamic_bsz=most_tokens is not None, max_token_len_per_gpu=most_tokens, micro_batch_size_per_gpu=rows,
            infer_max_token_len_per_gpu=most_tokens, infer_micro_batch_size_per_gpu=rows, forward_only=False,
            use_fused_kernels=False,
        )  # fmt: skip
        self.profiler = SimpleNamespace(step=lambda: None, rank=0, check_enable=lambda: False)
        self.device_name = "cpu"

    def _postprocess_output(self, output: Any, **named: Any) -> TensorDict:
        metrics = {**output["metrics"], "loss": sum(output["loss"]), "mfu": 0.0}
        return tu.get_tensordict(tensor_dict=output.get("model_output", {}), non_tensor_dict={"metrics": metrics})


class TinyActorWorker(engine_workers.ActorRolloutRefWorker):  # type: ignore[misc]
    """verl's actor worker around a TinyTrainingWorker; sampling engines are told of a new version, and nothing is sent."""

    def __init__(self, actor: TinyTrainingWorker) -> None:
        self.actor, self.enable_routing_replay, self.profiler = actor, False, None
        self.saved: dict[int, torch.Tensor] = {}
        self.checkpoint_engine = self

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> dict[str, Any]:
        return {}

    def query_collect_info(self, mesh_name: str) -> bool:
        return True


class TinyGroup:
    """RayWorkerGroup in one process: every worker gets its part, one after the other."""

    def __init__(self, workers: list[TinyActorWorker], copies: list[TinyActorWorker]) -> None:
        self.workers, self.copies = workers, copies
        self._dispatch_info = {"actor": list(range(len(workers)))}
        self.versions: list[Any] = []

    def compute_log_prob(self, data: Any) -> Any:
        return self._joined(
            [worker.compute_log_prob(part) for worker, part in zip(self.workers, self._parts(data), strict=True)]
        )

    def update_actor(self, data: Any) -> Any:
        for worker, part in zip(self.copies, self._parts(data), strict=False):
            worker.update_actor(part)  # a tensor parallel copy does what the other does
        made = [worker.update_actor(part) for worker, part in zip(self.workers, self._parts(data), strict=True)]
        metrics = [tu.get(one, "metrics") for one in made]
        return tu.get_tensordict(
            {}, {"metrics": {n: float(torch.as_tensor(v).float().mean()) for n, v in _plain(metrics[0]).items()}}
        )

    def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> None:
        self.versions.append(global_steps)
        for worker in (*self.workers, *self.copies):
            _finished(worker.update_weights(global_steps=global_steps, mode="nothing"))

    def save_model_to_cpu(self, n: int) -> None:
        for worker in self.workers:
            worker.saved[n] = worker.actor.engine.table.detach().clone()

    def restore_model_from_cpu(self, n: int) -> None:
        for worker in self.workers:
            worker.actor.engine.table.data.copy_(worker.saved[n])

    def clear_cpu_model(self, n: int) -> None:
        for worker in self.workers:
            del worker.saved[n]

    def _parts(self, data: Any) -> list[Any]:
        ours: Any = data.chunk if isinstance(data, transfer_queue.KVBatchMeta) else partial(tu.chunk_tensordict, data)
        return list(ours(len(self.workers)))

    def _joined(self, parts: list[Any]) -> Any:
        if isinstance(parts[0], transfer_queue.KVBatchMeta):
            return transfer_queue.KVBatchMeta(
                keys=[k for p in parts for k in p.keys], tags=[t for p in parts for t in p.tags]
            )
        fields = {n: [row for part in parts for row in part[n].unbind()] for n in ("log_probs", "entropy")}
        jagged = {n: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for n, rows in fields.items()}
        return tu.get_tensordict(jagged, {"metrics": {"mfu": 0.0}})


class TinyQueue:
    """TransferQueue in a dictionary: the functions of its module that verl calls, and the client's that verl's bridge calls."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.tags: dict[str, dict[str, Any]] = {}
        self.reads: list[list[str]] = []

    def init(self, *arguments: Any) -> None: ...

    def get_client(self) -> TinyQueue:
        return self

    def kv_batch_put(self, keys: Any, partition_id: str, fields: Any = None, tags: Any = None) -> Any:
        for index, key in enumerate(keys):
            self.rows.setdefault(key, {})
            self.tags.setdefault(key, {})
            if tags is not None:
                self.tags[key].update(tags[index])
        if fields is not None:
            for name in fields.keys():
                for key, value in zip(keys, _values(fields, name), strict=True):
                    self.rows[key][name] = value
        names = sorted(set.intersection(*(set(self.rows[key]) for key in keys)))
        return transfer_queue.KVBatchMeta(
            keys=list(keys), tags=[self.tags[k] for k in keys], partition_id=partition_id, fields=names
        )

    def kv_batch_get(self, keys: Any, partition_id: str, select_fields: Any = None) -> TensorDict:
        wanted = sorted(self.rows[keys[0]]) if select_fields is None else select_fields
        self.reads.append(list(wanted))
        present = [name for name in wanted if all(name in self.rows[key] for key in keys)]
        fields = {name: _together([self.rows[key][name] for key in keys]) for name in present}
        return tensordict.TensorDict(fields, batch_size=[len(keys)])

    def kv_clear(self, keys: Any, partition_id: str) -> None:
        for key in keys:
            del self.rows[key], self.tags[key]

    def kv_list(self, partition_id: Any = None) -> dict[str, Any]:
        return {"train": self.tags}

    async def async_kv_retrieve_meta(self, keys: Any, partition_id: str, create: bool) -> _Meta:
        return _Meta(list(keys), sorted(self.rows[keys[0]]), {})

    async def async_get_data(self, meta: _Meta) -> TensorDict:
        return self.kv_batch_get(meta.keys, "train", meta.field_names)

    async def async_put(self, data: TensorDict, metadata: _Meta) -> _Meta:
        self.kv_batch_put(metadata.keys, "train", data)
        return metadata

    async def async_kv_retrieve_keys(self, global_indexes: Any, partition_id: str) -> list[str]:
        return list(global_indexes)


class Words:
    """A tokenizer: token 3 reads w3."""

    eos_token_id = pad_token_id = 0

    def decode(self, ids: list[int], **named: Any) -> str:
        return "".join(f"w{token}" for token in ids)

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"w{token}" for token in ids]


class _Meta:
    """TransferQueue's BatchMeta, as far as verl's bridge reads it."""

    def __init__(self, keys: list[str], field_names: list[str], extra_info: dict[str, Any]) -> None:
        self.keys, self.field_names, self.extra_info = keys, field_names, extra_info
        self.size, self.global_indexes, self.partition_ids = len(keys), keys, ["train"]

    def select_fields(self, fields: list[str]) -> _Meta:
        return _Meta(self.keys, [name for name in fields if name in self.field_names], self.extra_info)


def _finished(coroutine: Any) -> None:
    """Runs what never waits, in whatever loop."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")


def _together(values: list[Any]) -> Any:
    if all(isinstance(value, torch.Tensor) and value.ndim for value in values):
        return torch.nested.as_nested_tensor(values, layout=torch.jagged)
    return tensordict.NonTensorStack.from_list([tensordict.NonTensorData(value) for value in values])


def _values(fields: TensorDict, name: str) -> list[Any]:
    value = fields[name]
    if isinstance(value, torch.Tensor):
        return [row.clone() for row in value.unbind()]
    return value.tolist() if hasattr(value, "tolist") else list(value)


def _plain(metrics: Any) -> dict[str, Any]:
    """verl's Metric objects and lists of them as numbers."""
    found = {}
    for name, value in metrics.items():
        items = value if isinstance(value, list) else [value]
        flat = [getattr(item, "values", item) for item in items]
        numbers = [float(torch.as_tensor(n)) for item in flat for n in (item if isinstance(item, list) else [item])]
        found[name] = numbers
    return found
