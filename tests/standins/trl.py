"""TRL for the matrix of adapters: no stand-in, but its real trainers on tiny models (../tiny_trl.py, ../tiny_trl_async.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.tiny_trl import train
from support.tiny_trl_async import train_async


def drive(run_dir: Path | None, *, trainer: str = "grpo", **options: Any) -> dict[str, Any]:
    """All that a small training computed, recorded into `run_dir` or not at all.

    trainer: grpo, rloo or async. options: of `train` and `train_async` there, `options` for attach among them.
    """
    if trainer == "async":
        trace = train_async(run_dir, **options)
    else:
        trace = train(
            run_dir, rloo=trainer == "rloo", **{"vllm_stub": True, "rollout": False, "num_iterations": 2, **options}
        )
    return {
        "losses": trace.losses,
        "gradients": trace.gradients,
        "parameters": trace.parameters,
        "random_state": trace.random_state,
        "batches": trace.batches,
        "config": trace.settings,
        "logs": trace.log_history,
    }
