"""NVIDIA NeMo-RL: `train/*` metrics of its loss and driver, the correction of `loss_fn`, the sequence error filter.

NeMo-RL's names: generation_logprobs = rollout, prev_logprobs = old, next_token_logprobs = current. Each rank and micro-batch
divides its sum over valid tokens by the valid tokens of the whole optimizer step. The driver adds these parts up.
"""

from typing import Any

from ratioscope.arrays import Array

from ..batch import rows_of
from ..evaluation import Call, Evaluation, evaluator
from ..single_precision import single, total
from .correction import write
from .loss import Denominators, loss_metrics, summed
from .settings import VERSIONS, Settings, parse
from .weights import correction_weights, in_the_loss, recorded, sequence_filter

__all__ = ["CANONICAL", "NOTES", "PRESETS", "VERSIONS", "evaluate", "parse", "write"]

_TRUNCATED = {"use_importance_sampling_correction": True, "truncated_importance_sampling_type": "tis"}
_GSPO = {
    "sequence_level_importance_ratios": True,
    "token_level_loss": False,
    "use_importance_sampling_correction": True,
}

PRESETS: dict[str, dict[str, Any]] = {
    "off": {},
    "token": {"use_importance_sampling_correction": True},
    "tis": {**_TRUNCATED, "truncated_importance_sampling_ratio": 2.0},
    "icepop": {
        **_TRUNCATED,
        "truncated_importance_sampling_type": "icepop",
        "truncated_importance_sampling_ratio": 5.0,
        "truncated_importance_sampling_ratio_min": 0.5,
    },
    "seq-mask-tis": {
        **_TRUNCATED,
        "truncated_importance_sampling_type": "seq-mask-tis",
        "truncated_importance_sampling_ratio": 1.002,
        "truncated_importance_sampling_ratio_min": 0.999,
    },
    "gspo": _GSPO,
    "sequence-error-filter": {"seq_logprob_error_threshold": 2.0},
}
"""The values of NeMo-RL's recipes: tis 2, icepop 0.5 to 5, seq-mask-tis 0.999 to 1.002. The filter's value is its guide's."""

CANONICAL: dict[str, str | None] = {
    "train/gen_kl_error": "mismatch/kl_k3",
    "train/sampling_importance_ratio": "mismatch/mean_weight_token",
    **{f"train/{name}": None for name in ("token_mult_prob_error", "policy_kl_error", "js_divergence_error")},
    **{f"train/{name}": None for name in ("is_oob_ratio", "probs_ratio", "approx_entropy")},
    **{f"train/{extreme}_seq_mult_prob_error": None for extreme in ("max", "mean", "min")},
}

NOTES: dict[str, str] = {
    "train/gen_kl_error": "is K3 only with reference_policy_kl_type k3. A NaN at a masked token makes it NaN",
    "train/policy_kl_error": "the samples come from the generator, so this does not estimate KL(trainer || rollout): one "
    "token with old far below rollout dominates it",
    "train/js_divergence_error": "uses only the sampled token, so it is not bounded by ln 2",
    "train/sampling_importance_ratio": "with truncated_importance_sampling_ratio (none unless set) a mean after truncation or "
    "filtering, so that a value near 1 does not show that the raw ratio is near 1; weights that overflow count 0; before pull "
    "request 3753, at a sequence level, it is too large by a factor of the rows of a micro-batch. "
    "Pull request 3900 makes it the mean before truncation, under the same name",
    "train/is_oob_ratio": "a weight that overflowed is 0: inside under tis, unless a lower bound above 0 is set; in pull "
    "request 2269 the sum over k micro-batches is k - share inside",
    "train/token_mult_prob_error": "mean of exp(abs(log-ratio)): at least 1, and 0 only for a batch without valid tokens",
    "train/approx_entropy": "the untruncated ratio leaves its mean right; its spread grows with the mismatch",
    "train/probs_ratio": "with disable_ppo_ratio this is the mean current log-prob",
    "train/loss": "filtered tokens stay in the denominator, so icepop and seq-mask-tis shrink the loss",
    "train/mean_seq_mult_prob_error": "a mean over sequences, not over tokens; 0 if NeMo-RL skips the old forward",
}


_NEEDS = {
    "current_logprobs": ("loss", "probs_ratio*", "kl_penalty", "approx_entropy", "positive_nll_loss"),
    "advantages": ("loss", "masked_correct_pct"),
}


CENTERED = "score_centering is on: its term needs the sampler's top-k log-probs, which no batch has; the loss here is without it"


def _global_batch(call: Call[Settings]) -> Evaluation:
    """The metrics and weights of NeMo-RL for one global batch (one optimizer step).

    It also reads from `extra`: `sample_mask` (rows,), `rewards` (rows,), `reference_logprobs`. Weights are (rows, 1) at a
    sequence level, else zero outside the token mask; they are 1 if the correction is off. `mask` is after every filter. A
    `kind` that ends in `_mbN` cuts micro-batches of N rows. Without current or advantages the metrics of the loss are left out.
    """
    settings, mask = call.settings, call.batch.mask
    whole = recorded(call.batch, settings)
    driver = sequence_filter(whole, settings)
    count = Denominators(total(whole.token_mask * driver.sample_mask), total(driver.sample_mask))
    tensors = in_the_loss(whole, settings, driver.sample_mask)
    cuts = [rows_of(tensors, rows) for rows in call.groups()]
    parts = [loss_metrics(part, correction_weights(part, settings), settings, count) for part in cuts]
    weights = correction_weights(tensors, settings)
    arrays: dict[str, Array] = {"sample_mask": driver.sample_mask[:, 0] > 0}
    left = mask & (driver.sample_mask > 0)
    if weights.kept is not None:  # the filter's decisions, under the names of NeMo-RL's variables
        left = left & weights.kept
        if weights.geometric_mean is not None:
            arrays |= {"seq_kept": weights.kept[:, 0], "seq_geomean": weights.geometric_mean[:, 0]}
        else:
            arrays["token_kept"] = weights.kept if weights.kept.shape[1] == 1 else weights.kept & mask
    applied = weights.value * mask if settings.level == "token" else weights.value
    return Evaluation(
        metrics=summed(parts) | driver.metrics,
        weights=applied if settings.use_importance_sampling_correction else single(mask),
        mask=left,
        arrays=arrays,
        warnings=(CENTERED,) if settings.score_centering else (),
    )


evaluate = evaluator(parse, _global_batch, "train/", lambda settings: {} if settings.force_on_policy_ratio else _NEEDS)
