"""A training of torchtitan RL in a controller and two trainer processes of a real Monarch.

python -m upstream.torchtitan_rl_monarch FILE    with tests/ and the packages on PYTHONPATH, under `ratioscope run` or not

The parent's batches are those of its own model, whose weights stay as they were: what is trained is two data-parallel replicas,
which do not average their gradients.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

driving: Any = importlib.import_module("upstream.torchtitan_rl_drive")
STACK = ExitStack()
atexit.register(STACK.close)
OF = STACK.enter_context(driving.importable("torchtitan"))
Trainer: Any = driving.trainer_class(OF)
Trainer.__module__, Trainer.__qualname__ = "upstream.torchtitan_rl_monarch", "Trainer"  # so that it is pickled by name
RANKS = 2


async def main(file: Path) -> None:
    monarch: Any = importlib.import_module("monarch.actor")
    processes = monarch.this_host().spawn_procs(per_host={"gpus": RANKS})
    trainers = processes.spawn("trainer", importlib.import_module(Trainer.__module__).Trainer)
    model, told, held = driving.Model(), list[Any](), list[Any]()
    for step in range(3):
        batch = driving.batches(OF, model, step, ranks=RANKS, missing=False, turns=2, multiple=None)
        for ranked in batch.microbatches:
            held += [(step + 1, one) for one in ranked]
            done = await trainers.forward_backward.call(
                training_data=ranked, num_global_valid_tokens=batch.num_global_valid_tokens
            )
            told += [metrics for _, metrics in done.items()]
        done = await trainers.optim_step.call()
        told += [(output.policy_version, output.metrics) for _, output in done.items()]
    torch.save({"told": told, "held": [(step, vars_of(one)) for step, one in held]}, file)
    await trainers.close.call()
    await processes.stop()


def vars_of(batch: Any) -> dict[str, Any]:
    return {name: getattr(batch, name) for name in batch.__slots__}


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
