"""A training of verl in a driver and two data-parallel workers of a real Ray, one of which may be killed in the middle of a step.

python -m upstream.verl_ray FOLDER [KILLED]    with tests/ and the packages on PYTHONPATH, under `ratioscope run` or not

verl's own RayPPOTrainer.fit, RayWorkerGroup, its dispatch of DataProto, actor workers and loss run; see verl_tiny.py for what
stands in. KILLED is the update of the weights in which rank 1 ends by SIGKILL, the first time that it gets there. The driver then
starts the workers anew, sets their weights to those before the step, and trains the step again.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch

driving: Any = importlib.import_module("upstream.verl_drive")
tiny: Any = importlib.import_module("upstream.verl_tiny")
ray: Any = importlib.import_module("ray")
groups: Any = importlib.import_module("verl.single_controller.ray")
workers: Any = importlib.import_module("verl.single_controller.base")
decorator: Any = importlib.import_module("verl.single_controller.base.decorator")
RANKS, STEPS, EPOCHS = 2, 3, 2


class Engine(tiny.BigramEngine):  # type: ignore[misc]
    """The bigram table, whose process is killed in one of its updates."""

    killed: tuple[int, Path] | None = None

    def optimizer_step(self) -> float:
        if self.killed is not None and len(self.gradients) + 1 == self.killed[0] and not self.killed[1].exists():
            self.killed[1].touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return float(super().optimizer_step())


class Actor(tiny.TinyActorWorker):  # type: ignore[misc]
    """verl's actor worker in a process of Ray's."""

    def __init__(self, actor: Any, killed: tuple[int, str] | None) -> None:
        workers.Worker.__init__(self)
        torch.distributed.init_process_group("gloo")  # of the addresses and ranks that verl's group gives its workers
        driving.seed(3)
        engine = Engine(dp_rank=self.rank, dp_size=RANKS)
        if killed is not None and self.rank == RANKS - 1:
            engine.killed = killed[0], Path(killed[1])
        super().__init__(tiny.TinyTrainingWorker(engine, partial(driving.losses.ppo_loss, config=actor)))
        self._register_dispatch_collect_info("actor", dp_rank=self.rank, is_collect=True)

    query_collect_info = workers.Worker.query_collect_info

    @decorator.register(dispatch_mode=decorator.Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def seen(self) -> list[dict[str, Any]]:
        """Every visit of the loss, as held() reads it."""
        visits: list[dict[str, Any]] = self.actor.engine.seen
        return [{**visit, "output": {n: v.detach() for n, v in visit["output"].items()}} for visit in visits]

    @decorator.register(dispatch_mode=decorator.Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def weights(self) -> torch.Tensor:
        table: torch.Tensor = self.actor.engine.table
        return table.detach().clone()

    @decorator.register(dispatch_mode=decorator.Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def set_weights(self, table: torch.Tensor) -> None:
        self.actor.engine.table.data.copy_(table)


class Group:
    """A RayWorkerGroup that is made anew after the death of one of its actors, as a job that survives it does."""

    def __init__(self, actor: Any, killed: tuple[int, str] | None) -> None:
        self._given = actor, killed
        self.own, self.versions = self._made(), [0]
        self.seen: list[Any] = []
        self.deaths: list[str] = []
        self.tables = self.own.weights()
        self._dispatch_info = {"actor": list(range(RANKS))}

    def _made(self) -> Any:
        by_name = importlib.import_module("upstream.verl_ray").Actor  # Ray sends what is in a script by value
        return groups.RayWorkerGroup(
            resource_pool=groups.RayResourcePool([RANKS], use_gpu=False, max_colocate_count=1),
            ray_cls_with_init=groups.RayClassWithInitArgs(ray.remote(by_name), *self._given),
            device_name="cpu",
        )

    def compute_log_prob(self, data: Any) -> Any:
        return self.own.compute_log_prob(data)

    def update_actor(self, data: Any) -> Any:
        try:
            made = self.own.update_actor(data)
            made = made.get() if hasattr(made, "get") and not hasattr(made, "batch_size") else made
        except ray.exceptions.RayActorError as death:
            self.deaths.append(str(death))
            for one in self.own.workers:
                ray.kill(one)
            self.own = self._made()
            for worker, table in zip(self.own.workers, self.tables, strict=True):
                ray.get(worker.set_weights.remote(table))
            self.update_weights(self.versions[-1])
            return self.update_actor(data)
        _wait_for_rows(len(self.seen) + 1)
        self.seen.append(self.own.seen())
        self.tables = self.own.weights()
        metrics = driving.tu.get(made, "metrics")
        return driving.tu.get_tensordict({}, {"metrics": {n: _mean(v) for n, v in tiny._plain(metrics).items()}})

    def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> Any:
        self.versions.append(global_steps or 0)
        return ray.get(self.own.update_weights(global_steps=global_steps, mode="nothing"))


def _wait_for_rows(step: int) -> None:
    """Until both workers' rows of the step are on disk, as they are long before the end of a step that takes minutes."""
    recorded = os.environ.get("RATIOSCOPE_RUN")
    deadline = time.monotonic() + 120
    while recorded is not None and time.monotonic() < deadline:
        files = sorted(Path(recorded, "tokens").glob(f"step={step:09d}/*.parquet"))
        if {pq.read_table(file, columns=["rank"])["rank"][0].as_py() for file in files if _is_of_a_worker(file)} == {
            0,
            1,
        }:
            return
        time.sleep(0.05)


def _is_of_a_worker(file: Path) -> bool:
    return (
        bool(pq.read_schema(file).names.count("current_logprobs"))
        and pq.read_table(file)["current_logprobs"].null_count == 0
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main(folder: Path, killed: int | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ray.init(num_cpus=8, include_dashboard=False, logging_level="error")
    training = driving.Training("v0", steps=STEPS, workers=1, epochs=EPOCHS)
    actor = driving.as_dataclass(training.config.actor_rollout_ref.actor)
    group = Group(actor, None if killed is None else (killed, str(folder / "was_killed")))
    training.group = training.trainer.actor_rollout_wg = training.trainer.actor_wg = group
    training.trainer.checkpoint_manager.actor_wg = group
    training.run()
    kept = {"batches": training.batches, "seen": group.seen, "tables": group.tables, "deaths": len(group.deaths)}
    torch.save({**kept, "logged": training.trace["logged"]}, folder / "trace.pt")
    ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
