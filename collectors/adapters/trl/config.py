"""The configuration of a TRL trainer for run.json: its class, model, engine, sampling settings and arguments."""

import sys
from typing import Any

from ...foreign import Trainer

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
