"""unsloth's own trainers on a CPU: TRL's tiny training with the classes that unsloth generates, in a process of its own.

unsloth changes torch, transformers and TRL for good, so nothing of it is imported into the tests' process: `scenes` starts this
file once for several trainings. Stood in for: triton, whose kernels need a GPU (its decorators return the function), and the
methods that unsloth's loader adds to a model. torch.compile is off. What samples is tests/support/tiny_trl.py.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

TESTS = Path(__file__).parent.parent
FUNCTION = "UnslothEfficientGRPO"
SETTINGS = {
    "UNSLOTH_FORCE_CPU": "1", "UNSLOTH_DISABLE_STATISTICS": "1", "TORCHDYNAMO_DISABLE": "1", "HF_HUB_OFFLINE": "1",
}  # fmt: skip


def scenes(given: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    """Name -> {recorded, plain, run}: the same training twice, with a collector and without."""
    import torch

    command = [sys.executable, __file__, json.dumps({name: dict(one) for name, one in given.items()}), str(folder)]
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), *sys.path])
    environment = {**os.environ, **SETTINGS, "PYTHONPATH": path, "UNSLOTH_COMPILE_LOCATION": str(folder / "compiled")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return dict(torch.load(folder / "scenes.pt", weights_only=False))


@contextmanager
def importable() -> Iterator[Any]:
    """TRL, with unsloth's trainers in place of its own."""
    from support.hollow import hollow

    with hollow(("triton",)):
        triton: Any = importlib.import_module("triton")
        for name in ("backends", "language", "runtime", "language.extra.libdevice"):
            importlib.import_module(f"triton.{name}")
        triton.backends.backends, triton.__version__ = {}, "3.7.0"
        triton.jit = triton.autotune = triton.heuristics = _decorator
        triton.language.constexpr = lambda value=None: value
        importlib.import_module("unsloth")
        rl = importlib.import_module("unsloth.models.rl")
        for name in ("grpo_trainer", "rloo_trainer"):
            rl._patch_trl_rl_trainers(name)
        yield importlib.import_module("trl")


def _decorator(function: Any = None, *given: Any, **named: Any) -> Any:
    return function if callable(function) else lambda decorated: decorated


def _watch_the_loss(module: Any, held: list[dict[str, Any]]) -> None:
    """Keeps copies of what the loss takes, below any wrapper of ours."""
    import torch

    function = getattr(module, FUNCTION)
    own = function.apply

    def apply(cls: Any, *given: Any) -> Any:
        names = ("current", "old", "reference", "sampling", "head", "ids", "mask", "advantages")
        held.append(
            {name: one.detach().clone() for name, one in zip(names, given, strict=False) if torch.is_tensor(one)}
        )
        return own(*given)

    function.apply = classmethod(apply)


def main(given: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Carries out the trainings and keeps what they computed."""
    with importable() as trl:
        import torch

        tiny_trl: Any = importlib.import_module("support.tiny_trl")
        model: Any = tiny_trl.transformers.LlamaForCausalLM
        model.for_training = lambda self, use_gradient_checkpointing=False: self.train()
        model.for_inference = lambda self: self.eval()
        saved = tiny_trl.saved_model  # unsloth takes no path; TRL loads the reference from where the model came from
        tiny_trl.saved_model = lambda at: model.from_pretrained(saved(at), dtype=torch.float32)
        held = list[dict[str, Any]]()
        _watch_the_loss(sys.modules["UnslothGRPOTrainer"], held)
        tiny_trl.WatchedTrainer = type("Mine", (_Watched, trl.GRPOTrainer), {})
        tiny_trl.WatchedRlooTrainer = type("MineToo", (tiny_trl.Watched, trl.RLOOTrainer), {})
        found = {}
        for name, settings in given.items():
            traces = {}
            for kind, run in (("recorded", folder / name), ("plain", None)):
                held.clear()
                traces[kind] = _trained(tiny_trl, run, dict(settings)) | {"held": list(held)}
            found[name] = traces | {"run": str(folder / name)}
        torch.save(found, folder / "scenes.pt")


class _Watched:
    """As tiny_trl.Watched, for a loss that tells no scores."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        for name in ("losses", "gradients", "batches", "scored", "gathered"):
            setattr(self, name, [])
        self.rewards: dict[Any, float] = {}
        super().__init__(*arguments, **named)

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
        import torch

        trainer, parent = cast("Any", self), cast("Any", super())
        loss = parent.compute_loss(model, inputs, *arguments, **named)
        kept = {name: one.detach().clone() for name, one in inputs.items() if torch.is_tensor(one)}
        trainer.batches.append({**kept, "global_step": trainer.state.global_step, "training": trainer.model.training})
        trainer.losses.append(loss.detach().clone())
        return loss


def _trained(tiny_trl: Any, run: Path | None, settings: dict[str, Any]) -> dict[str, Any]:
    import random

    import numpy as np
    import torch

    from ratioscope import attach

    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    variables = settings.pop("variables", {})
    by_name = settings.pop("by_name", False)
    os.environ.update(variables)
    attachment = attach("unsloth", run, strict=True) if by_name and run else None
    try:
        trace = tiny_trl.train(None if by_name else run, options={"strict": True}, **settings)
    finally:
        for name in variables:
            del os.environ[name]
    if attachment is not None:
        assert attachment.detach()
    kept = ("losses", "gradients", "parameters", "random_state", "batches", "rewards", "sampled", "log_history")
    refused = None if trace.attachment is None else trace.attachment.refused
    return {**{name: getattr(trace, name) for name in kept}, "refused": refused}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]))
