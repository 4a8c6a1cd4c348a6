"""AReaL's proximal (old) log-probs: given, approximated from versions, or reused; their metrics, and those of versions."""

from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Array, Booleans, Singles
from ratioscope.errors import SchemaError

from ..single_precision import exp, log, single
from .settings import Settings
from .tracker import Record

_EPSILON = single(1e-8)


@dataclass(frozen=True)
class Policies:
    """The log-probs of one micro-batch in float32, and the versions of its tokens."""

    rollout: Singles
    current: Singles
    given: Singles | None
    """The proximal log-probs of a forward pass; None if AReaL skipped it."""
    versions: Array | None
    """The weight version that sampled each token; -1 for prompt and tool tokens. None if the batch has none."""
    version: int | None
    """The engine's version when the update starts; None if the batch has none."""


def proximal(p: Policies, settings: Settings) -> Singles:
    """The proximal log-probs that the loss uses.

    SchemaError if any is NaN or infinite, masked or not, because the trainer stops there.
    """
    if settings.prox_logp_method == "reuse_train_logp":
        old = p.current
    elif p.given is not None:
        old = p.given
    else:
        old = approximations(p)["loglinear"]
    if not np.isfinite(old).all():
        row, position = np.argwhere(~np.isfinite(old))[0]
        raise SchemaError(
            f"the old (proximal) log-prob at row {row}, position {position} is {old[row, position]}; AReaL stops the "
            f"run there, even where the token is masked (prox_logp_method {settings.prox_logp_method!r})"
        )
    return old


def approximations(p: Policies) -> dict[str, Singles]:
    """Interpolations between rollout (alpha 0) and current (alpha 1), by how far the two versions are apart.

    With v the current version and u the token's: alpha = (v - 1 - u) / (v - u) for v > u >= 0, else 0.
    """
    if p.versions is None or p.version is None:
        raise SchemaError("an approximated old policy needs 'versions' (rows, positions) and 'current_version'")
    behind = single(p.version) - single(p.versions)
    alpha = np.where((behind > 0) & (p.versions >= 0), (behind - 1) / behind, 0.0)
    alpha = single(np.clip(single(alpha), 0, 1))
    probability = single((1 - alpha) * exp(p.rollout) + alpha * exp(p.current))
    return {
        "loglinear": single(p.rollout + alpha * (p.current - p.rollout)),
        "linear": log(probability + single(1e-10)),
        "rollout": p.rollout,
    }


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
    if settings.generation.kl_trio:
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
