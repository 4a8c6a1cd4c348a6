"""xtuner's own packing, training worker and losses on a CPU.

Needs ray, mmengine and xtuner's other imports on PYTHONPATH, and a checkout of InternLM/xtuner in a folder of SOURCES. Stood in
for: OpenCV, TensorBoard and images, the worker's start (its process group, FSDP engine and loggers), and the engine, which is a
table with SGD.
"""

from __future__ import annotations

import json
import logging
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from support.adapter_properties import seed
from support.hollow import hollow
from support.sources import on_path

import ratioscope
from ratioscope.collectors.watching.recording import AttachOptions

for needed in ("ray", "mmengine", "cyclopts"):
    pytest.importorskip(needed, reason=f"{needed} is not importable here")
VOCABULARY, HIDDEN, LENGTH = 13, 8, 32
ABSENT = ("cv2", "xtuner.v1._writer", "xtuner.v1.datasets.mllm_tokenize_fn")


@contextmanager
def importable() -> Iterator[Any]:
    """import_module; afterwards every module of xtuner's is as before."""
    with on_path("xtuner"), hollow(ABSENT, "xtuner"):
        yield import_module


class Engine:
    """A table of hidden states and a head, called as xtuner's TrainEngine is."""

    data_replicate_size = 1

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(5)
        self.hidden = torch.nn.Parameter(torch.randn(VOCABULARY, HIDDEN, generator=draw))
        self.head = torch.nn.Parameter(torch.randn(VOCABULARY, HIDDEN, generator=draw))
        self.optimizer = torch.optim.SGD([self.hidden, self.head], lr=0.5)
        self.losses: list[torch.Tensor] = []
        self.tables: list[torch.Tensor] = []

    def _maybe_precompute_float8_dynamic_scale_for_fsdp(self) -> None:
        """No float8 here."""

    def table(self) -> torch.Tensor:
        return torch.log_softmax((self.hidden @ self.head.t()).detach(), -1)

    def forward_only(self, seq_ctx: Any, loss_ctx: Any) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            return {"loss": loss_ctx.forward(self.hidden[seq_ctx.input_ids], self.head)[0]}

    def train_step(self, data_batches: Any) -> dict[str, Any]:
        self.optimizer.zero_grad()
        self.tables.append(self.table())
        extra: Any = {}
        for item in data_batches:
            loss, (_, extra) = item["loss_ctx"]["lm"].forward(self.hidden[item["seq_ctx"].input_ids], self.head)
            loss.backward()
            self.losses.append(loss.detach())
        return {"total_loss": 0.0, "logs_info": {}, "extra_info": extra}

    def clip_grad_norm(self) -> torch.Tensor:
        return torch.nn.utils.clip_grad_norm_([self.hidden, self.head], 1.0)

    def step_optimizer(self, norm: torch.Tensor) -> None:
        self.optimizer.step()


def worker_of(of: Any, loss_cfg: Any, *, optimizer_steps: int, rank: int, reference: bool) -> Any:
    """A TrainingWorker of xtuner's class, whose start is stood in for."""
    working = of("xtuner.v1.rl.trainer.worker")

    class Worker(working.TrainingWorker):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            self.config = SimpleNamespace(
                loss_cfg=loss_cfg, offload_rollout_routed_experts=False, optimizer_steps=optimizer_steps,
            )  # fmt: skip
            self.log_dir, self.rank, self._optimizer_steps = None, rank, optimizer_steps
            self.sp_mesh, self.mtp_config, self._has_ref = SimpleNamespace(size=lambda: 1), None, reference
            self.logprob_cfg = of("xtuner.v1.loss").LogProbConfig(mode=loss_cfg.mode, chunk_size=loss_cfg.chunk_size)
            self._engine, self._global_train_step, self._rollout_step = Engine(), 0, 0
            self._sft_dataloader, self._rollout_steps_per_sft, self._profile_step = None, 1, ()
            self._ref_model = _Reference(reference_engine())

    return Worker()


def reference_engine() -> Engine:
    """Other weights."""
    made = Engine()
    made.hidden.data *= 0.9
    return made


class _Reference:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def to_device(self, device: Any) -> None:
        """It stays on the CPU."""

    def __call__(self, seq_ctx: Any, loss_ctx: Any) -> Any:
        return self._engine.forward_only(seq_ctx, loss_ctx["lm"])


def packs(of: Any, table: torch.Tensor, step: int, *, rollout: bool, share: int = 0) -> Any:
    """Nine sequences of this model, packed by xtuner's own controller; the sampler rounds to bfloat16."""
    contexts = of("xtuner.v1.data_proto.sequence_context").SequenceContext
    sampled, draw = table.to(torch.bfloat16).float(), random.Random(step + 1000 * share)
    batches = []
    for number in range(9):
        prompt = [draw.randrange(VOCABULARY) for _ in range(3)]
        answer = [draw.randrange(VOCABULARY) for _ in range(3 + draw.randrange(4))]
        inputs = [*prompt, *answer[:-1]]
        labels = [-100] * (len(prompt) - 1) + answer
        if number % 3 == 0:
            labels[len(prompt)] = -100  # a tool's token
        logprobs = [0.0 if b == -100 else float(sampled[a, b]) for a, b in zip(inputs, labels, strict=True)]
        if number % 4 == 1:
            logprobs[-1] += 1.5  # for the correction to reject
        batches.append(
            {
                "seq_ctx": contexts.from_input_ids((torch.tensor([inputs]),), device="cpu"),
                "shifted_labels": torch.tensor([labels]),
                "advantage": [float(number % 2 * 2 - 1)] * len(inputs),
                "rollout_logprobs": torch.tensor([logprobs]) if rollout else None,
            }
        )
    controlling = of("xtuner.v1.rl.trainer.controller")
    return controlling.TrainingController([])._packing(batches, LENGTH, None)


def drive(
    run_dir: Path | None,
    *,
    steps: int = 2,
    options: AttachOptions | None = None,
    mode: str = "eager",
    optimizer_steps: int = 1,
    correction: bool = False,
    reference: bool = False,
    rollout: bool = True,
    sp_size: int = 1,
    rank: int = 0,
    replicas: int = 1,
) -> dict[str, Any]:
    """Trains with xtuner's own code, recorded into run_dir or not; all that it computed.

    rank: of this process, in a group that main() made. replicas: ranks that get the same packs, as tensor parallel ranks do.
    """
    if not torch.distributed.is_initialized():
        store = getattr(torch.distributed, "HashStore")()  # noqa: B009
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    with importable() as of:
        working = of("xtuner.v1.rl.trainer.worker")
        attachment = None if run_dir is None else ratioscope.attach("xtuner", run_dir, **(options or AttachOptions()))
        seed()
        corrected = of("xtuner.v1.rl.rollout_is").RolloutImportanceSampling(
            **(
                {"rollout_is_level": "token", "rollout_is_mode": "mask", "rollout_is_threshold": (2.0, 0.5)}
                if correction
                else {}
            )
        )
        loss_cfg = of("xtuner.v1.rl.loss").GRPOLossConfig(
            policy_loss_cfg={"loss_type": "vanilla", "cliprange_low": 0.2, "cliprange_high": 0.2}, mode=mode, chunk_size=8,
            use_kl_loss=reference, kl_loss_coef=0.1, kl_loss_type="low_var_kl", rollout_is=corrected,
        )  # fmt: skip
        worker = worker_of(of, loss_cfg, optimizer_steps=optimizer_steps, rank=rank, reference=reference)
        worker._engine.data_replicate_size = replicas
        worker.sp_mesh = SimpleNamespace(size=lambda: sp_size)
        device = mock.MagicMock(max_memory_allocated=lambda: 0, max_memory_reserved=lambda: 0)
        told, held = list[Any](), list[Any]()
        with (
            mock.patch.object(working, "DEVICE_MODULE", device),
            mock.patch.object(working, "get_logger", lambda **named: logging.getLogger("xtuner.here")),
        ):
            for step in range(1, steps + 1):
                given = packs(of, worker._engine.table(), step, rollout=rollout, share=rank // replicas)
                kept = [{n: v.clone() for n, v in one.items() if torch.is_tensor(v)} for one in given]
                inputs = [one["seq_ctx"].input_ids.clone() for one in given]
                old = worker._engine.table()
                if sp_size == 1:
                    told.append(worker.fit(given, rollout_idx=step))
                else:  # a group of one cannot split a pack; what the worker would be told is enough
                    _ended(lambda given=given, step=step: worker.fit(given, rollout_idx=step))
                masks = [one["shifted_labels"] != -100 for one in given]
                held.append({"step": step, "packs": kept, "inputs": inputs, "old": old, "masks": masks})
        finished = attachment is None or attachment.detach()
    engine = worker._engine
    return {
        "told": told,
        "losses": engine.losses,
        "parameters": [engine.hidden.detach(), engine.head.detach()],
        "held": held,
        "engine": engine,
        "random_state": random.getstate(),
        "attachment": (finished, None if attachment is None else attachment.refused),
    }


def _ended(call: Any) -> None:
    with pytest.raises(AttributeError):
        call()


def main(folder: Path, run: Path | None, rank: int, settings: dict[str, Any]) -> None:
    """One of two ranks of a process group over Gloo; what it held is left in the folder."""
    store = getattr(torch.distributed, "FileStore")(str(folder / "store"), 2)  # noqa: B009
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    trace = drive(run, options={"strict": True}, rank=rank, **settings)
    kept = {name: trace[name] for name in ("told", "losses", "parameters", "held")}
    torch.save({**kept, "tables": trace["engine"].tables, "finished": trace["attachment"]}, folder / f"rank-{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2] else None, int(sys.argv[3]), json.loads(sys.argv[4]))
