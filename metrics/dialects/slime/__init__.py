"""slime (THUDM/slime): its clipped losses, TIS hooks, OPSM, and the metrics that it logs as `train/...` once a step.

Sums over micro-batches and ranks are divided once, so micro-batches matter only for batch normalisation.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ratioscope.arrays import Array

from ..evaluation import BatchLike, Evaluation, MicroBatches, batch_arrays
from ..micro_batches import row_groups
from .config import parse
from .correction import write
from .hooks import HookOutcome, icepop, off_policy_is, vanilla_tis
from .loss import reference_kl, sequence_mask, token_loss
from .mis import mis
from .names import CANONICAL, NOTES, PRESETS
from .settings import VERSIONS, Settings
from .tokens import Step, recorded, step_of

__all__ = ["CANONICAL", "NOTES", "PRESETS", "VERSIONS", "evaluate", "parse", "write"]

HOOKS = {"vanilla_tis": vanilla_tis, "icepop": icepop, "mis": mis, "off_policy_is": off_policy_is}


def evaluate(
    batch: BatchLike,
    config: Mapping[str, Any],
    *,
    version: str | None = None,
    kind: str | None = None,
    micro_batches: MicroBatches | None = None,
) -> Evaluation:
    """The metrics `train/...` of slime for one optimizer step, and the weights and mask of its hook.

    `extra` may have `rollout_ids` (one a row), `entropy` and `reference_logprobs`. `weights`: the hook's weights. OPSM's factor
    is in `arrays`, and in the loss before the hook. `losses`: the sum over micro-batches, before Megatron scales it. `kind` has
    no effect.
    """
    settings, arrays = parse(config, version), batch_arrays(batch)
    groups = settings.micro_batches if micro_batches is None else micro_batches
    with np.errstate(all="ignore"):
        step = step_of(arrays, settings, row_groups(groups, len(arrays.mask)))
        hook = HOOKS[settings.method](step, settings) if settings.runs_hook else HookOutcome(None, step.mask, {})
        metrics, per_token = _loss(step, settings, hook, arrays.extra) if step.has_loss else ({}, {})
        metrics |= {name: step.logged(value) for name, value in hook.metrics.items()}
        metrics |= _difference(step, settings, hook.mask)
    return Evaluation(
        metrics={f"train/{name}": value for name, value in metrics.items()},
        weights=hook.weights,
        mask=hook.mask > 0,
        warnings=(*settings.warnings, *_warnings(step, settings, arrays.extra)),
        losses={"loss": metrics["loss"] * step.divisor} if "loss" in metrics else {},
        arrays={**per_token, **hook.metrics},
    )


def _loss(
    step: Step, settings: Settings, hook: HookOutcome, extra: Mapping[str, Array]
) -> tuple[dict[str, float], dict[str, Array]]:
    """(the metrics of slime's loss, the loss per token before and after the hook). Only `ois` uses the original mask."""
    loss = token_loss(step, settings)
    metrics = {"pg_clipfrac": step.logged(loss.clipped, hook.mask), "ppo_kl": step.logged(loss.ppo_kl, hook.mask)}
    arrays = {"pg_loss_token_before": loss.loss}
    if settings.use_opsm:
        opsm = sequence_mask(step, settings)
        metrics["opsm_clipfrac"] = opsm.share / step.divisor
        arrays |= {"opsm_mask": opsm.factor, "pg_loss_token_before": loss.loss * opsm.factor}
    before = arrays["pg_loss_token_before"]
    arrays["pg_loss_token_after"] = before if hook.weights is None else before * hook.weights
    if settings.runs_hook:
        metrics["ois"] = step.logged(loss.ratio)
    terms = _terms(step, settings, hook.mask, arrays["pg_loss_token_after"], extra)
    return metrics | {name: value for name, value in terms.items() if value is not None}, arrays


def _terms(
    step: Step, settings: Settings, mask: Array, pg_loss: Array, extra: Mapping[str, Array]
) -> dict[str, float | None]:
    """The parts of the loss and their sum; None for a part that this batch does not determine."""
    pg = None if settings.custom_pg_loss_reducer else step.logged(pg_loss, mask)
    entropy = step.logged(recorded(extra["entropy"], step.mask > 0), mask) if "entropy" in extra else 0.0
    kl: float | None = 0.0
    if settings.use_kl_loss:
        reference = extra.get("reference_logprobs")
        kl = (
            None
            if reference is None
            else step.logged(reference_kl(step, recorded(reference, step.mask > 0), settings), mask)
        )
    whole = None if pg is None or kl is None else pg - settings.entropy_coef * entropy + settings.kl_loss_coef * kl
    return {"loss": whole, "pg_loss": pg, "entropy_loss": entropy, "kl_loss": kl if settings.use_kl_loss else None}


def _difference(step: Step, settings: Settings, mask: Array) -> dict[str, float]:
    """|old - rollout| over the tokens that rejection leaves; |current - rollout| in bypass mode."""
    trainer = step.current if settings.use_rollout_logprobs else step.old
    if step.rollout is None or trainer is None:
        return {}
    return {"train_rollout_logprob_abs_diff": step.logged(np.abs(trainer - step.rollout), mask)}


def _warnings(step: Step, settings: Settings, extra: Mapping[str, Array]) -> Iterator[str]:
    if not step.has_loss:
        yield "the batch lacks current_logprobs or advantages: the metrics of slime's loss are left out"
    if settings.use_kl_loss and "reference_logprobs" not in extra:
        yield "use_kl_loss is on and the batch has no reference_logprobs: loss and kl_loss are left out"
    if settings.custom_pg_loss_reducer:
        yield "custom_pg_loss_reducer_function_path is set, and its average is not known: pg_loss and loss are left out"
    if settings.entropy_coef and "entropy" not in extra:
        yield "entropy_coef is set and the batch has no entropy: the entropy counts as 0"
