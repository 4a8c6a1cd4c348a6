"""verl's correction settings in typed form, and warnings about settings that verl accepts silently but misreads or ignores."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..settings import section

VERSIONS = ("0.9.1", "0.7.1")
"""The versions that begin a generation. 0.9.1 stands for 0.8.0 on too: its IcePop, and importance metrics of the applied weights,
not of the raw ratios."""
OLDER = ("0.7.0", "0.6.1", "PR-3984")
"""Rejection by ratios and a veto of single tokens, which 0.7.1 replaced."""
DEFAULTS: Mapping[str, Any] = {
    "rollout_is": None,
    "rollout_is_threshold": 2.0,
    "rollout_rs": None,
    "rollout_rs_threshold": None,
    "rollout_is_batch_normalize": False,
    "bypass_mode": False,
    "loss_type": "ppo_clip",
}
"""The keys of the block with their YAML defaults."""
LEVELS = ("token", "sequence")
LOSS_TYPES = ("ppo_clip", "reinforce")
DIVERGENCES = (
    "token_k1", "token_k2", "token_k3",
    "seq_sum_k1", "seq_sum_k2", "seq_sum_k3",
    "seq_mean_k1", "seq_mean_k2", "seq_mean_k3",
    "seq_max_k2", "seq_max_k3",
)  # fmt: skip


@dataclass(frozen=True)
class Rejection:
    """A rejection keeps tokens or rows whose statistic is inside the bounds, both included."""

    option: str
    """One of DIVERGENCES."""
    lower: float | None
    """None: no lower bound (K2, K3). For K1 the bounds are ratios; verl compares K1 with their logs."""
    upper: float


@dataclass(frozen=True)
class ClipRange:
    """PPO's clip of the ratio to [1 - low, 1 + high], and the dual clip."""

    low: float = 0.2
    high: float = 0.2
    dual: float = 3.0
    """The dual clip's bound of the ratio for negative advantages."""


@dataclass(frozen=True)
class VerlSettings:
    """The settings of a rollout_correction block, as verl uses them."""

    version: str
    is_level: Literal["token", "sequence"] | None = None
    """None: no importance weights."""
    is_upper: float = 2.0
    is_lower: float | None = None
    """A number: IcePop, weights are 0 outside [is_lower, is_upper]. None: weights are truncated at is_upper."""
    batch_normalize: bool = False
    """Whether the weights are divided by their mean over the batch."""
    rejections: tuple[Rejection, ...] = ()
    bypass: bool = False
    """Whether rollout takes the place of old."""
    loss_type: Literal["ppo_clip", "reinforce"] = "ppo_clip"
    clip: ClipRange = ClipRange()
    warnings: tuple[str, ...] = ()

    @property
    def reports_applied(self) -> bool:
        """Whether importance metrics use the applied weights. These versions also have IcePop, and check lower <= upper."""
        return self.version == "0.9.1"


USUAL_CAPS = (1.0, 10.0)
"""verl's documentation recommends 1.5-5 for token and 2-10 for sequence weights. A cap below 1 shrinks every weight."""
HARMLESS_ASYMMETRY = 1e-5
"""If the log bounds of a K1 pair differ in size by less than this, the inverse pair keeps the same tokens in float32."""


@dataclass(frozen=True)
class Rule:
    """One warning."""

    applies: Callable[[VerlSettings, Mapping[str, Any], Mapping[str, Any]], bool]
    """(settings, block, whole configuration) -> whether to warn."""
    text: str
    """A format string; its fields are keys of the block."""


def warnings_about(settings: VerlSettings, block: Mapping[str, Any], whole: Mapping[str, Any]) -> tuple[str, ...]:
    """The text of every rule that applies, in the order of RULES."""
    return tuple(rule.text.format(**block) for rule in RULES if rule.applies(settings, block, whole))


def _lost_pair(threshold: object) -> bool:
    """Whether the threshold is a number outside the usual caps, which an unquoted pair may have become."""
    return (isinstance(threshold, int | float) and not isinstance(threshold, bool)) and not USUAL_CAPS[0] <= float(
        str(threshold)
    ) <= USUAL_CAPS[1]


def _fragile_pair(threshold: object) -> bool:
    """Whether YAML and Hydra would read an unquoted pair as a number with digit separators: at most one dot, no comma."""
    return isinstance(threshold, str) and "_" in threshold and "," not in threshold and threshold.count(".") <= 1


def _thrice(threshold: object) -> bool:
    """Whether a threshold has three parts or more."""
    texts = str(threshold).split(",") if isinstance(threshold, str) else []
    return any(text.count("_") > 1 for text in texts)


def _k1(settings: VerlSettings) -> bool:
    return any(each.option.endswith("k1") for each in settings.rejections)


def _one_sided_k1(settings: VerlSettings) -> bool:
    bounds = [(each.lower, each.upper) for each in settings.rejections if each.option.endswith("k1") and each.lower]
    return any(abs(math.log(lower) + math.log(upper)) > HARMLESS_ASYMMETRY for lower, upper in bounds if lower)


def _empty_band(settings: VerlSettings) -> bool:
    return any(each.lower is not None and each.lower > each.upper for each in settings.rejections)


def _not_finite(settings: VerlSettings) -> bool:
    bounds = [settings.is_upper, settings.is_lower, *(each.upper for each in settings.rejections)]
    return any(bound is not None and not math.isfinite(bound) for bound in bounds)


def _repeated(chosen: object) -> bool:
    parts = [part.strip() for part in chosen.split(",") if part.strip()] if isinstance(chosen, str) else []
    return len(set(parts)) < len(parts)


def _loss_mode(whole: Mapping[str, Any]) -> object:
    return section(section(section(whole, "actor_rollout_ref"), "actor"), "policy_loss").get("loss_mode")


def _log_probs_off(whole: Mapping[str, Any]) -> bool:
    return section(section(whole, "actor_rollout_ref"), "rollout").get("calculate_log_probs") is False


RULES = (
    Rule(
        lambda s, b, w: b["rollout_is"] is not None and b["rollout_is_threshold"] is None,
        "rollout_is is {rollout_is!r} but rollout_is_threshold is None: verl silently skips importance sampling",
    ),
    Rule(
        lambda s, b, w: s.is_level is not None and _lost_pair(b["rollout_is_threshold"]),
        "rollout_is_threshold is the number {rollout_is_threshold!r}, used as a truncation cap; if a pair was meant, "
        'quote it: YAML and Hydra read 0.5_2 as 0.52 and 5_10 as 510, "0.5_2.0" stays a pair',
    ),
    Rule(
        lambda s, b, w: _k1(s) and _lost_pair(b["rollout_rs_threshold"]),
        "rollout_rs_threshold is the number {rollout_rs_threshold!r}, used with its reciprocal; if a pair was meant, "
        "quote it: YAML and Hydra read 5_10 as 510",
    ),
    Rule(
        lambda s, b, w: s.is_level is not None and _fragile_pair(b["rollout_is_threshold"]),
        "rollout_is_threshold {rollout_is_threshold!r} is a pair here, but a number to YAML and Hydra unless its quotes "
        "reach them (0.5_2 becomes 0.52): write both bounds with a dot",
    ),
    Rule(
        lambda s, b, w: bool(s.rejections) and _fragile_pair(b["rollout_rs_threshold"]),
        "rollout_rs_threshold {rollout_rs_threshold!r} holds a pair that YAML and Hydra read as a number unless its "
        "quotes reach them: write both bounds with a dot",
    ),
    Rule(
        lambda s, b, w: _thrice(b["rollout_is_threshold"]) or _thrice(b["rollout_rs_threshold"]),
        "a threshold has more than one underscore (rollout_is_threshold {rollout_is_threshold!r}, rollout_rs_threshold "
        "{rollout_rs_threshold!r}): verl splits at the first and reads the rest as one number, 5_7 as 57",
    ),
    Rule(
        lambda s, b, w: _not_finite(s),
        "a threshold is not finite (rollout_is_threshold {rollout_is_threshold!r}, rollout_rs_threshold "
        "{rollout_rs_threshold!r}): inf bounds nothing; nan makes every weight nan or rejects everything",
    ),
    Rule(
        lambda s, b, w: _one_sided_k1(s),
        "the K1 bounds {rollout_rs_threshold!r} act on rollout / trainer, the inverse of the importance ratio: trainer / "
        "rollout is kept within 1/upper .. 1/lower",
    ),
    Rule(
        lambda s, b, w: _empty_band(s),
        "the lower bound of rollout_rs_threshold {rollout_rs_threshold!r} is above the upper: everything is rejected",
    ),
    Rule(
        lambda s, b, w: _repeated(b["rollout_rs"]),
        "rollout_rs {rollout_rs!r} names an option twice: verl drops the second before it counts thresholds",
    ),
    Rule(
        lambda s, b, w: not s.rejections and b["rollout_rs_threshold"] is not None,
        "rollout_rs_threshold is {rollout_rs_threshold!r} but rollout_rs is None: nothing is rejected",
    ),
    Rule(
        lambda s, b, w: s.batch_normalize and s.is_level is None,
        "rollout_is_batch_normalize has no effect without rollout_is",
    ),
    Rule(
        lambda s, b, w: s.bypass and _loss_mode(w) != "bypass_mode",
        "bypass_mode alone only replaces the old log-probs by the rollout's: verl logs no rollout_corr metric, rejects "
        "nothing and ignores loss_type. Set actor_rollout_ref.actor.policy_loss.loss_mode: bypass_mode and copy this block "
        "to +actor_rollout_ref.actor.policy_loss.rollout_correction",
    ),
    Rule(
        lambda s, b, w: s.bypass and s.loss_type == "ppo_clip" and s.is_level is not None,
        "rollout_is {rollout_is!r} in bypass mode with loss_type 'ppo_clip': verl computes the weights for metrics and never "
        "applies them",
    ),
    Rule(
        lambda s, b, w: not s.bypass and s.loss_type == "reinforce",
        "loss_type 'reinforce' has an effect in bypass mode only: ignored here",
    ),
    Rule(
        lambda s, b, w: _log_probs_off(w),
        "actor_rollout_ref.rollout.calculate_log_probs is false: without rollout log-probs verl corrects nothing",
    ),
)
