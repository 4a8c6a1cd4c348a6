"""Attaches to one trainer object that is TRL's or is built on TRL's: methods are wrapped, and a callback is added.

A callback of transformers that passes each step to the writer when the step ends.
Adds live scalars to the log of a TRL trainer's training step. The trainer's own keys, steps and metrics do not change.

Logs of evaluation and the summary at the end do not change either, because transformers reads these dicts again after logging.
TRL logs its own `sampling/sampling_logp_difference/*` only with a corrected vLLM. Otherwise the added scalars include these
names.

The configuration for run.json has the trainer's class, model, engine, sampling settings and arguments.

`attach` by name and by environment attaches while the trainer trains, to trainers that inherit transformers' Trainer.
"""

import logging
import sys
import weakref
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol

from ratioscope.errors import ConfigError

from ...batch.token_texts import decoder
from ...collector import Collector
from ...foreign import Trainer
from ...process.notice import say, warn
from ...watching.hooks import MARK, Call, Hook, Refused, marked
from ...watching.patches import Patches
from ...watching.recording import Recording

_METHODS = ("_generate", "_generate_and_score_completions", "_compute_loss", "compute_loss")
"""Methods of which every recorder wraps one."""

_TRAIN_END_SECONDS = 30.0

_OURS = "ratioscope/"
_THEIRS = "sampling/sampling_logp_difference/"


class ObjectRecorder(Protocol):
    """Watches methods of one trainer."""

    def put_on(self, patches: Patches) -> None:
        """Wraps the trainer's methods."""
        ...


def is_attached(trainer: Trainer) -> bool:
    """Whether a collector records this trainer now."""
    return any(hasattr(vars(trainer).get(name), MARK) for name in _METHODS)


def begin(
    trainer: Trainer, recording: Recording, recorder_of: Callable[[Trainer, Recording], ObjectRecorder], name: str
) -> Callable[[], None]:
    """Describes the trainer, wraps its methods and adds a callback; the returned call undoes both.

    name: of the package that trains, and its version.
    """
    if is_attached(trainer):
        raise ConfigError("a collector is already attached to this trainer; detach() it first")
    recording.describe(
        trainer=name,
        config=recording.watch(lambda: config(trainer)),
        rank=trainer.accelerator.process_index,
        decode=recording.watch(lambda: decoder(getattr(trainer, "_tokenizer", trainer.processing_class))),
    )
    recorder, patches = recorder_of(trainer, recording), Patches()
    callback = flushing_callback(recording.collector)
    try:
        recorder.put_on(patches)
        if recording.options.get("scalars", False):
            put_scalars(trainer, recording, patches)
        trainer.add_callback(callback)
    except Exception:
        patches.restore()
        raise

    def undo() -> None:
        patches.restore()
        trainer.remove_callback(callback)

    return undo


def flushing_callback(collector: Collector) -> Any:
    """The callback; it waits for the disk once, at the end of training."""
    # Any: for the types of all its models mypy and pyright would each read 2,800 files
    made: Any = import_module("transformers").TrainerCallback

    class FlushingCallback(made):  # type: ignore[misc]
        """Notes a resumption, and flushes at the end of each step."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
            if state.global_step > 0:
                collector.event("resume", state.global_step + 1, f"training goes on after {state.global_step} steps")

        def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
            collector.flush(0)

        def on_train_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
            collector.flush(_TRAIN_END_SECONDS)

    return FlushingCallback()


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


_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_completion_length", "num_generations",
    "num_iterations",
)  # fmt: skip


def version() -> str:
    """The version of the TRL that is loaded."""
    return str(getattr(sys.modules.get("trl"), "__version__", "unknown"))


def config(trainer: Trainer) -> dict[str, Any]:
    """The settings that run.json keeps. AsyncGRPOTrainer has most of them only in its arguments."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    return {
        "trainer_class": f"{type(trainer).__module__}.{type(trainer).__qualname__}",
        "model": getattr(model.config, "_name_or_path", None) or model.config.model_type,
        "model_dtype": str(getattr(model, "dtype", "unknown")),
        "engine": engine_name(trainer),
        "sampling": {name: getattr(trainer, name, getattr(trainer.args, name, None)) for name in _SAMPLING},
        "processes": trainer.accelerator.num_processes,
        "reward_functions": list(getattr(trainer, "reward_func_names", ())),
        "args": trainer.args.to_dict(),
    }


def engine_name(trainer: Trainer) -> str:
    """The engine that samples, its version, and the precision of its weights where this process sees them."""
    if hasattr(trainer, "rollout_worker"):
        worker = trainer.rollout_worker
        return "another rank's" if worker is None else type(worker).__name__
    if trainer.use_vllm:
        vllm = getattr(sys.modules.get("vllm"), "__version__", "unknown")
        return " ".join((f"vllm {vllm} ({getattr(trainer, 'vllm_mode', None)})", *_precision(trainer)))
    return "rollout_func" if getattr(trainer, "rollout_func", None) is not None else "transformers generate"


def _precision(trainer: Trainer) -> tuple[str, ...]:
    """(the type of the weights of a colocated vLLM,); () for a server, whose weights this process does not see."""
    llm = getattr(getattr(trainer, "vllm_generation", None), "llm", None)
    engine = getattr(llm, "llm_engine", None)
    settings = getattr(engine, "model_config", None) or getattr(
        getattr(engine, "vllm_config", None), "model_config", None
    )
    dtype = getattr(settings, "dtype", None)
    return () if dtype is None else (str(dtype).removeprefix("torch."),)


TRAIN = Hook("transformers.trainer", "Trainer.train", before="begin", after="end")
"""All these trainers inherit it."""
ANOTHER = (
    "this process has already recorded another trainer, so this one is not recorded: attach(trainer, another_run_dir)"
)


class Starter:
    """Attaches to a trainer while it trains, unless it is attached already.

    One trainer per process is recorded, because two trainers would give their sequences the same ids. takes: whether a trainer
    is one of the adapter's. start: attaches to it, and returns what undoes that.
    """

    def __init__(
        self, recording: Recording, takes: Callable[[Trainer], bool], start: Callable[[Trainer, Recording], Any]
    ) -> None:
        self._recording, self._takes, self._start = recording, takes, start
        self._first: weakref.ref[Trainer] | None = None
        self._undo: Callable[[], None] | None = None

    def begin(self, call: Call) -> None:
        trainer = call.target
        if not self._takes(trainer):
            return
        if self._first is not None and self._first() is not trainer:
            warn("%s", ANOTHER)
            return
        try:
            self._undo = self._start(trainer, self._recording)
            self._first, self._recording.refused = weakref.ref(trainer), None
        except Refused as refusal:
            self._recording.refused = str(refusal)  # until a trainer comes that can be recorded
            say(logging.ERROR, "%s", refusal)

    def end(self, call: Call) -> None:
        if self._first is not None and self._first() is call.target:
            self.undo()

    def undo(self) -> None:
        """Restores the trainer's methods, also during its training."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()
