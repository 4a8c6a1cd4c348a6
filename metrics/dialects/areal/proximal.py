"""AReaL's proximal (old) log-probs: given, approximated from versions, or reused; and what it logs of them and of versions."""

from dataclasses import dataclass

import numpy as np

from ratioscope.errors import SchemaError

from ..evaluation import Array, Mask
from ..single_precision import Single, exp, log, single
from .settings import Settings
from .tracker import Record

_EPSILON = single(1e-8)


@dataclass(frozen=True)
class Policies:
    """Log-probs in float32. `given`: the proximal ones of a forward pass, None where it was skipped. `versions` and
    `version` (of the engine when the update starts) may be None; prompt and tool tokens have version -1."""

    rollout: Single
    current: Single
    given: Single | None
    versions: Array | None
    version: int | None


def proximal(p: Policies, settings: Settings) -> Single:
    """The proximal log-probs the loss uses. SchemaError where the trainer stops: NaN or infinity anywhere, masked or not."""
    if settings.prox_logp_method == "reuse_train_logp":
        found = p.current
    elif p.given is not None:
        found = p.given
    else:
        found = approximations(p)["loglinear"]
    if not np.isfinite(found).all():
        row, position = np.argwhere(~np.isfinite(found))[0]
        raise SchemaError(
            f"the old (proximal) log-prob at row {row}, position {position} is {found[row, position]}; AReaL stops the "
            f"run there, even where the token is masked (prox_logp_method {settings.prox_logp_method!r})"
        )
    return found


def approximations(p: Policies) -> dict[str, Single]:
    """Between rollout and current by how far the versions are apart: alpha = (v - 1 - ver) / (v - ver) for v > ver >= 0.

    `versions` are read where the trainer reads them: one position late, see areal.evaluate's kinds.
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


def record_proximal(record: Record, p: Policies, mask: Mask, settings: Settings) -> None:
    """Scope compute_logp: the given log-probs, approximations and their errors, and three estimators of KL.

    The estimators compare rollout with current, not with old, and need versions.
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


def _record_approximation(record: Record, found: Single, p: Policies, mask: Mask, scope: str) -> None:
    behave, importance = exp(found - p.rollout), exp(p.current - found)
    record.stat(mask, scope, approx_logp=found, behave_imp_weight=behave, importance_weight=importance)
    if p.given is None:
        return
    error = _errors(p.given, found)
    record.stat(mask, scope, **error, squared_error=np.square(p.given - found))
    for name, value in _errors(exp(p.given - p.rollout), behave).items():
        record.stat(mask, f"{scope}behave_imp_weight_", **{name: value})
    for name, value in _errors(exp(p.current - p.given), importance).items():
        record.stat(mask, f"{scope}importance_weight_", **{name: value})


def _errors(truth: Single, found: Single) -> dict[str, Array]:
    gap = truth - found
    return {"abs_error": np.abs(gap), "rel_error": np.abs(gap / (np.abs(truth) + _EPSILON))}


def record_versions(record: Record, p: Policies, mask: Mask) -> None:
    """Scope version_stats: how old the sampled tokens are against the proximal (v - 1) and the current version (v)."""
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
