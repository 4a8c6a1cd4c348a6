"""verl: the metrics, weights and mask of its rollout correction, from 0.7.1 up to 0.9.1.

The trainer is the numerator of every ratio; expectations are over rollout samples. In decoupled mode verl's driver compares
`old` with `rollout` once per batch. In bypass mode its workers compare `current` with `rollout` in each micro-batch. The gaps of
CANONICAL are those of decoupled mode; the bypass loss gives the same names to metrics of gap `total`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from ratioscope.arrays import Integers

from ..batch import DialectBatch
from ..evaluation import Call, Evaluation, evaluator
from ..settings import not_allowed
from .config import parse
from .correction import write
from .loss import bypass_loss, decoupled_loss
from .rejection import corrected_batch, off_policy_metrics, probability_metrics, some_valid
from .settings import DEFAULTS, DIVERGENCES, VERSIONS, VerlSettings

__all__ = ["CANONICAL", "KINDS", "NOTES", "PRESETS", "PRESETS_OF", "VERSIONS", "evaluate", "parse", "write"]

_TOKEN, _SEQUENCE = {"rollout_is": "token"}, {"rollout_is": "sequence"}
_ICEPOP = {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"}
_GEO = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.999_1.001"}
_K3 = {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.01}
_SEQ_RS = {"rollout_rs": "seq_sum_k1", "rollout_rs_threshold": "0.5_2.0"}
_BYPASS = {"bypass_mode": True}
_REINFORCE = {"bypass_mode": True, "loss_type": "reinforce"}

_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "decoupled_token_is": _TOKEN,
    "decoupled_seq_is": _SEQUENCE,
    "decoupled_token_icepop": _ICEPOP,
    "decoupled_seq_is_rs": {**_SEQUENCE, **_SEQ_RS},
    "decoupled_geo_rs": _GEO,
    "decoupled_geo_rs_seq_tis": {**_SEQUENCE, **_GEO},
    "decoupled_geo_rs_token_tis": {**_TOKEN, **_GEO},
    "decoupled_k3_rs": _K3,
    "decoupled_k3_rs_seq_tis": {**_SEQUENCE, **_K3},
    "decoupled_k3_rs_token_tis": {**_TOKEN, **_K3},
    "bypass_ppo_clip": _BYPASS,
    "bypass_ppo_clip_geo_rs": {**_BYPASS, **_GEO},
    "bypass_ppo_clip_k3_rs": {**_BYPASS, **_K3},
    "bypass_pg_is": {**_SEQUENCE, **_REINFORCE},
    "bypass_pg_token_icepop": {**_ICEPOP, **_REINFORCE},
    "bypass_pg_geo_rs": {**_GEO, **_REINFORCE},
    "bypass_pg_geo_rs_seq_tis": {**_SEQUENCE, **_GEO, **_REINFORCE},
    "bypass_pg_geo_rs_token_tis": {**_TOKEN, **_GEO, **_REINFORCE},
    "disabled": {},
}

PRESETS = {name: {**DEFAULTS, **changes} for name, changes in _CHANGES.items()}
"""Preset name -> the full mapping that verl's factory of that name returns with its default arguments."""
PRESETS_OF = {"0.9.1": PRESETS, "0.7.1": {name: preset for name, preset in PRESETS.items() if "icepop" not in name}}
"""version -> preset name -> full configuration."""

PREFIX = "rollout_corr/"

_EMPTY_ROWS = "a mean over all rows, and rows without a valid token count as "
_LEGACY = "up to 0.7.1 computed from the raw ratios, from 0.8.0 on from the applied weights"

_OFF_POLICY: Mapping[str, str] = {
    "training_ppl": f"{_EMPTY_ROWS}perplexity 1: padding rows dilute it",
    "training_log_ppl": f"{_EMPTY_ROWS}0: padding rows dilute it",
    "kl": "the same; K1 is unbiased and can be negative",
    "k3_kl": "in float32 it loses its digits below log-ratios of 1e-3, can be negative at 1e-4 and is inf above 88.7; one "
    "rollout log-prob of -inf makes it NaN",
    "rollout_ppl": f"{_EMPTY_ROWS}perplexity 1",
    "rollout_log_ppl": f"{_EMPTY_ROWS}0",
    "log_ppl_diff": f"{_EMPTY_ROWS}0; verl's documentation states the opposite sign",
    "log_ppl_abs_diff": f"{_EMPTY_ROWS}0",
    "log_ppl_diff_max": "a row without a valid token keeps it at or above 0",
    "log_ppl_diff_min": "a row without a valid token keeps it at or below 0",
    "ppl_ratio": f"{_EMPTY_ROWS}1; a mean of exponentials, documented as the exponential of a mean",
    "chi2_token": "log-ratios are clamped to +-20; it can be negative, contrary to verl's documentation",
    "chi2_seq": f"row sums are clamped to +-20: never above e^40; {_EMPTY_ROWS}0",
}
_OFF_POLICY_CANONICAL = {
    "training_ppl": "mismatch/ppl_old",
    "training_log_ppl": "mismatch/log_ppl_old",
    "kl": "mismatch/kl_direct",
    "k3_kl": "mismatch/kl_k3",
    "rollout_ppl": "mismatch/ppl_rollout",
    "rollout_log_ppl": "mismatch/log_ppl_rollout",
    "log_ppl_diff": "mismatch/log_ppl_gap",
    "ppl_ratio": "mismatch/ppl_ratio",
    "chi2_token": "mismatch/chi2_token",
    "chi2_seq": "mismatch/chi2_sequence",
}

_IMPORTANCE: Mapping[str, str] = {
    "mean": "after truncation, so below the mean weight: it need not be 1 even if the records are right; "
    f"{_LEGACY}; at sequence level long rows weigh more",
    "max": "at token level never above the threshold from 0.8.0 on; at sequence level the maximum of untruncated products, at "
    "most e^20, with 1 for a row without a valid token",
    "min": "at token level of the applied weights, so 0 for one that IcePop drops; at sequence level the minimum of untruncated "
    "products, not clamped: it underflows to 0",
    "std": "from weights clamped to the threshold, or set to 0 by IcePop, as a difference of squares: noise in float32 if the "
    "spread is small",
    "eff_sample_size": "a share, not a count; from weights after the bounds (clamped, so nearer 1, or with IcePop 0 outside); at "
    "sequence level each token has its sequence's product",
    "ratio_fraction_high": "share above the threshold alone; at sequence level a mean over all rows",
    "ratio_fraction_low": "share below the lower bound of IcePop, or else below 1 / threshold, which truncation does not use; "
    "at sequence level a mean over all rows",
    "seq_mean": f"{_EMPTY_ROWS}0; at token level from each row's arithmetic mean, not from its product; {_LEGACY}",
    "seq_std": f"over all rows, and rows without a valid token count as 0; {_LEGACY}",
    "seq_max": _LEGACY,
    "seq_min": "0 as soon as one row has no valid token",
    "seq_max_deviation": "at least 1 as soon as one row has no valid token",
    "seq_fraction_high": "from raw row means; in 0.8.0 from truncated ones, so always 0",
    "seq_fraction_low": "rows without a valid token count as low",
    "oob_ratio": "the share of tokens that IcePop sets to zero; the mask and the loss's denominator do not change",
    "batch_norm_factor": "the divisor; every other rollout_is metric is computed before the division",
}
_OLD_REJECTION: Mapping[str, str] = {
    "mean": "of the ratios, which nothing bounds; at sequence level long rows weigh more",
    "max": "at most e^20",
    "min": "at sequence level not clamped: it underflows to 0",
    "std": "from ratios clamped to both thresholds, as a difference of squares",
    "eff_sample_size": "a share, not a count; from ratios clamped to both thresholds, so nearer 1",
    "ratio_fraction_high": "the share above the upper threshold; at sequence level of all rows",
    "ratio_fraction_low": "the share below the lower threshold (1 / the upper one unless set); at sequence level of all rows",
    "seq_mean": f"of each row's mean ratio; {_EMPTY_ROWS}0",
    "seq_std": "of each row's mean ratio, over all rows",
    "seq_max": "of each row's mean ratio",
    "seq_min": "of each row's mean ratio; 0 as soon as one row has no valid token",
    "seq_max_deviation": "the largest distance from 1 of a row's mean ratio; at least 1 as soon as one row has no valid token",
    "seq_fraction_high": "the share of rows whose mean ratio lies above the upper threshold, at token level no share rejected",
    "seq_fraction_low": "the share of rows whose mean ratio lies below the lower threshold, rows without a valid token too",
}
_IMPORTANCE_CANONICAL = {"mean": "mismatch/mean_weight_token", "eff_sample_size": "mismatch/ess_token"}

_ROWS = "of rows, for a token option of their means; rows without a valid token are left out"
_REJECTION: Mapping[str, str] = {
    "mean": "for a sequence option the mean of the row statistic, weighted by row length",
    "max": "K1 is minus the log-ratio: it is largest where the trainer's probability falls furthest below the rollout's",
    "min": "K1 is minus the log-ratio",
    "fraction_high": "a share of rows for a sequence option, of tokens for a token option; K1 bounds act on rollout / trainer",
    "fraction_low": "always 0 for K2 and K3",
    "std": "from values clamped to the bounds, as a difference of squares",
    "seq_mean": f"{_ROWS}, while rollout_is_seq_mean counts them",
    "seq_std": _ROWS,
    "seq_max": _ROWS,
    "seq_min": _ROWS,
    "seq_max_deviation": f"{_ROWS}; the deviation from 0, while rollout_is_seq_max_deviation is the deviation from 1",
    "seq_fraction_high": "for a token option the share of row means, by which verl does not reject",
    "seq_fraction_low": "for a token option the share of row means, by which verl does not reject; K1 only",
    "masked_fraction": "before rejection by the other options",
    "seq_masked_fraction": "rows with a rejected token over rows with a valid one; the combined one divides by all rows",
}

_OTHER: Mapping[str, str] = {
    "rollout_corr/rollout_rs_masked_fraction": "share of tokens rejected; workers still count them in the loss's denominator",
    "rollout_corr/rollout_rs_seq_masked_fraction": "rows with a rejected token over all rows, empty ones included",
    "rollout_corr/rollout_is_veto_fraction": "the share of sequences that the veto rejects; before 0.7.1 only, 0 while it is off",
    "rollout_corr/rollout_is_catastrophic_token_fraction": "the share of tokens below the bound of the veto; before 0.7.1 only",
    "training/rollout_probs_diff_valid": "1 if the batch has a valid token, else 0, and the numbers beside it are NaN",
    "training/rollout_probs_diff_max": "a difference of probabilities, though verl calls it logprob; NaN if any is NaN",
    "training/rollout_probs_diff_mean": "a difference of probabilities, though verl calls it logprob; not logged in bypass mode",
    "training/rollout_probs_diff_std": "a difference of probabilities",
    "training/rollout_actor_probs_pearson_corr": "near 1 even for a large gap, because most probabilities are near 1 "
    "or 0; not comparable between temperatures",
    "actor/ppo_kl": "log-ratios clamped to +-20, not in all loss modes (kl_cov: the mean of their size, gpg: absent); in bypass "
    "mode rollout - current over the tokens left",
    "actor/pg_clipfrac": "the share of tokens at which the loss clips the ratio of current over old: in vanilla where the "
    "advantage makes a bound bind, in gspo so for the sequence's geometric mean, in cispo at any; in geo_mean the share with a "
    "positive advantage and a log-ratio outside the bounds, on either side; dropped by the trust region in dppo_tv and dppo_kl, "
    "by covariance in clip_cov; 0 in sapo, absent in kl_cov, gpg, dro and reinforce",
    "actor/pg_clipfrac_lower": "the share of tokens with a negative advantage at which the dual clip decides (vanilla) or the "
    "log-ratio lies outside the bounds, on either side (geo_mean); in dppo_* the share kept whose ratio is cut off at "
    "clip_ratio_c; 0 in gspo, cispo, sapo, absent in clip_cov, kl_cov, gpg, dro and reinforce",
    "actor/pg_loss": "workers divide by the tokens before rejection, so rejecting shrinks the loss",
}
_OTHER_CANONICAL = {
    "training/rollout_probs_diff_max": "mismatch/max_prob_diff",
    "training/rollout_probs_diff_mean": "mismatch/prob_diff",
    "training/rollout_actor_probs_pearson_corr": "mismatch/prob_correlation",
    "actor/ppo_kl": "drift/ppo_kl",
}

NOTES: Mapping[str, str] = {
    **{PREFIX + name: note for name, note in _OFF_POLICY.items()},
    **{f"{PREFIX}rollout_is_{name}": note for name, note in _IMPORTANCE.items()},
    **{f"{PREFIX}rollout_rs_{option}_{name}": note for option in DIVERGENCES for name, note in _REJECTION.items()},
    **{
        f"{PREFIX}rollout_rs_{name}": "before 0.7.1: from ratios, not from divergences; " + note
        for name, note in _OLD_REJECTION.items()
    },
    **_OTHER,
}
_CANONICAL = {PREFIX + name: canonical for name, canonical in _OFF_POLICY_CANONICAL.items()} | _OTHER_CANONICAL
_CANONICAL |= {f"{PREFIX}rollout_is_{name}": canonical for name, canonical in _IMPORTANCE_CANONICAL.items()}
CANONICAL: Mapping[str, str | None] = {name: _CANONICAL.get(name) for name in NOTES}

Groups = Sequence[Integers] | None


def _batch(call: Call[VerlSettings]) -> Evaluation:
    """The metrics and weights of verl for a batch. `config` is a rollout_correction block, or a configuration that has one.

    `kind`: one of KINDS, or "step" (the default), the metrics that one training step logs, as far as the batch has the arrays.
    `micro_batches`: the rows of the workers' micro-batches. Workers' metrics are averaged over micro-batches, maxima too, and
    their loss is divided by the tokens before rejection. verl logs workers' metrics as `actor/rollout_corr/...`.
    """
    batch, settings, kind = call.batch, call.settings, call.kind or "step"
    kinds: Sequence[str] = (kind,)
    if kind == "step" and settings.bypass:  # it has only its loss, which needs `current`
        kinds = ("bypass_loss",)
    elif kind == "step":
        has_loss = batch.current_logprobs is not None and batch.advantages is not None
        kinds = ("rollout_correction", "debug_metrics", *(("ppo_clip_loss",) if has_loss else ()))
    elif kind not in KINDS:
        raise not_allowed("kind", kind, ("step", *KINDS))
    groups = None if call.micro_batches is None else call.groups()
    return reduce(_joined, [KINDS[each](batch, settings, groups) for each in kinds])


def _rollout_correction(batch: DialectBatch, settings: VerlSettings, groups: Groups) -> Evaluation:
    correction = corrected_batch(batch.needed("old_logprobs"), batch.needed("rollout_logprobs"), batch.mask, settings)
    return Evaluation(correction.metrics, correction.weights, correction.mask)


def _current_vs_rollout(batch: DialectBatch, settings: VerlSettings, groups: Groups) -> Evaluation:
    some_valid(batch.mask)
    current, rollout = batch.needed("current_logprobs"), batch.needed("rollout_logprobs")
    return Evaluation(off_policy_metrics(current, rollout, batch.mask), None, batch.mask)


def _debug_metrics(batch: DialectBatch, settings: VerlSettings, groups: Groups) -> Evaluation:
    old, rollout = batch.needed("old_logprobs"), batch.needed("rollout_logprobs")
    return Evaluation(probability_metrics(old, rollout, batch.mask), None, batch.mask)


KINDS: Mapping[str, Callable[[DialectBatch, VerlSettings, Groups], Evaluation]] = {
    "rollout_correction": _rollout_correction,
    "current_vs_rollout": _current_vs_rollout,
    "debug_metrics": _debug_metrics,
    "bypass_loss": bypass_loss,
    "ppo_clip_loss": decoupled_loss,
}
"""Kind -> evaluation. Each kind reproduces one function of verl: the correction, its metrics with current in place of old, the
probability differences, and the two losses."""


def _joined(first: Evaluation, second: Evaluation) -> Evaluation:
    """The metrics of both evaluations, with the weights and the mask of the first."""
    return replace(
        first,
        metrics=first.metrics | second.metrics,
        losses={**first.losses, **second.losses},
        arrays={**first.arrays, **second.arrays},
    )


evaluate = evaluator(parse, _batch)
