"""AReaL's actor losses (PPO, CISPO, SAPO), and what its statistics tracker records of one micro-batch and exports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ratioscope.arrays import Array, Booleans, Singles

from ..single_precision import exp, single, total
from .settings import Settings
from .weights import Behave, Policies, approximations, row_means


@dataclass(frozen=True)
class Surrogate:
    """The policy loss of each token and its parts."""

    loss: Singles
    """The loss before the behaviour weight."""
    ratio: Singles
    """The PPO ratio current / old."""
    clipped: Booleans
    """The tokens that the clip changed."""
    dual_clipped: Booleans
    """The tokens that the dual clip changed."""
    gates: dict[str, Singles]
    """SAPO's gates under AReaL's names; empty for other losses."""


def surrogate(
    current: Singles, old: Singles, advantages: Singles, mask: Booleans, left: Booleans, s: Settings
) -> Surrogate:
    """The loss of the settings. `mask`: tokens before rejection, `left`: after it. Up to 1.0.4 rejected tokens have ratio 0."""
    log_ratio = current - old
    if s.use_cispo_loss:
        return _cispo(exp(log_ratio), current, advantages, left, s)
    if s.importance_sampling_level == "sequence":
        ratio = np.where(left, exp(row_means(log_ratio, left)), 0.0)
        advantages = single(np.where(left, row_means(advantages, left), 0.0))
    elif s.use_sapo_loss:
        ratio = exp(log_ratio)
    else:
        ratio = np.where(mask if s.generation.development else left, exp(log_ratio), 0.0)
    counted = mask if s.generation.development else left
    return (_sapo if s.use_sapo_loss else _ppo)(single(ratio), advantages, counted, s)


def _ppo(ratio: Singles, advantages: Singles, counted: Booleans, s: Settings) -> Surrogate:
    bounded = np.clip(ratio, 1 - s.eps_clip, 1 + (s.eps_clip if s.eps_clip_higher is None else s.eps_clip_higher))
    plain, clipped = -advantages * ratio, -advantages * bounded
    loss = np.maximum(plain, clipped)
    dual_clipped = np.zeros(ratio.shape, bool)
    if s.c_clip is not None:
        dual = np.sign(advantages) * single(s.c_clip) * advantages
        loss, dual_clipped = np.minimum(loss, dual), dual < loss
    return Surrogate(single(loss), ratio, (plain < clipped) & counted, dual_clipped & counted, {})


def _cispo(ratio: Singles, current: Singles, advantages: Singles, left: Booleans, s: Settings) -> Surrogate:
    """CISPO never zeroes a loss: `clipped` marks the tokens whose ratio is outside the band."""
    bounded = np.clip(ratio, 1 - s.eps_clip, 1 + (s.eps_clip_higher or 0.0))
    loss = single(-bounded * advantages * current)
    return Surrogate(loss, ratio, (bounded != ratio) & left, np.zeros(ratio.shape, bool), {})


def _sapo(ratio: Singles, advantages: Singles, counted: Booleans, s: Settings) -> Surrogate:
    positive, negative = (_gate(ratio, tau) for tau in (s.sapo_tau_pos, s.sapo_tau_neg))
    gate = single(np.where(advantages > 0, positive, negative))
    none = np.zeros(ratio.shape, bool)
    gates = {"sapo_soft_gate": gate, "sapo_scaled_gate_pos": positive, "sapo_scaled_gate_neg": negative}
    return Surrogate(-gate * advantages, ratio, none, none, gates)


def _gate(ratio: Singles, tau: float) -> Singles:
    return single(single(1) / (1 + exp(single(-tau) * (ratio - 1))) * single(4 / tau))


@dataclass
class Record:
    """The records of one micro-batch, by name."""

    stats: dict[str, tuple[Array, Booleans]] = field(default_factory=dict)
    """(values, mask): exported as mean and extremes over the mask."""
    counts: dict[str, Booleans] = field(default_factory=dict)
    """Masks, exported as numbers of tokens."""
    scalars: dict[str, float] = field(default_factory=dict)
    """Name -> number."""

    def stat(self, mask: Booleans, scope: str = "", /, **values: Array) -> None:
        """Records values whose mean and extremes over the mask are exported."""
        self.stats |= {scope + name: (value, mask) for name, value in values.items()}


def exported(records: Sequence[Record]) -> dict[str, float]:
    """avg, min and max over the values inside the masks of all micro-batches; counts added, scalars averaged unweighted.

    A name without a value inside its masks is left out, and so is an infinite extreme. Values outside a mask never count.
    """
    metrics: dict[str, float] = {}
    for name in _names([record.stats for record in records]):
        metrics |= _summary(name, [record.stats[name] for record in records if name in record.stats])
    for name in _names([record.counts for record in records]):
        metrics[name] = float(sum(record.counts[name].sum() for record in records if name in record.counts))
    for name in _names([record.scalars for record in records]):
        values = [record.scalars[name] for record in records if name in record.scalars]
        metrics[name] = float(single(sum(values)) / single(len(values)))
    return metrics


def _names(tables: Sequence[Mapping[str, object]]) -> dict[str, None]:
    return dict.fromkeys(name for table in tables for name in table)


def _summary(name: str, parts: Sequence[tuple[Array, Booleans]]) -> dict[str, float]:
    masked = [value[mask] for value, mask in parts]
    values = np.concatenate(masked)
    if not values.size:
        return {}
    # Python's min and max over micro-batches, as in AReaL: the result depends on where a NaN stands among them.
    lowest = min(float(each.min(initial=np.inf)) for each in masked)
    highest = max(float(each.max(initial=-np.inf)) for each in masked)
    extremes = {f"{name}/min": lowest, f"{name}/max": highest}
    average = float(single(values.sum(dtype=np.float64)) / single(values.size))
    return {f"{name}/avg": average} | {key: value for key, value in extremes.items() if not np.isinf(value)}


@dataclass(frozen=True)
class Inputs:
    """The arrays of the metrics that do not come from the surrogate."""

    rollout: Singles
    old: Singles
    current: Singles
    entropy: Array
    inside: Booleans
    """The positions that are not padding."""


def record_loss(
    record: Record, i: Inputs, mask: Booleans, step: Surrogate, behave: Behave | None, s: Settings
) -> float:
    """Records the loss's statistics and returns the loss.

    The loss is a sum over the tokens that rejection leaves, divided by the valid tokens before it: rejection does not raise
    the weight of the other tokens.
    """
    loss = step.loss if behave is None else single(step.loss * behave.weight)
    left = mask if behave is None else behave.loss_mask
    record.counts |= {"n_tokens": i.inside, "n_valid_tokens": mask}
    record.counts |= {"clipped_tokens": step.clipped, "dual_clipped_tokens": step.dual_clipped}
    record.stat(mask, importance_weight=step.ratio, approx_kl=i.current - i.old, actor_loss=loss)
    record.stat(mask, new_logp=i.current, old_logp=i.rollout, entropy=i.entropy)
    record.stat(mask, clip_ratio=single(step.clipped), dual_clip_ratio=single(step.dual_clipped))
    if s.use_sapo_loss:
        record.stat(mask, "", **step.gates)
    else:
        record.stat(step.clipped, clipped_new_logp=i.current, clipped_old_logp=i.rollout)
    if behave is not None:
        record.counts["unclipped_behave_tokens"] = behave.kept
        record.stat(behave.kept, behave_imp_weight=behave.weight, behave_approx_kl=i.old - i.rollout)
        if behave.filtered is not None:
            record.scalars["rs_filtered_fraction"] = behave.filtered
    if s.generation.development:
        _record_development(record, i, mask, behave, s)
    return total(np.where(left, loss, 0.0)) / max(int(mask.sum()), 1)


def _record_development(record: Record, i: Inputs, mask: Booleans, behave: Behave | None, s: Settings) -> None:
    """The metrics of AReaL's main branch since 1.0.4. A NaN outside the mask does not count."""
    gap = i.rollout - i.current
    record.stat(mask, logp_diff=gap, logp_abs_diff=np.abs(gap))
    if behave is not None:
        record.stat(mask, behave_filtered_ratio=single(mask & ~behave.kept))
    if not (s.use_cispo_loss or s.use_sapo_loss):
        valid, tokens = int(mask.sum()), int(i.inside.sum())
        record.scalars |= {"n_total_tokens": tokens, "n_valid_tokens_in_loss": valid, "n_masked_tokens": tokens - valid}
        record.scalars["masked_token_ratio"] = 1 - valid / max(tokens, 1)


_EPSILON = single(1e-8)


def record_proximal(record: Record, p: Policies, mask: Booleans, settings: Settings) -> None:
    """Records scope compute_logp: the given log-probs, approximations and their errors, and three estimators of KL.

    The estimators compare rollout with current, not with old. They need versions.
    """
    scope = "compute_logp/"
    record.counts[scope + "n_valid_tokens"] = mask
    if p.given is not None:
        record.stat(mask, scope, prox_logp_gt=p.given)
    if p.versions is None or p.version is None:
        return
    approximated = {"loglinear": ("loglinear",), "metrics": ("loglinear", "linear", "rollout")}
    for name in approximated.get(settings.prox_logp_method, ()):
        _record_approximation(record, approximations(p)[name], p, mask, f"{scope}{name}/")
    gap = p.current - p.rollout
    record.stat(mask, scope, kl_div_direct=-gap, kl_div_taylor=gap**2 / 2, kl_div_dual=exp(gap) - 1 - gap)


def _record_approximation(record: Record, approximated: Singles, p: Policies, mask: Booleans, scope: str) -> None:
    behave, importance = exp(approximated - p.rollout), exp(p.current - approximated)
    record.stat(mask, scope, approx_logp=approximated, behave_imp_weight=behave, importance_weight=importance)
    if p.given is None:
        return
    error = _errors(p.given, approximated)
    record.stat(mask, scope, **error, squared_error=np.square(p.given - approximated))
    for name, value in _errors(exp(p.given - p.rollout), behave).items():
        record.stat(mask, f"{scope}behave_imp_weight_", **{name: value})
    for name, value in _errors(exp(p.current - p.given), importance).items():
        record.stat(mask, f"{scope}importance_weight_", **{name: value})


def _errors(truth: Singles, approximated: Singles) -> dict[str, Array]:
    gap = truth - approximated
    return {"abs_error": np.abs(gap), "rel_error": np.abs(gap / (np.abs(truth) + _EPSILON))}


def record_versions(record: Record, p: Policies, mask: Booleans) -> None:
    """Records scope version_stats: the lag of the sampled tokens behind the proximal (v - 1) and the current version (v)."""
    if p.versions is None or p.version is None:
        return
    scope = "version_stats/"
    record.counts[scope + "n_valid_tokens"] = mask
    generated = mask & (p.versions >= 0)
    if not generated.any():
        return
    for name, version in (("proximal", p.version - 1), ("theta", p.version)):
        lag = single(version) - single(p.versions[generated])
        record.scalars |= {
            f"{scope}sample_staleness_{name}_avg": float(single(lag.mean(dtype=np.float64))),
            f"{scope}sample_staleness_{name}_max": float(lag.max()),
            f"{scope}sample_staleness_{name}_min": float(lag.min()),
            f"{scope}v_{name}": float(version),
        }
    record.scalars[scope + "n_valid_generated_tokens"] = float(generated.sum())
