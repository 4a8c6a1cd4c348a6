"""A training of AReaL in single-controller mode: its PPOTrainer in the driver, two data-parallel workers of a real Ray.

python -m upstream.areal_ray FOLDER    with tests/ and the packages on PYTHONPATH, under `ratioscope run` or not

AReaL's own RayScheduler starts its RayRPCServer actors; its PPOActorController parts the batch and calls the engines in them.
See areal_drive.py for what stands in. What each worker held is left in the folder.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

driving: Any = importlib.import_module("upstream.areal_drive")
ray: Any = importlib.import_module("ray")
rtensors: Any = importlib.import_module("areal.infra.rpc.rtensor")
schedulers: Any = importlib.import_module("areal.infra.scheduler.ray")
RANKS, STEPS = 2, 2


class Actor(driving.fsdp_engine.FSDPPPOActor):  # type: ignore[misc]
    """AReaL's actor, which keeps what its process held."""

    def initialize(self, *given: Any, **named: Any) -> None:
        super().initialize(*given, **named)
        self.watched = driving.Watched()
        self.kept = ExitStack()
        self.kept.enter_context(driving.spies(self, self.watched))

    def save_held(self, folder: str) -> None:
        parameters = [driving.local(parameter) for parameter in self.model.parameters()]
        held = {name: getattr(self.watched, name) for name in ("visits", "gradients")}
        torch.save({**held, "parameters": parameters}, Path(folder, f"rank-{self.data_parallel_rank}.pt"))


def controller(folder: Path, config: Any) -> Any:
    """AReaL's controller of two workers, whose batches have tensors and not AReaL's references to them."""
    config.cluster.name_resolve.nfs_record_root = str(folder / "names")
    config.actor.scheduling_spec = (driving.cli_args.SchedulingSpec(cpu=1, mem=1),)
    by_name = importlib.import_module("upstream.areal_ray").Actor  # Workers import the class by its module's name
    scheduler = schedulers.RayScheduler(120.0, exp_config=config)
    made = driving.actor_module.PPOActorController(by_name, config.actor, scheduler)
    made.initialize(role="actor", ft_spec=driving.SPEC, addr=None)
    own = made.compute_logp
    made.compute_logp = lambda *given: rtensors.RTensor.localize(own(*given))
    return made


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["WANDB_MODE"] = "disabled"
    ray.init(num_cpus=8, include_dashboard=False, logging_level="error")
    driving.seed()
    driving.LENGTHS.append((11, 13))  # AReaL wants as many groups for one worker as for the other
    driving.save_model(folder / "model")
    actor, watched = driving.actor_config(folder, {"backend": f"fsdp:d{RANKS}"}), driving.Watched()
    config = driving.cli_args.GRPOConfig(experiment_name="e", trial_name="t", tokenizer_path="", actor=actor)
    actors = controller(folder, config)
    trainer = driving.trainer_of(actors, folder, watched, STEPS, None)
    trainer.train(workflow=driving.no_workflow())
    actors._custom_function_call("save_held", str(folder))
    torch.save({"batches": watched.batches, "minibatches": actor.ppo_n_minibatches}, folder / "trace.pt")
    trainer.stats_logger.close()
    actors.destroy()
    ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
