"""The trainer that unsloth generates, as far as the adapter looks at it: TRL's real trainer with a loss of unsloth's signatures.

Written from what unsloth 2026.10.9 generates; the package itself is driven in upstream/test_unsloth_adapter.py. As there, padding
is moved to the end of each row, so that what the loss takes is wider than the batch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from support import tiny_trl

NAME = "UnslothGRPOTrainer"


def packed(ids: torch.Tensor, pad: int) -> torch.Tensor:
    """The order of each row's tokens that puts padding last."""
    return (ids == pad).int().argsort(dim=1, stable=True)


class Function(torch.autograd.Function):
    """The policy loss of a micro-batch."""

    @staticmethod
    def forward(
        ctx: Any, _new_logps: Any, _old_logps: Any, _ref_logps: Any, _sampling_per_token_logps: Any, lm_head: Any,
        _input_ids: Any, _mask: Any, _advantages: Any, beta: Any, scaler: Any = None, n_chunks: int = 1,
        extra_kwargs: Any = None, upstream_scale: Any = None,
    ) -> Any:  # fmt: skip
        with torch.enable_grad():
            new = _new_logps.detach().requires_grad_()
            old = new.detach() if _old_logps is None else _old_logps
            loss = -((new - old).exp() * _advantages[:, None] * _mask).sum() / _mask.sum().clamp(min=1)
        ctx.save_for_backward(torch.autograd.grad(loss, new)[0])
        return loss.detach()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (ctx.saved_tensors[0] * grad, *[None] * 12)


def grpo_accumulated_loss(
    trainer: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, completion_mask: Any, advantages: Any,
    old_logps: Any, ref_logps: Any, n_chunks: int = -1, tool_mask: Any = None, **kwargs: Any,
) -> Any:  # fmt: skip
    """Scores the rows with their padding last, and computes the loss."""
    pad = trainer.processing_class.pad_token_id
    padding = (input_ids[:, :-logits_to_keep] == pad).sum(1)
    further = int(padding.max())
    width = logits_to_keep + further
    ids = input_ids.gather(1, packed(input_ids, pad))
    logits = trainer.model(input_ids=ids).logits[:, -width - 1 : -1] / trainer.temperature
    new = torch.log_softmax(logits, -1).gather(2, ids[:, -width:, None])[..., 0]
    mask = (torch.arange(width) >= (further - padding)[:, None]) & (ids[:, -width:] != pad)
    module = sys.modules[NAME]
    loss = module.UnslothEfficientGRPO.apply(
        new, old_logps, ref_logps, None, None, ids[:, -width:], mask, advantages, trainer.beta, None, 1, kwargs, None
    )  # fmt: skip
    return loss, mask.sum(1).float().mean(), loss.detach() * 0, None, None, new.detach(), mask


def trainer_class() -> type:
    """The generated class, in a module of its own, as unsloth makes it."""

    def compute_loss(self: Any, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        loss = sys.modules[NAME].grpo_accumulated_loss(
            trainer=self, input_ids=ids, attention_mask=ids != 0, logits_to_keep=inputs["completion_ids"].shape[1],
            completion_mask=inputs["completion_mask"], advantages=inputs["advantages"], old_logps=None, ref_logps=None,
            loss_type=self.loss_type,
        )[0]  # fmt: skip
        kept = {name: one.detach().clone() for name, one in inputs.items() if isinstance(one, torch.Tensor)}
        self.batches.append({**kept, "global_step": self.state.global_step, "training": model.training})
        self.losses.append(loss.detach().clone())
        return loss

    module: Any = ModuleType(NAME)
    names = {"__module__": NAME, "compute_loss": compute_loss}
    module.UnslothGRPOTrainer = type(NAME, (tiny_trl.trl.GRPOTrainer,), names)
    module.UnslothEfficientGRPO = type("UnslothEfficientGRPO", (Function,), {})
    module.grpo_accumulated_loss = grpo_accumulated_loss
    sys.modules[NAME] = module
    return type("Mine", (tiny_trl.Watched, module.UnslothGRPOTrainer), {"compute_loss": compute_loss})


def drive(run_dir: Path | None, **options: Any) -> dict[str, Any]:
    """All that a small training computed, recorded into `run_dir` or not at all."""
    kept, tiny_trl.WatchedTrainer = tiny_trl.WatchedTrainer, trainer_class()  # type: ignore[misc, assignment]
    try:
        trace = tiny_trl.train(run_dir, vllm_stub=True, **{"rollout": False, **options})
    finally:
        tiny_trl.WatchedTrainer = kept  # type: ignore[misc]
        del sys.modules[NAME]
    names = ("losses", "gradients", "parameters", "random_state", "batches", "settings", "log_history")
    return {name: getattr(trace, name) for name in names}
