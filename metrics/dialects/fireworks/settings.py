"""The Fireworks cookbook's settings: TISConfig and the clip ranges of its losses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..settings import Rule, check, checked_version, read, section, setting, unknown

VERSIONS = ("head",)
"""The main branch of 2026-08-19, and the loss dppo of 3337e6ec. The ISConfig of pull request 169 (2026-03) is not reproduced."""

LOSSES = ("grpo", "gspo", "dapo", "dppo", "cispo", "importance_sampling", "dro", "reinforce", "igpo", "server")
ALIASES = {"is": "importance_sampling"}
_RENAMED = {"anchor": "anchor_logp", "clip_ratio_low": "eps_clip", "clip_ratio_high": "eps_clip_high"}
_RENAMED |= {"eps_low": "eps_clip", "eps_high": "eps_clip_high"}

_EPS_HIGH = {"dapo": 0.28, "cispo": 0.28}
_CAPPED = ("dapo", "dppo", "cispo", "importance_sampling")
_DPPO = {"binary_tv": 0.15, "binary_kl": 0.05}
"""Divergence -> its threshold if none is given. At 3337e6ec it is 0.15 for both, at 5922b318 these."""


@dataclass(frozen=True)
class Settings:
    """The keys of `tis` (cap, level, icepop_threshold), and the settings of each loss."""

    cap: float = setting(5.0)
    level: str = setting("token", "token", "sequence")
    """Level "sequence" is the geometric mean of the token ratios, not their product."""
    icepop_threshold: float | None = setting(None)
    loss: str = setting("grpo", *LOSSES)
    anchor_logp: str = setting("old_policy", "old_policy", "rollout")
    eps_clip: float = setting(0.2)
    """Losses that clip keep the PPO ratio in [1 - eps_clip, 1 + eps_clip_high]."""
    eps_clip_high: float | None = setting(None)
    """None: the default of the loss, see `clip_high`."""
    eps_clip_c: float | None = setting(None)
    ratio_log_cap: float = setting(20.0)
    seq_ratio_log_cap: float = setting(10.0)
    divergence: str = setting("binary_tv", *_DPPO)
    """The divergence of dppo."""
    threshold: float | None = setting(None)
    """The most divergence of a token that dppo trains on. None: the default of the divergence, see `dppo_threshold`."""
    beta: float = setting(0.05)
    kl_beta: float = setting(0.001)
    reference_job_id: str | None = setting(None)
    reference_training_shape_id: str | None = setting(None)
    completions_per_prompt: int = setting(4)
    warnings: tuple[str, ...] = ()

    @property
    def clip_high(self) -> float:
        """How far above 1 the PPO ratio may go."""
        return _EPS_HIGH.get(self.loss, self.eps_clip) if self.eps_clip_high is None else self.eps_clip_high

    @property
    def dppo_threshold(self) -> float:
        """The most divergence of a token that dppo trains on."""
        return _DPPO[self.divergence] if self.threshold is None else self.threshold


def parse(config: Mapping[str, Any], version: str | None = None) -> Settings:
    """Settings from a recipe's Config as a mapping. ConfigError for settings that the cookbook rejects.

    The mapping has `tis` with cap, level and icepop_threshold, and `dppo` with divergence and threshold, beside `loss`, clip
    ranges and `anchor_logp` (or `anchor`).
    """
    version = checked_version(version, VERSIONS, ("pr169",))
    renamed = {_RENAMED.get(name, name): value for name, value in config.items() if name not in ("tis", "dppo")}
    flat = {**renamed, **section(config, "tis"), **section(config, "dppo")}
    if "loss" in flat:
        flat["loss"] = ALIASES.get(flat["loss"], flat["loss"])
    settings = read(Settings, flat)
    check(settings, _RULES)
    notes = [f"{name} has no effect in {version}: the trainer accepts it silently" for name in unknown(Settings, flat)]
    return replace(settings, warnings=(*notes, *_silent(settings)))


def _silent(s: Settings) -> list[str]:
    """A text for each setting that the cookbook accepts silently although it does harm."""
    rules = (
        (
            s.icepop_threshold is not None and s.icepop_threshold > s.cap,
            "icepop_threshold is above cap: kept tokens are still capped",
        ),
        (
            s.loss == "reinforce",
            "reinforce ignores the TIS weight that it logs: its weight is exp(current - rollout), not clipped",
        ),
        (
            s.loss == "igpo" and (s.cap, s.level, s.icepop_threshold) != (5.0, "token", None),
            "igpo ignores tis: its weight is exp(old - rollout) without a cap",
        ),
        (
            s.anchor_logp == "rollout" and (s.cap, s.level, s.icepop_threshold) != (5.0, "token", None),
            "with anchor_logp 'rollout' the TIS weight is 1: tis changes nothing",
        ),
    )
    return [note for holds, note in rules if holds]


def _without_kl(name: str) -> Callable[[Settings], bool]:
    return lambda s: s.kl_beta == 0 and getattr(s, name) is not None


_RULES = (
    Rule("cap", lambda s: s.cap < 0, "0 or above"),
    Rule(
        "icepop_threshold", lambda s: s.icepop_threshold is not None and s.level != "token", "null at level 'sequence'"
    ),
    Rule(
        "icepop_threshold", lambda s: s.icepop_threshold is not None and s.icepop_threshold < 1, "1 or above, or null"
    ),
    Rule("eps_clip", lambda s: s.eps_clip < 0, "0 or above"),
    Rule("eps_clip_high", lambda s: s.clip_high < 0, "0 or above"),
    Rule(
        "eps_clip_c", lambda s: s.loss == "dapo" and s.eps_clip_c is not None and s.eps_clip_c <= 1, "above 1, or null"
    ),
    Rule("ratio_log_cap", lambda s: s.loss in _CAPPED and s.ratio_log_cap < 0, "0 or above"),
    Rule("seq_ratio_log_cap", lambda s: s.loss == "gspo" and s.seq_ratio_log_cap < 0, "0 or above"),
    Rule("threshold", lambda s: s.loss == "dppo" and s.dppo_threshold < 0, "0 or above"),
    Rule("beta", lambda s: s.loss == "dro" and s.beta < 0, "0 or above"),
    Rule("kl_beta", lambda s: s.kl_beta < 0, "0 or above"),
    *(
        Rule(name, _without_kl(name), "null while kl_beta is 0")
        for name in ("reference_job_id", "reference_training_shape_id")
    ),
    Rule("completions_per_prompt", lambda s: s.completions_per_prompt < 2, "2 or above"),
)
