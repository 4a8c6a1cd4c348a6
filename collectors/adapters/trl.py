"""TRL's GRPOTrainer (written for 1.16): what it holds when it computes a loss, without changing what it does.

Four methods of the one trainer object are wrapped; each original is called exactly once with exactly its arguments.

    _generate                             lengths and tool masks of the sampled completions, as plain lists
    _generate_and_score_completions       adds one key to the batch: what is known of each row; TRL shuffles and splits it along
    _get_per_token_logps_and_entropies    current log-probs and entropies, while the loss is being computed
    _compute_loss                         one micro-batch, complete: this is where it is recorded

The key added is a plain list, which the loss never looks at. Steps are those TRL logs: global_step + 1 while the loss is
computed. minibatch is 0, as all micro-batches of an optimizer step see the same weights; a row that comes by a second time
within one step gets 1. Where TRL computes no old log-probs, it takes the detached current ones as old; so do the records.
Rows that `mask_truncated_completions` hides are not scored by the trainer: they keep their rollout log-probs only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ratioscope.errors import ConfigError

from ..collector import Collector
from ..hooks import MARK, Call, Hook, Patches, Refused
from ..recording import Recording
from ..tokenizer_copy import decoder
from .trl_recorder import GrpoRecorder

HOOKS = (Hook("trl.trainer.grpo_trainer", "GRPOTrainer.train", before="begin"),)
WRAPPED = ("_generate", "_generate_and_score_completions", "_get_per_token_logps_and_entropies", "_compute_loss")
_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_completion_length", "num_generations",
    "num_iterations",
)  # fmt: skip

_TRAIN_END_SECONDS = 30.0

Trainer = Any


class Starter:
    """Attaches to each trainer as its training begins, where nobody did before."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def begin(self, call: Call) -> None:
        if not is_attached(call.target):
            start(call.target, self._recording)


recorder = Starter


def is_attached(trainer: Trainer) -> bool:
    """Whether a collector records this trainer now."""
    return any(hasattr(vars(trainer).get(name), MARK) for name in WRAPPED)


def start(trainer: Trainer, recording: Recording) -> Callable[[], None]:
    """Wraps the trainer's methods and adds a callback; the returned call undoes both."""
    _demand(trainer)
    recording.describe(
        trainer=f"trl {_version()}",
        config=_config(trainer),
        rank=trainer.accelerator.process_index,
        decode=decoder(getattr(trainer, "_tokenizer", trainer.processing_class)),
    )
    collector = recording.collector
    watcher = GrpoRecorder(trainer, recording)
    patches = Patches()
    patches.put(trainer, "_generate", watcher.around_generate)
    patches.put(trainer, "_generate_and_score_completions", watcher.around_batch)
    patches.put(trainer, "_get_per_token_logps_and_entropies", watcher.around_scores)
    patches.put(trainer, "_compute_loss", watcher.around_loss)
    callback = _flushing_callback(collector)
    trainer.add_callback(callback)

    def undo() -> None:
        patches.restore()
        trainer.remove_callback(callback)

    return undo


def _demand(trainer: Trainer) -> None:
    lacking = [name for name in WRAPPED if not callable(getattr(trainer, name, None))]
    if lacking:
        raise Refused(
            f"trl {_version()} has no {', '.join(lacking)}, so that nothing is recorded; training goes on. This adapter is "
            "written for 1.16: pip install 'trl==1.16.*'"
        )
    if is_attached(trainer):
        raise ConfigError("a collector is attached to this trainer already; detach() it first")


def _version() -> str:
    return str(getattr(sys.modules.get("trl"), "__version__", "unknown"))


def _config(trainer: Trainer) -> dict[str, Any]:
    model = trainer.accelerator.unwrap_model(trainer.model)
    return {
        "trainer_class": f"{type(trainer).__module__}.{type(trainer).__qualname__}",
        "model": getattr(model.config, "_name_or_path", None) or model.config.model_type,
        "model_dtype": str(getattr(model, "dtype", "unknown")),
        "engine": _engine(trainer),
        "sampling": {name: getattr(trainer, name, None) for name in _SAMPLING},
        "processes": trainer.accelerator.num_processes,
        "reward_functions": list(trainer.reward_func_names),
        "args": trainer.args.to_dict(),
    }


def _engine(trainer: Trainer) -> str:
    if trainer.use_vllm:
        return (
            f"vllm {getattr(sys.modules.get('vllm'), '__version__', 'unknown')} ({getattr(trainer, 'vllm_mode', None)})"
        )
    return "rollout_func" if trainer.rollout_func is not None else "transformers generate"


def _flushing_callback(collector: Collector) -> Any:
    from transformers import TrainerCallback

    class FlushingCallback(TrainerCallback):
        """Hands the step to the writer when it ends, and waits for the disk once, at the end of training."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
            if state.global_step > 0:
                collector.event("resume", state.global_step + 1, f"training goes on after {state.global_step} steps")

        def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
            collector.flush(0)

        def on_train_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
            collector.flush(_TRAIN_END_SECONDS)

    return FlushingCallback()
