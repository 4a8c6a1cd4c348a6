"""A stand-in for prime-rl (PrimeIntellect-ai/prime-rl at 559b4477, 2026-08-21), which is not published as a package.

Of exact signature, each named with its file under src/prime_rl: setup_token_exporter, TokenExporter.export and
DisabledTokenExporter.export (trainer/rl/token_export.py), compute_loss and setup_rl_loss_fn (trainer/rl/loss.py), DataLoader
(trainer/rl/data.py), forward (trainer/model.py), get_parallel_dims (trainer/parallel_dims.py), TrainSink.process_batch
(orchestrator/train_sink.py), prepare_batch (trainer/batch.py), log (monitors/__init__.py),
NCCLWeightBroadcast.broadcast_weights (transports/weights/nccl.py). TrainingSample and MicroBatch have the fields of
transports/rollouts/types.py. The loop around them follows trainer/rl/train.py and orchestrator/orchestrator.py: samples wait,
are packed for the ranks, and each rank trains on its part with one optimizer step.
The model is a table of bigram logits.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import ratioscope
from standins.module_table import Table, importable

VOCABULARY, SEQ_LEN, PAD_TO = 9, 24, 5
LOGGED: list[tuple[int, dict[str, Any]]] = []
"""What monitors.log was given, by step."""


@dataclass
class TrainingSample:
    token_ids: list[int]
    mask: list[bool]
    logprobs: list[float]
    temperatures: list[float]
    env_name: str
    ref_logprobs: list[float] | None = None
    rl_weights: list[float] | None = None
    ce_weights: list[float] | None = None
    ref_kl_weights: list[float] | None = None
    advantages: list[float] | None = None


@dataclass
class MicroBatch:
    input_ids: list[int] = field(default_factory=list)
    loss_mask: list[bool] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    inference_logprobs: list[float] = field(default_factory=list)
    sequence_lengths: list[int] = field(default_factory=list)
    env_names: list[str] = field(default_factory=list)
    rl_weights: list[float] | None = None
    ce_weights: list[float] | None = None
    ref_kl_weights: list[float] | None = None
    ref_logprobs: list[float] | None = None


class TokenExporter:
    def __init__(self, output_dir: Path, rank: int) -> None:
        self.exported: list[int] = []

    def export(
        self,
        step: int,
        micro_step: int,
        micro_batch: Any,
        model_output: Any,
        sequence_lengths: list[int],
        loss_config: Any,
    ) -> None:
        self.exported.append(micro_step)


class DisabledTokenExporter:
    def export(self, *args: Any, **kwargs: Any) -> None:
        return


def setup_token_exporter(config: Any, parallel_dims: Any, world: Any, logger: Any) -> Any:
    module = import_module("prime_rl.trainer.rl.token_export")
    is_copy = parallel_dims.cp_enabled and parallel_dims.world_mesh["cp"].get_local_rank() != 0
    if not config.enable_token_export or is_copy:
        return module.DisabledTokenExporter()
    return module.TokenExporter(config.output_dir, world.rank)


class TrainSink:
    def __init__(self, config: Any, *, progress: Any, batch_size: int) -> None:
        self.config, self.progress, self.batch_size = config, progress, batch_size
        self.pending_batch: dict[str, list[TrainingSample]] = {}
        self.episode_by_trace: dict[str, Any] = {}

    def process_batch(self) -> Any:
        chosen = list(self.pending_batch)[: self.batch_size]
        samples = [sample for identity in chosen for sample in self.pending_batch.pop(identity)]
        for identity in chosen:
            del self.episode_by_trace[identity]
        return SimpleNamespace(samples=samples)


def prepare_batch(
    rollouts: list[TrainingSample],
    seq_len: int,
    num_train_workers: int,
    bin_cost: Callable[[Sequence[int]], int],
    pad_to_multiple_of: int = 1,
) -> list[list[MicroBatch]]:
    """Longest first into rows of seq_len; rows are padded at their end, ranks get equally many, the last of them repeated."""
    rows: list[MicroBatch] = []
    for sample in sorted(rollouts, key=lambda sample: -len(sample.token_ids)):
        cut = min(len(sample.token_ids), seq_len)
        row = next((row for row in rows if len(row.input_ids) + cut <= seq_len), None)
        if row is None:
            rows.append(row := MicroBatch())
        _append(row, sample, cut)
    for row in rows:
        _pad(row, -len(row.input_ids) % pad_to_multiple_of)
    while len(rows) % num_train_workers:
        rows.append(_dummy(rows[0]))
    return [rows[rank::num_train_workers] for rank in range(num_train_workers)]


def _append(row: MicroBatch, sample: TrainingSample, cut: int) -> None:
    before = len(row.input_ids)
    row.input_ids += sample.token_ids[:cut]
    row.loss_mask += sample.mask[:cut]
    row.inference_logprobs += sample.logprobs[:cut]
    row.advantages += (sample.advantages or [0.0] * len(sample.token_ids))[:cut]
    row.env_names += [sample.env_name] * cut
    row.sequence_lengths.append(cut)
    for name, fill in (("rl_weights", 1.0), ("ce_weights", 0.0), ("ref_kl_weights", 0.0), ("ref_logprobs", 0.0)):
        given, held = getattr(sample, name), getattr(row, name)
        if given is not None or held is not None:
            setattr(row, name, (held if held is not None else [fill] * before) + (given or [fill] * 99)[:cut])


def _pad(row: MicroBatch, count: int) -> None:
    row.input_ids += [1] * count
    row.loss_mask += [False] * count
    row.inference_logprobs += [0.0] * count
    row.advantages += [0.0] * count
    row.env_names += [""] * count
    row.sequence_lengths[-1] += count
    for name in ("rl_weights", "ce_weights", "ref_kl_weights", "ref_logprobs"):
        if getattr(row, name) is not None:
            getattr(row, name).extend([0.0] * count)


def _dummy(row: MicroBatch) -> MicroBatch:
    tokens = len(row.input_ids)
    return MicroBatch(
        list(row.input_ids), [False] * tokens, [0.0] * tokens, list(row.inference_logprobs), list(row.sequence_lengths),
        list(row.env_names), ref_logprobs=row.ref_logprobs,
    )  # fmt: skip


async def log(data: Any, step: int, kind: str = "train", subset: str = "effective") -> None:
    if isinstance(data, dict):
        LOGGED.append((step, dict(data)))


def setup_rl_loss_fn(loss_config: Any) -> Callable[..., Any]:
    return lambda inputs: inputs


def compute_loss(
    trainer_logprobs: list[torch.Tensor],
    inference_logprobs: list[torch.Tensor],
    ref_logprobs: list[torch.Tensor] | None,
    advantages: list[torch.Tensor],
    loss_mask: list[torch.Tensor],
    rl_weights: list[torch.Tensor] | None,
    ce_weights: list[torch.Tensor] | None,
    ref_kl_weights: list[torch.Tensor] | None,
    rl_loss_fn: Callable[..., Any],
    rl_scale: int,
    ce_scale: int,
    ref_kl_scale: int,
) -> tuple[torch.Tensor, dict[str, Any]]:
    mask = torch.cat(loss_mask)
    weights = mask if rl_weights is None else mask * torch.cat(rl_weights)
    ratio = (torch.cat(trainer_logprobs) - torch.cat(inference_logprobs)).exp()
    return -(weights * torch.cat(advantages) * ratio).sum() / rl_scale, {}


class DataLoader:
    def __init__(self, output_dir: Path, start_step: int, dp_world_size: int, config: Any) -> None:
        self.received: Sequence[MicroBatch] = ()

    def get_batch(self) -> list[dict[str, Any]]:
        return [tensors(sent) for sent in self.received]


def forward(model: Any, input_ids: torch.Tensor, position_ids: Any = None, **_: Any) -> dict[str, Any]:
    return {"logits": model[input_ids[0]][None]}


PLACE: list[Any] = []
"""The rank of this process, which get_parallel_dims and get_world read."""


def get_parallel_dims(config: Any) -> Any:
    return PLACE[-1].dims


def get_world() -> Any:
    return PLACE[-1].world


class NCCLWeightBroadcast:
    def broadcast_weights(self, model: Any, step: int) -> None:
        return


Elsewhere: Any = type("TrainSink", (), dict(vars(TrainSink)))
"""The sink of an orchestrator in another process: nobody watches it here."""

TABLE: Table = {
    "prime_rl.trainer.rl.token_export": {
        "TokenExporter": TokenExporter, "DisabledTokenExporter": DisabledTokenExporter,
        "setup_token_exporter": setup_token_exporter,
    },
    "prime_rl.trainer.rl.loss": {"compute_loss": compute_loss, "setup_rl_loss_fn": setup_rl_loss_fn},
    "prime_rl.trainer.rl.data": {"DataLoader": DataLoader},
    "prime_rl.trainer.model": {"forward": forward},
    "prime_rl.trainer.parallel_dims": {"get_parallel_dims": get_parallel_dims},
    "prime_rl.trainer.world": {"get_world": get_world},
    "prime_rl.trainer.batch": {"prepare_batch": prepare_batch},
    "prime_rl.orchestrator.train_sink": {"TrainSink": TrainSink},
    "prime_rl.monitors": {"log": log},
    "prime_rl.transports.weights.nccl": {"NCCLWeightBroadcast": NCCLWeightBroadcast},
}  # fmt: skip


@dataclass
class Ranks:
    """The place of this process. cp: context-parallel ranks that share every token."""

    rank: int = 0
    data_parallel: int = 1
    cp: int = 1

    @property
    def dims(self) -> Any:
        local = SimpleNamespace(get_local_rank=lambda: self.rank % self.cp)
        data = SimpleNamespace(size=lambda: self.data_parallel)
        return SimpleNamespace(cp_enabled=self.cp > 1, world_mesh={"cp": local}, get_mesh=lambda name: data)

    @property
    def world(self) -> Any:
        return SimpleNamespace(rank=self.rank, world_size=self.data_parallel * self.cp)


def rollouts(logits: torch.Tensor, sink: Any, step: int, lag: int, count: int = 6) -> None:
    """Rollouts of one step, sampled lag versions ago at temperature 0.8; of all the kinds of samples that prime-rl packs."""
    version = max(0, step - 1 - lag)
    logprobs = (logits.detach() / 0.8).log_softmax(1)
    for number in range(count):
        identity, group = f"{step}-trace-{number}", f"{step}-group-{number // 2}"
        tokens, mask, scores = [number % VOCABULARY, 3], [False, False], [0.0, 0.0]
        for place in range(5 + 3 * number):  # a tool's two tokens after every fourth
            is_tool = place % 6 > 3
            token = 2 if is_tool else int(torch.multinomial(logprobs[tokens[-1]].exp(), 1))
            score = float(logprobs[tokens[-1], token]) + 0.03 * random.gauss(0, 1)
            tokens.append(token)
            mask.append(not is_tool)
            scores.append(0.0 if is_tool else min(score, -1e-6))
        size = len(tokens)
        sample = TrainingSample(
            tokens, mask, scores, [0.8] * size, f"env{number % 2}", advantages=[(number - 2.5) / 3] * size
        )
        if number == 1:  # tokens without advantage have been taken out of the loss
            sample.rl_weights = [0.0 if place < 4 else 1.0 for place in range(size)]
        if number == 2:  # sampled by a frozen model: trained on by cross entropy
            sample.rl_weights, sample.ce_weights = [0.0] * size, [float(m) for m in mask]
        policy = None if number == 2 else SimpleNamespace(start=version, end=min(version + number % 2, step - 1))
        trace = SimpleNamespace(id=identity, reward=number / 4, stop_condition="stop" if number % 2 else "max_turns")
        work = SimpleNamespace(
            run=SimpleNamespace(work=SimpleNamespace(policy=policy)), group=SimpleNamespace(id=group)
        )
        sink.pending_batch[identity] = [sample]
        sink.episode_by_trace[identity] = SimpleNamespace(traces=[trace], **vars(work))


class Trainer:
    """One rank of the trainer: train() of trainer/rl/train.py, from the batch that it receives to the broadcast."""

    def __init__(self, ranks: Ranks, *, export: bool, exporter: bool, resume: str | None) -> None:
        PLACE[:] = [ranks]
        torch_model = torch.linspace(-1, 1, VOCABULARY**2).reshape(VOCABULARY, VOCABULARY)
        self.logits = torch.nn.Parameter(torch_model.clone())
        self.optimizer = torch.optim.SGD([self.logits], lr=0.3)
        config = SimpleNamespace(
            enable_token_export=export, output_dir=Path("/nonexistent"), loss="default", resume=resume
        )
        dims = import_module("prime_rl.trainer.parallel_dims").get_parallel_dims(config)
        self.loss_fn = import_module("prime_rl.trainer.rl.loss").setup_rl_loss_fn(config.loss)
        self.loader = import_module("prime_rl.trainer.rl.data").DataLoader(config.output_dir, 1, 1, None)
        module = import_module("prime_rl.trainer.rl.token_export") if exporter else None
        self.exporter = None if module is None else module.setup_token_exporter(config, dims, ranks.world, None)
        self.broadcast = import_module("prime_rl.transports.weights.nccl").NCCLWeightBroadcast()
        self.losses: list[float] = []
        self.gradients: list[list[float]] = []
        self.held: list[dict[str, Any]] = []

    def step(self, step: int, micro_batches: Sequence[MicroBatch]) -> None:
        self.loader.received = micro_batches
        for micro_step, (sent, batch) in enumerate(zip(micro_batches, self.loader.get_batch(), strict=True)):
            output = import_module("prime_rl.trainer.model").forward(self.logits, batch["input_ids"])
            labels = torch.cat([batch["input_ids"][:, 1:], torch.zeros(1, 1, dtype=torch.long)], 1)
            scaled = output["logits"] / 0.8
            every = scaled.log_softmax(-1)
            picked = every.gather(-1, labels[..., None])[..., 0]
            entropy = -(every.exp() * every).sum(-1)
            fill = math.log(1 / VOCABULARY)
            output["logprobs"] = torch.cat([torch.full((1, 1), fill), picked[:, :-1]], 1)
            output["entropy"] = torch.cat([torch.full((1, 1), -fill), entropy[:, :-1].detach()], 1)
            names = (
                "inference_logprobs",
                "ref_logprobs",
                "advantages",
                "loss_mask",
                "rl_weights",
                "ce_weights",
                "ref_kl_weights",
            )
            parts = {
                name: None if (values := batch[name]) is None else values[0].split(sent.sequence_lengths)
                for name in names
            }
            loss, _ = import_module("prime_rl.trainer.rl.loss").compute_loss(
                trainer_logprobs=output["logprobs"][0].split(sent.sequence_lengths), rl_loss_fn=self.loss_fn, rl_scale=10,
                ce_scale=1, ref_kl_scale=1, **parts,
            )  # fmt: skip
            loss.backward()
            self.losses.append(float(loss.detach()))
            if self.exporter is not None:
                self.exporter.export(step, micro_step, batch, output, sent.sequence_lengths, "default")
            self.held.append(
                {"step": step, "micro_step": micro_step, "sent": vars(sent).copy()}
                | {name: output[name][0].tolist() for name in ("logprobs", "entropy")}
            )
        assert self.logits.grad is not None
        self.gradients.append(self.logits.grad.reshape(-1).tolist())
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.broadcast.broadcast_weights(self.logits, step=step)
        monitors = import_module("prime_rl.monitors")
        asyncio.run(monitors.log({"perf/throughput": 1.0, "step": step}, step=step))
        asyncio.run(monitors.log({"loss/mean": self.losses[-1], "step": step}, step=step))


def tensors(sent: MicroBatch) -> dict[str, Any]:
    """The batch as the trainer's DataLoader makes it: `(1, T)` tensors on the host, lists for names and lengths."""

    def row(values: list[Any] | None, kind: torch.dtype) -> Any:
        return None if values is None else torch.tensor(values, dtype=kind)[None]

    floats = ("advantages", "inference_logprobs", "ref_logprobs", "rl_weights", "ce_weights", "ref_kl_weights")
    return {
        "input_ids": row(sent.input_ids, torch.long),
        "loss_mask": row(sent.loss_mask, torch.bool),
        **{name: row(getattr(sent, name), torch.float) for name in floats},
        "env_names": sent.env_names,
        "sequence_lengths": sent.sequence_lengths,
    }


def drive(
    run_dir: Path | None,
    *,
    steps: int = 3,
    ranks: Ranks | None = None,
    lag: int = 0,
    export: bool = False,
    exporter: bool = True,
    orchestrator: bool = True,
    resume: str | None = None,
    during: Callable[[], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Trains one rank for some steps, orchestrator included, recorded into run_dir if there is one; what it computed and held.

    lag: versions between sampling and training. exporter: False is a later prime-rl, without the exporter's module.
    orchestrator: whether it is in this process; it runs in any case. during: called when the modules have been imported.
    options: of `ratioscope.attach`.
    """
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    LOGGED.clear()
    place = ranks or Ranks()
    attached = None if run_dir is None else ratioscope.attach("prime-rl", run_dir, **options)
    try:
        table = {name: values for name, values in TABLE.items() if exporter or not name.endswith("token_export")}
        with importable(table):
            modules = {name: import_module(name) for name in table}
            if during is not None:
                during()
            trainer = Trainer(place, export=export, exporter=exporter, resume=resume)
            progress = SimpleNamespace(step=1)
            sink_class = modules["prime_rl.orchestrator.train_sink"].TrainSink if orchestrator else Elsewhere
            sink = sink_class(SimpleNamespace(seq_len=SEQ_LEN), progress=progress, batch_size=6)
            pack = modules["prime_rl.trainer.batch"].prepare_batch if orchestrator else prepare_batch
            grids = []
            for step in range(1, steps + 1):
                rollouts(trainer.logits, sink, step, lag)
                grid = pack(sink.process_batch().samples, SEQ_LEN, place.data_parallel, sum, PAD_TO)
                progress.step += 1
                grids.append([[vars(batch).copy() for batch in own] for own in grid])
                trainer.step(step, grid[place.rank // place.cp])
                if attached is not None and options.get("scalars"):
                    attached.collector.flush(30)  # so that which step's scalars are ready is no matter of speed
            found = {
                "losses": trainer.losses,
                "gradients": trainer.gradients,
                "weights": trainer.logits.detach().reshape(-1).tolist(),
                "held": trainer.held,
                "batch": grids,
                "logs": [(step, row) for step, row in LOGGED],
                "rng": (random.random(), float(np.random.rand()), float(torch.rand(()))),
            }
    finally:
        if attached is not None:
            assert attached.detach(60)
    return found
