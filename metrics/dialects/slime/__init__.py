"""slime (THUDM/slime): its clipped losses, TIS hooks, OPSM, and the metrics that it logs as `train/...` once a step.

Sums over micro-batches and ranks are divided once, so micro-batches matter only for batch normalisation.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ratioscope.arrays import Array

from ..batch import row_groups
from ..evaluation import Call, Evaluation, evaluator
from ..single_precision import recorded
from .correction import write
from .loss import Step, reference_kl, sequence_mask, step_of, token_loss
from .settings import HOOK_PATHS, VERSIONS, Settings, parse
from .weights import HOOKS, HookOutcome

__all__ = ["CANONICAL", "NOTES", "PRESETS", "VERSIONS", "evaluate", "parse", "write"]

_MIS = {
    "use_tis": True,
    "custom_tis_function_path": HOOK_PATHS["mis"],
    "use_rs": True,
    "tis_level": "token",
    "rs_level": "token",
    "tis_mode": "truncate",
    "tis_lower_bound": 0.5,
    "tis_upper_bound": 2.0,
    "rs_lower_bound": None,
    "rs_upper_bound": None,
    "rs_veto_threshold": 1e-4,
    "tis_batch_normalize": True,
}

PRESETS: dict[str, dict[str, Any]] = {
    "none": {},
    "bypass": {"use_rollout_logprobs": True},
    "vanilla_tis": {"use_tis": True},
    "icepop": {"use_tis": True, "custom_tis_function_path": HOOK_PATHS["icepop"], "tis_clip_low": 0.5},
    "mis": _MIS,
    "mis_mask": {**_MIS, "use_rs": False, "tis_mode": "mask"},
    "mis_geometric": {
        **_MIS,
        "use_rs": False,
        "tis_level": "geometric",
        "tis_mode": "mask",
        "tis_lower_bound": 0.9999,
        "tis_upper_bound": 1.0001,
        "tis_batch_normalize": False,
    },
    "mis_metrics_only": {**_MIS, "use_tis": False, "use_rs": False, "get_mismatch_metrics": True},
    "opsm": {"use_opsm": True},
    "off_policy_is": {"use_tis": True, "custom_tis_function_path": HOOK_PATHS["off_policy_is"]},
}
"""Preset name -> training arguments, with the YAML's keys among them. `mis` has the values of the file that slime ships. The
bounds of `mis_geometric` are slime's recommendation."""

CANONICAL: dict[str, str | None] = {
    "train/train_rollout_logprob_abs_diff": "mismatch/abs_log_ratio",
    "train/ppo_kl": "drift/ppo_kl",
    **{
        f"train/{each}": None
        for each in ("pg_clipfrac", "pg_loss", "loss", "entropy_loss", "kl_loss", "opsm_clipfrac", "ois")
    },
    "train/tis": "mismatch/mean_weight_token",
    **{f"train/{each}": None for each in ("tis_abs", "tis_clipfrac")},
    "train/mis_training_log_ppl": "mismatch/log_ppl_old",
    "train/mis_training_ppl": "mismatch/ppl_old",
    "train/mis_rollout_log_ppl": "mismatch/log_ppl_rollout",
    "train/mis_rollout_ppl": "mismatch/ppl_rollout",
    "train/mis_kl": "mismatch/kl_direct",
    "train/mis_k3_kl": "mismatch/kl_k3",
    "train/mis_log_ppl_diff": "mismatch/log_ppl_gap",
    "train/mis_log_ppl_abs_diff": None,
    "train/mis_ppl_ratio": "mismatch/ppl_ratio",
    "train/mis_chi2_token": "mismatch/chi2_token",
    "train/mis_chi2_seq": "mismatch/chi2_sequence",
    "train/mis_tis_weight_before_bound": "mismatch/mean_weight_token",
    "train/mis_tis_weight_after_bound": "mismatch/mean_weight_token",
    "train/mis_tis_truncate_fraction": None,
    **{
        f"train/mis_{each}_fraction_{side}": None
        for each in ("tis_clip", "tis_mask", "rs_mask")
        for side in ("low", "high")
    },
    **{f"train/mis_rs_catastrophic_{level}_fraction": None for level in ("token", "seq")},
    "train/mis_is_ratio_mean_after_tis_rs": "mismatch/mean_weight_token",
    "train/mis_batch_norm_factor": None,
    **{f"train/mis_is_ratio_{each}_final": None for each in ("mean", "min", "max")},
}

_PER_ROLLOUT = "a mean over rollouts of the mean over each rollout's tokens; a fully masked sample counts as 0"
_WEIGHTED = (
    f"each sample's own, repeated on its tokens; {_PER_ROLLOUT}; with calculate_per_token_loss weighted by tokens"
)
_AFTER_BOUND = (
    "the weight at tis_level (a token's own, its sample's product or geometric mean) after the bounds of tis_mode; with mode "
    "mask no weight is bounded, and tokens that are masked for it still count here"
)
_REJECTED = "uses the mask after rejection but the denominators before it, so rejected tokens count as 0"

NOTES: dict[str, str] = {
    "train/train_rollout_logprob_abs_diff": f"{_REJECTED}: with rejection on it understates the mismatch. Uses current "
    "instead of old in bypass mode, and if slime skips the old pass",
    "train/ppo_kl": f"anchor - current, which can be negative; {_REJECTED}; in bypass mode the anchor is rollout: the total gap",
    "train/pg_clipfrac": _REJECTED,
    "train/pg_loss": f"{_REJECTED}: rejection shrinks the gradient",
    "train/entropy_loss": "the mean entropy in the update, in spite of its name; rollout/entropy is of the scoring pass, and "
    "also over masked tokens; ratioscope evaluates it as 0 if the batch has no entropy",
    "train/opsm_clipfrac": "masked tokens count in the numerator but not in the denominator, so a row can exceed 1",
    "train/ois": f"the PPO ratio current / anchor, not an importance weight of the mismatch; {_PER_ROLLOUT}",
    "train/tis": f"before the clip; log-ratios are not clamped, so it is inf from a log-ratio of 88.7 on, and nan if that token "
    f"is masked; {_PER_ROLLOUT}; off-policy IS uses current / rollout",
    "train/tis_clipfrac": "the share outside [tis_clip_low, tis_clip]; zeroed tokens stay in every denominator with icepop",
    "train/mis_kl": f"rollout - old, which can be negative; {_PER_ROLLOUT}",
    "train/mis_k3_kl": f"not clamped; slime's form exp(x) - x - 1 loses every digit below x = 1e-3; {_PER_ROLLOUT}",
    "train/mis_training_ppl": _WEIGHTED,
    "train/mis_rollout_ppl": _WEIGHTED,
    "train/mis_training_log_ppl": _WEIGHTED,
    "train/mis_rollout_log_ppl": _WEIGHTED,
    "train/mis_log_ppl_diff": f"rollout's mean log-prob minus old's: {_WEIGHTED}",
    "train/mis_ppl_ratio": _WEIGHTED,
    "train/mis_chi2_token": f"weights clamped at exp(20); {_WEIGHTED}",
    "train/mis_chi2_seq": f"the square of a sample's product - 1, clamped at exp(40) = 2.35e17; {_WEIGHTED}",
    "train/mis_tis_weight_before_bound": "the weight at tis_level: a token's own, or with sequence its sample's product and with "
    "geometric its geometric mean, repeated on the tokens; the log-ratio is clamped to +-20 first",
    "train/mis_tis_weight_after_bound": _AFTER_BOUND,
    "train/mis_is_ratio_mean_after_tis_rs": "the same number as mis_tis_weight_after_bound, rejection does not change it: "
    f"{_AFTER_BOUND}",
    "train/mis_is_ratio_min_final": "a mean of each sample's smallest weight, not the smallest of all; 0 for an empty mask",
    "train/mis_is_ratio_max_final": "a mean of each sample's largest weight, not the largest of all",
    "train/mis_batch_norm_factor": "the divisor: the mean weight after its bounds of one micro-batch of one rank, over the mask "
    "before rejection",
}


def _step(call: Call[Settings]) -> Evaluation:
    """The metrics `train/...` of slime for one optimizer step, and the weights and mask of its hook.

    `extra` may have `rollout_ids` (one a row), `entropy` and `reference_logprobs`. `weights`: the hook's weights. OPSM's factor
    is in `arrays`, and in the loss before the hook. `losses`: the sum over micro-batches, before Megatron scales it. `kind` has
    no effect.
    """
    settings, extra = call.settings, call.batch.extra
    groups = settings.micro_batches if call.micro_batches is None else call.micro_batches
    step = step_of(call.batch, settings, row_groups(groups, len(call.batch.mask)))
    hook = HOOKS[settings.method](step, settings) if settings.runs_hook else HookOutcome(None, step.mask, {})
    metrics, per_token = _loss(step, settings, hook, extra) if step.has_loss else ({}, {})
    metrics |= {name: step.logged(value) for name, value in hook.metrics.items()}
    trainer = step.current if settings.use_rollout_logprobs else step.old
    if step.rollout is not None and trainer is not None:
        difference = np.abs(trainer - step.rollout)
        metrics["train_rollout_logprob_abs_diff"] = step.logged(difference, hook.mask)
    return Evaluation(
        metrics=metrics,
        weights=hook.weights,
        mask=hook.mask > 0,
        warnings=tuple(_warnings(step, settings, extra)),
        losses={"loss": metrics["loss"] * step.divisor} if "loss" in metrics else {},
        arrays={**per_token, **hook.metrics},
    )


def _loss(
    step: Step, settings: Settings, hook: HookOutcome, extra: Mapping[str, Array]
) -> tuple[dict[str, float], dict[str, Array]]:
    """(the metrics of slime's loss, the loss per token before and after the hook). Only `ois` uses the original mask.

    A part of the loss that this batch does not determine is left out, and so is the sum of the parts.
    """
    mask, loss = hook.mask, token_loss(step, settings)
    metrics = {"pg_clipfrac": step.logged(loss.clipped, mask), "ppo_kl": step.logged(loss.ppo_kl, mask)}
    arrays = {"pg_loss_token_before": loss.loss}
    if settings.use_opsm:
        opsm = sequence_mask(step, settings)
        metrics["opsm_clipfrac"] = opsm.share / step.divisor
        arrays |= {"opsm_mask": opsm.factor, "pg_loss_token_before": loss.loss * opsm.factor}
    before = arrays["pg_loss_token_before"]
    arrays["pg_loss_token_after"] = before if hook.weights is None else before * hook.weights
    if settings.runs_hook:
        metrics["ois"] = step.logged(loss.ratio)
    entropy = step.logged(recorded(extra["entropy"], step.mask > 0), mask) if "entropy" in extra else 0.0
    metrics["entropy_loss"] = entropy
    if not settings.custom_pg_loss_reducer:
        metrics["pg_loss"] = step.logged(arrays["pg_loss_token_after"], mask)
    if settings.use_kl_loss and "reference_logprobs" in extra:
        reference = recorded(extra["reference_logprobs"], step.mask > 0)
        metrics["kl_loss"] = step.logged(reference_kl(step, reference, settings), mask)
    if "pg_loss" in metrics and ("kl_loss" in metrics or not settings.use_kl_loss):
        kl = metrics.get("kl_loss", 0.0)
        metrics["loss"] = metrics["pg_loss"] - settings.entropy_coef * entropy + settings.kl_loss_coef * kl
    return metrics, arrays


def _warnings(step: Step, settings: Settings, extra: Mapping[str, Array]) -> Iterator[str]:
    if not step.has_loss:
        yield "the batch lacks current_logprobs or advantages: the metrics of slime's loss are left out"
    if settings.use_kl_loss and "reference_logprobs" not in extra:
        yield "use_kl_loss is on and the batch has no reference_logprobs: loss and kl_loss are left out"
    if settings.custom_pg_loss_reducer:
        yield "custom_pg_loss_reducer_function_path is set, and its average is not known: pg_loss and loss are left out"
    if settings.entropy_coef and "entropy" not in extra:
        yield "entropy_coef is set and the batch has no entropy: the entropy counts as 0"


evaluate = evaluator(parse, _step, "train/")
