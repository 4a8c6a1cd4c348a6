"""Live scalars among what a TRL trainer logs of a training step. Its other keys, its steps and its metrics stay as they are.

Evaluation and the summary at the end are left alone: transformers reads those dicts again after logging them. TRL's own names
are taken only where TRL itself is silent: `sampling/sampling_logp_difference/*`, which it logs for a corrected vLLM alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...watching.hooks import MARK, Patches
from ...watching.recording import Recording

_OURS = "ratioscope/"
_THEIRS = "sampling/sampling_logp_difference/"

Trainer = Any


def put_scalars(trainer: Trainer, recording: Recording, patches: Patches) -> None:
    """Has `trainer.log` called with our scalars added."""

    def added(logs: Mapping[str, Any]) -> dict[str, float]:
        scalars = recording.scalars(trainer.state.global_step, known=logs)
        names = (_OURS, _THEIRS) if _is_silent(trainer) else (_OURS,)
        return {name: value for name, value in scalars.items() if name.startswith(names)}

    def around(method: Callable[..., Any]) -> Callable[..., Any]:
        def log(logs: dict[str, Any], *arguments: Any, **named: Any) -> Any:
            ours = recording.watch(lambda: added(logs)) if "loss" in logs else None
            return method({**logs, **ours} if ours else logs, *arguments, **named)

        setattr(log, MARK, method)
        return log

    patches.put(trainer, "log", around)


def _is_silent(trainer: Trainer) -> bool:
    """Whether the trainer holds old log-probs and never compares them with the engine's itself."""
    if not hasattr(trainer, "use_vllm"):  # AsyncGRPOTrainer holds none
        return False
    corrects = trainer.use_vllm and getattr(trainer, "vllm_importance_sampling_correction", False)
    return not corrects
