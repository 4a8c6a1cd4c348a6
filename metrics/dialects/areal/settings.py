"""AReaL's actor settings, in the two generations of its behaviour weight: modes, then rejection sampling."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ratioscope.errors import ConfigError

from ..settings import Rule, check, checked_version, not_allowed, read, section, setting

PROXIMAL = ("recompute", "loglinear", "metrics", "reuse_train_logp")
MODES = ("token_mask", "token_truncate", "sequence_mask", "sequence_truncate", "disabled")


@dataclass(frozen=True)
class Generation:
    """The behaviour of a release."""

    switch: tuple[str, ...]
    """The keys of its behaviour weight."""
    development: bool = False
    """Whether it is the main branch after 1.0.4, which has binary_kl, CISPO and reuse_train_logp. Its ratio statistics use the
    mask before rejection."""


_MODE = ("behave_imp_weight_cap", "behave_imp_weight_mode")
_REJECTION = ("rejection_sampling",)

GENERATIONS = {
    "v1.0.4": Generation(_REJECTION),
    "head_20260822": Generation(_REJECTION, development=True),
    "v1.0.3": Generation(_MODE),
}
VERSIONS = tuple(GENERATIONS)
"""1.0.4 and main of 2026-08-22 were compared with AReaL's own output; so was 1.0.2, whose rules 1.0.3 shares."""
_OLDER = ("v1.0.2", "v1.0.1", "v1.0.0", "v0.5.3")
_ALIASES = {"head": "head_20260822"} | {name.removeprefix("v"): name for name in (*VERSIONS, *_OLDER)}


@dataclass(frozen=True)
class Rejection:
    """`actor.rejection_sampling`. Metric `ratio` aggregates log-ratios over a sequence, so `mean` is the geometric mean."""

    level: str = setting("token", "token", "sequence")
    action: str = setting("mask", "mask", "clamp")
    metric: str = setting("ratio", "ratio", "kl_k1", "kl_k2", "kl_k3", "binary_kl")
    agg: str = setting("mean", "sum", "mean", "max")
    upper: float = setting(5.0)
    lower: float | None = setting(None)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """The keys of `actor` that decide a reported number. `use_decoupled_loss` None counts as on, see `parse`."""

    behave_imp_weight_cap: float | None = setting(5.0)
    behave_imp_weight_mode: str = setting("token_mask")
    m2_threshold: float | None = setting(None)
    importance_sampling_level: str = setting("token", "token", "sequence")
    eps_clip: float = setting(0.2)
    eps_clip_higher: float | None = setting(None)
    c_clip: float | None = setting(None)
    prox_logp_method: str = setting("recompute", *PROXIMAL)
    use_decoupled_loss: bool | None = setting(None)
    recompute_logprob: bool = setting(False)
    use_sapo_loss: bool = setting(False)
    sapo_tau_pos: float = setting(1.0)
    sapo_tau_neg: float = setting(1.05)
    use_cispo_loss: bool = setting(False)
    ppo_n_minibatches: int | None = setting(None)
    rejection: Rejection | None = None
    version: str = "v1.0.4"
    warnings: tuple[str, ...] = ()

    @property
    def generation(self) -> Generation:
        """The behaviour of this version."""
        return GENERATIONS[self.version]

    @property
    def decoupled(self) -> bool:
        """Whether the loss treats rollout and old as two policies."""
        return not self.use_sapo_loss if self.use_decoupled_loss is None else self.use_decoupled_loss

    @property
    def weighted(self) -> bool:
        """Whether the settings form a behaviour weight."""
        if self.use_sapo_loss:
            return False
        if self.generation.switch == _REJECTION:
            return self.rejection is not None
        return self.behave_imp_weight_mode != "disabled"


def parse(config: Mapping[str, Any], version: str | None = None) -> Settings:
    """Settings from an `actor` mapping, or a configuration that has one. ConfigError for settings that the release rejects.

    AReaL's own default for use_decoupled_loss is false. A configuration without it is read as true here, because rollout and
    old log-probs differ in every recorded batch. Keys that no correction reads are ignored.
    """
    flat = section(config, "actor") if "actor" in config else config
    version = checked_version(_ALIASES.get(version or "", version), VERSIONS, _OLDER)
    generation = GENERATIONS[version]
    development = () if generation.development else ("use_cispo_loss",)
    for name in ("behav_imp_weight_cap", *_MODE, *_REJECTION, *development):
        if name in flat and name not in generation.switch:  # AReaL stops at start for a key that it does not know
            raise ConfigError(f"AReaL {version} has no key {name}; allowed: {_hint(flat, name, generation)}")
    block, notes = flat.get("rejection_sampling"), list[str]()
    rejection = None if block is None else _rejection(section(flat, "rejection_sampling"), generation, notes)
    settings = read(Settings, flat, rejection=rejection, version=version)
    if settings.prox_logp_method == "reuse_train_logp" and not generation.development:
        raise not_allowed("prox_logp_method", settings.prox_logp_method, PROXIMAL[:3])
    check(settings, _RULES + (_MODE_RULES if generation.switch == _MODE else ()))
    return replace(settings, warnings=(*notes, *_silent(settings)))


def _hint(config: Mapping[str, Any], name: str, generation: Generation) -> str:
    if generation.switch != _REJECTION or name == "use_cispo_loss":
        return ", ".join(generation.switch)
    mode, cap = config.get("behave_imp_weight_mode", "token_mask"), config.get(name if "cap" in name else _MODE[0])
    if mode == "disabled":
        return "rejection_sampling: null"
    level, _, action = str(mode).partition("_")
    action = "clamp" if action == "truncate" else "mask"
    return f"rejection_sampling: {{level: {level}, action: {action}, metric: ratio, upper: {cap}}}"


def _rejection(block: Mapping[str, Any], generation: Generation, notes: list[str]) -> Rejection:
    rejection = read(Rejection, block)
    if rejection.metric == "binary_kl" and not generation.development:
        raise not_allowed("metric", rejection.metric, ("ratio", "kl_k1", "kl_k2", "kl_k3"))
    check(rejection, _REJECTION_RULES)
    if rejection.metric == "binary_kl":
        notes.append("metric binary_kl is documented, but the configuration class of this version still rejects it")
    if rejection.level == "token" and rejection.agg != "mean":
        notes.append(f"agg {rejection.agg!r} is ignored at level token")
    if rejection.metric == "kl_k3":
        notes.append("kl_k3 uses the inverse ratio: exp(-d) - 1 + d with d = old - rollout, not exp(d) - 1 - d")
    return rejection


def _silent(s: Settings) -> list[str]:
    """A text for each setting that AReaL accepts silently although it does harm."""
    mode = s.behave_imp_weight_mode
    rules = (
        (
            s.use_decoupled_loss is False and s.weighted and s.rejection is not None,
            "rejection_sampling is ignored without use_decoupled_loss: old is rollout, and every ratio is 1",
        ),
        (
            s.decoupled and s.generation.switch == _REJECTION and s.rejection is None,
            "no behaviour weight is applied: rejection_sampling is null (up to 1.0.3 the weight was on by default)",
        ),
        (s.generation.switch == _MODE and mode not in MODES, f"behave_imp_weight_mode {mode!r} is read as a mask mode"),
        (
            s.prox_logp_method == "reuse_train_logp" and (s.ppo_n_minibatches or 1) > 1,
            "ppo_n_minibatches is forced to 1 by prox_logp_method reuse_train_logp",
        ),
    )
    return [note for holds, note in rules if holds]


_RULES = (
    Rule("c_clip", lambda s: s.c_clip is not None and s.c_clip <= 1, "above 1, or null"),
    Rule("use_sapo_loss", lambda s: s.use_sapo_loss and s.use_decoupled_loss, "false beside use_decoupled_loss: true"),
    Rule("sapo_tau_pos", lambda s: s.use_sapo_loss and s.sapo_tau_pos <= 0, "above 0"),
    Rule("sapo_tau_neg", lambda s: s.use_sapo_loss and s.sapo_tau_neg <= 0, "above 0"),
    Rule("use_cispo_loss", lambda s: s.use_cispo_loss and s.use_sapo_loss, "false beside use_sapo_loss: true"),
    Rule(
        "eps_clip_higher", lambda s: s.use_cispo_loss and (s.eps_clip_higher or 0) <= 0, "above 0 beside use_cispo_loss"
    ),
    Rule(
        "importance_sampling_level",
        lambda s: s.use_cispo_loss and s.importance_sampling_level != "token",
        "'token' beside use_cispo_loss",
    ),
)

_MODE_RULES = (
    Rule(
        "behave_imp_weight_cap",
        lambda s: s.behave_imp_weight_mode == "disabled" and s.behave_imp_weight_cap is not None,
        "null beside behave_imp_weight_mode: disabled",
    ),
    Rule(
        "behave_imp_weight_cap",
        lambda s: s.behave_imp_weight_cap is not None and s.behave_imp_weight_cap <= 1,
        "above 1, or null",
    ),
)

_REJECTION_RULES = (
    Rule("lower", lambda r: r.lower is not None and r.lower > r.upper, "at most upper"),
    Rule("upper", lambda r: r.metric == "ratio" and r.upper <= 1, "above 1 for metric ratio"),
    Rule("lower", lambda r: r.metric == "ratio" and r.lower is not None and r.lower <= 0, "above 0 for metric ratio"),
    Rule("upper", lambda r: r.metric in ("kl_k2", "kl_k3") and r.upper <= 0, "above 0 for metrics kl_k2 and kl_k3"),
    Rule("metric", lambda r: r.action == "clamp" and r.metric != "ratio", "'ratio' beside action: clamp"),
)
