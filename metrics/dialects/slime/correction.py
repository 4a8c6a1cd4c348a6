"""slime's settings as a Correction, and a Correction as its settings; ConfigError if slime has no such setting."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from ratioscope.errors import ConfigError

from ...corrections.correction import Correction, CorrectionStep, Normalise, Reject, Weigh
from ...distribution import Level
from ..settings import changed, check, no_setting, yaml_text
from .settings import HOOK_PATHS, MIS, MIS_RULES, Settings

By = Literal["token", "sum", "mean"]
LEVELS: Mapping[str, tuple[Level, By]] = {
    "token": ("token", "token"),
    "sequence": ("sequence", "sum"),
    "geometric": ("geometric", "mean"),
}
"""A level of MIS -> (level of the Weigh, `by` of the Reject)."""
LOG_LIMIT = 20.0
_no_setting = partial(no_setting, "slime")
NO_BOUND = 1e9
"""An upper bound that no weight of MIS reaches: MIS clamps log-ratios to 20, and exp(20) is 4.9e8."""


def correction_of(settings: Settings) -> Correction:
    """The steps that slime takes. ConfigError for OPSM, because it reads the advantages.

    Batch normalisation uses the mask before rejection, so it comes first. A Correction normalises over the batch, slime over
    each micro-batch.
    """
    if settings.use_opsm:
        raise ConfigError("use_opsm reads advantages; no correction does: evaluate slime's dialect instead")
    if not settings.runs_hook:
        return Correction("slime", (), "total" if settings.use_rollout_logprobs else "mismatch")
    if settings.method == "mis":
        return Correction("slime mis", tuple(_mis_steps(settings)) if settings.use_tis else ())
    if settings.method == "off_policy_is":
        return Correction("slime off_policy_is", (_weigh("token", *settings.off_policy_clip),), "total")
    weigh = _weigh("token", settings.tis_clip_low, settings.tis_clip)
    return Correction(
        f"slime {settings.method}", (replace(weigh, outside="zero") if settings.method == "icepop" else weigh,)
    )


def settings_for(correction: Correction) -> Settings:
    """slime's settings for a correction: a built-in hook if one suffices, else the MIS example."""
    steps = correction.steps
    if not steps:
        return Settings(use_rollout_logprobs=correction.gap == "total")
    first = steps[0]
    if len(steps) == 1 and isinstance(first, Weigh) and first.level == "token":
        # The settings of one weight per token: vanilla TIS, icepop, or off-policy IS for gap `total`.
        if correction.gap == "total" and first.outside == "zero":
            raise _no_setting("weights on current / rollout set to zero")
        method = (
            "off_policy_is" if correction.gap == "total" else "icepop" if first.outside == "zero" else "vanilla_tis"
        )
        return Settings(method=method, use_tis=True, tis_clip_low=first.low, tis_clip=first.high)
    if correction.gap == "total":
        raise _no_setting("more than one clamped weight per token on current / rollout")
    settings = Settings(method="mis", use_tis=True, **_mis_keys(steps))
    check(settings, MIS_RULES)
    return settings


def _mis_steps(settings: Settings) -> list[CorrectionStep]:
    level, by = LEVELS[settings.tis_level]
    low, high = settings.tis_bounds
    normalise: list[CorrectionStep] = [Normalise("token" if level == "token" else "sequence")]
    steps: list[CorrectionStep] = [_weigh(level, low if settings.tis_mode == "clip" else 0.0, high, LOG_LIMIT)]
    if settings.tis_mode == "mask":
        steps = [Weigh(level, log_limit=LOG_LIMIT)]
    steps += normalise if settings.tis_batch_normalize else []
    steps += [Reject("weight", by, low, high)] if settings.tis_mode == "mask" else []
    if settings.use_rs:
        steps.append(Reject("weight", LEVELS[settings.rs_level][1], *settings.rs_bounds))
        if settings.rs_veto_threshold is not None:
            steps.append(Reject("weight", "any", low=settings.rs_veto_threshold))
    return steps


def _weigh(level: Level, low: float, high: float, log_limit: float = math.inf) -> Weigh:
    return Weigh(level, max(low, 0.0), high, log_limit=log_limit)


def _mis_keys(steps: Sequence[CorrectionStep]) -> dict[str, Any]:
    """The YAML keys of the MIS example for weights, then their normalisation, then rejection."""
    kinds = [type(step) for step in steps]
    if kinds != sorted(kinds, key=(Weigh, Normalise, Reject).index) or kinds.count(Normalise) > 1:
        raise _no_setting("any other order than weights, normalisation, rejection")
    weigh, rejects = steps[0], [step for step in steps if isinstance(step, Reject)]
    if not isinstance(weigh, Weigh):
        raise _no_setting("rejection without importance weights")
    if any(step.over == "remaining" for step in rejects[1:]):
        raise _no_setting("rejection over the tokens that an earlier rejection leaves")
    for step in steps:
        if isinstance(step, Normalise) and step.by != weigh.level:
            raise _no_setting("normalisation at another level than the weights")
    vetoes = [step for step in rejects if (step.of, step.by, step.high) == ("weight", "any", math.inf)]
    bounded = [step for step in rejects if step not in vetoes]
    mode, bounds, bounded = _mode(weigh, bounded)
    if len(bounded) > 1 or len(vetoes) > 1:
        raise _no_setting("more than one rejection beside a veto")
    keys = {"tis_level": weigh.level, "tis_mode": mode, "tis_lower_bound": bounds[0], "tis_upper_bound": bounds[1]}
    return keys | {"tis_batch_normalize": Normalise in kinds} | _rejection_keys(bounded, vetoes)


def _mode(weigh: Weigh, bounded: list[Reject]) -> tuple[str, tuple[float, float], list[Reject]]:
    """(tis_mode, its bounds, the rejections that they do not cover). Mode `mask` rejects at the level of the weights."""
    bounds = (weigh.low, min(weigh.high, NO_BOUND))
    if weigh.outside == "zero":
        return "mask", bounds, bounded
    if bounded and bounds == (0.0, NO_BOUND) and LEVELS[weigh.level][1] == bounded[0].by:
        return "mask", _weight_bounds(bounded[0]), bounded[1:]
    return "clip" if weigh.low > 0 else "truncate", bounds, bounded


def _rejection_keys(bounded: list[Reject], vetoes: list[Reject]) -> dict[str, Any]:
    if not bounded and not vetoes:
        return {}
    low, high = _weight_bounds(bounded[0]) if bounded else (0.0, NO_BOUND)
    level = next(name for name, (_, by) in LEVELS.items() if by == bounded[0].by) if bounded else "token"
    veto = vetoes[0].low if vetoes else None
    return {"use_rs": True, "rs_level": level, "rs_lower_bound": low, "rs_upper_bound": high, "rs_veto_threshold": veto}


def _weight_bounds(step: Reject) -> tuple[float, float]:
    """A rejection's bounds as bounds of the weight. K1 is the negative logarithm of the weight."""
    if step.by not in ("token", "sum", "mean") or step.of not in ("weight", "k1"):
        raise _no_setting(f"rejection of {step.of} by {step.by}")
    low, high = (step.low, step.high) if step.of == "weight" else (math.exp(-step.high), math.exp(-step.low))
    return max(low, 0.0), min(high, NO_BOUND)


def write(correction: Settings | Correction) -> str:
    """slime's command-line flags, one a line, and for MIS the YAML file that `--custom-config-path` names."""
    settings = settings_for(correction) if isinstance(correction, Correction) else correction
    flags = changed(settings, set(_FLAGS))
    lines = [_flag(name, value) for name, value in flags.items()]
    if settings.runs_hook and settings.method != "vanilla_tis":
        lines.append(f"--custom-tis-function-path {HOOK_PATHS[settings.method]}")
    if settings.method != "mis" or not settings.runs_hook:
        return "\n".join(lines)
    keys = {name: getattr(settings, name) for name in MIS}
    return "\n".join([*lines, "--custom-config-path mis.yaml", "", "# mis.yaml", yaml_text(keys).rstrip()])


def _flag(name: str, value: object) -> str:
    flag = "--" + name.replace("_", "-")
    return flag if value is True else f"{flag} {value}"


_FLAGS = (
    *("advantage_estimator", "eps_clip", "eps_clip_high", "eps_clip_c", "use_rollout_logprobs", "use_tis"),
    *("get_mismatch_metrics", "tis_clip", "tis_clip_low", "use_opsm", "opsm_delta", "calculate_per_token_loss"),
    *("entropy_coef", "use_kl_loss", "kl_loss_coef", "kl_loss_type", "use_unbiased_kl"),
)
