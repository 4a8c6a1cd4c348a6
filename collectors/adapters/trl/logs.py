"""Adds live scalars to the log of a TRL trainer's training step. The trainer's own keys, steps and metrics do not change.

Logs of evaluation and the summary at the end do not change either, because transformers reads these dicts again after logging.
TRL logs its own `sampling/sampling_logp_difference/*` only with a corrected vLLM. Otherwise the added scalars include these
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...foreign import Trainer
from ...watching.hooks import marked
from ...watching.patches import Patches
from ...watching.recording import Recording

_OURS = "ratioscope/"
_THEIRS = "sampling/sampling_logp_difference/"


def put_scalars(trainer: Trainer, recording: Recording, patches: Patches) -> None:
    """Wraps `trainer.log`, so that it gets our scalars too."""

    def added(logs: Mapping[str, Any]) -> dict[str, float]:
        scalars = recording.scalars(trainer.state.global_step, known=logs)
        names = (_OURS, _THEIRS) if _is_silent(trainer) else (_OURS,)
        return {name: value for name, value in scalars.items() if name.startswith(names)}

    def around(method: Callable[..., Any]) -> Callable[..., Any]:
        def log(logs: dict[str, Any], *arguments: Any, **named: Any) -> Any:
            ours = recording.watch(lambda: added(logs)) if "loss" in logs else None
            return method({**logs, **ours} if ours else logs, *arguments, **named)

        marked(log, method)
        return log

    patches.put(trainer, "log", around)


def _is_silent(trainer: Trainer) -> bool:
    """Whether the trainer has old log-probs but does not compare them with the engine's itself."""
    if not hasattr(trainer, "use_vllm"):  # AsyncGRPOTrainer has no old log-probs
        return False
    corrects = trainer.use_vllm and getattr(trainer, "vllm_importance_sampling_correction", False)
    return not corrects
