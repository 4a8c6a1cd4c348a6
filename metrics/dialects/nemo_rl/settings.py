"""NeMo-RL's loss settings: the keys that each version knows, rejects, or accepts without effect."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from ..settings import Rule, check, checked_version, read, section, setting, unknown

VERSIONS = ("head", "pr2269", "pr3753")
"""The main branch of 2026-08-22; pull request 2269 (head of 2026-04-15, not merged); pull request 3753 (2026-08-21)."""

LEVELS = ("sequence", "sequence_mean", "token")


@dataclass(frozen=True)
class Settings:
    """The keys of `loss_fn` that decide a reported number, and `grpo.seq_logprob_error_threshold`."""

    use_importance_sampling_correction: bool = setting(False)
    sequence_level_importance_ratios: bool = setting(False)
    token_level_loss: bool = setting(True)
    is_correction_level: str | None = setting(None, *LEVELS)
    truncated_importance_sampling_type: str | None = setting(None, "tis", "icepop", "seq-mask-tis")
    truncated_importance_sampling_ratio: float | None = setting(None)
    truncated_importance_sampling_ratio_min: float | None = setting(None)
    force_on_policy_ratio: bool = setting(False)
    disable_ppo_ratio: bool = setting(False)
    use_cispo: bool = setting(False)
    ratio_clip_min: float = setting(0.2)
    ratio_clip_max: float = setting(0.2)
    ratio_clip_c: float | None = setting(None)
    reference_policy_kl_penalty: float = setting(0.01)
    reference_policy_kl_type: str = setting("k3", "k1", "k2", "k3")
    kl_input_clamp_value: float | None = setting(20.0)
    kl_output_clamp_value: float | None = setting(10.0)
    use_kl_in_reward: bool = setting(False)
    use_on_policy_kl_approximation: bool = setting(False)
    positive_example_nll_weight: float = setting(0.0)
    seq_logprob_error_threshold: float | None = setting(None)
    score_centering: bool = setting(False)
    """True if the loss has a term that removes the score that the sampler expects (nightly): no weight or mask depends on it."""
    version: str = "head"
    warnings: tuple[str, ...] = ()

    @property
    def level(self) -> str:
        """Level of the correction's weight: token, sequence (sum) or sequence_mean."""
        derived = "sequence" if self.sequence_level_importance_ratios else "token"
        return self.is_correction_level or derived

    @property
    def truncation(self) -> str | None:
        """The truncation in force. Pull request 2269 truncates if the ratio is set; main truncates if the type is set."""
        ratio = self.truncated_importance_sampling_ratio
        return None if ratio is None else self.truncated_importance_sampling_type

    @property
    def bounds(self) -> tuple[float, float]:
        """Bounds of the truncation in force. Only tis may lack a lower bound, and pull request 2269 ignores tis's."""
        low, high = self.truncated_importance_sampling_ratio_min, self.truncated_importance_sampling_ratio
        ignored = self.version == "pr2269" and self.truncation == "tis"
        return 0.0 if low is None or ignored else low, inf if high is None else high

    @property
    def skips_old_forward(self) -> bool:
        """Whether the driver skips the old-policy forward and stores zeros (pull request 2269 never does)."""
        return self.version != "pr2269" and self.force_on_policy_ratio and self.seq_logprob_error_threshold is None


def parse(config: Mapping[str, Any], version: str | None = None) -> Settings:
    """Settings from a `loss_fn` mapping, or from a whole configuration with sections `loss_fn` and `grpo`.

    A `loss_fn` mapping may contain the sequence error threshold. ConfigError for settings that the version rejects at start or
    at its first loss.
    """
    version = checked_version(version, VERSIONS)
    flat = config
    if "loss_fn" in config:
        threshold = [(name, value) for name, value in section(config, "grpo").items() if name == _THRESHOLD]
        flat = {**section(config, "loss_fn"), **dict(threshold)}
    # The version never reads these keys with these settings, and does not check their values either.
    unread = _UNKNOWN_IN[version] + ((_SET, _LOW) if version == "pr2269" and flat.get(_HIGH) is None else ())
    ignored = [name for name in unread if flat.get(name) is not None]
    settings = read(Settings, {name: value for name, value in flat.items() if name not in ignored}, version=version)
    check(settings, _RULES + (_PR2269_RULES if version == "pr2269" else _HEAD_RULES))
    strange = [*ignored, *unknown(Settings, flat)]
    notes = [f"{name} has no effect in {version}: the trainer accepts it silently" for name in strange]
    return replace(settings, warnings=(*notes, *_silent(settings)))


def _silent(s: Settings) -> list[str]:
    """A text for each setting that NeMo-RL accepts silently although it does harm."""
    low, high = s.truncated_importance_sampling_ratio_min, s.truncated_importance_sampling_ratio
    rules = (
        (
            s.version == "pr2269" and s.truncation == "tis" and low is not None,
            "truncated_importance_sampling_ratio_min is ignored by tis in pr2269: no lower bound is applied",
        ),
        (
            s.version == "pr2269" and low is not None and high is not None and low > high,
            "truncated_importance_sampling_ratio_min is above truncated_importance_sampling_ratio: nothing is inside",
        ),
        (
            s.seq_logprob_error_threshold is not None and s.seq_logprob_error_threshold < 1,
            "seq_logprob_error_threshold is below 1, and the error of a perfect match is 1: every sequence is masked",
        ),
        (
            s.reference_policy_kl_type != "k3",
            f"gen_kl_error and policy_kl_error follow reference_policy_kl_type ({s.reference_policy_kl_type}): do not "
            "compare them with a run that uses k3",
        ),
    )
    return [note for holds, note in rules if holds]


_UNKNOWN_IN = {
    "head": ("is_correction_level",),
    "pr3753": ("is_correction_level",),
    "pr2269": ("use_cispo", "positive_example_nll_weight", "use_kl_in_reward", "score_centering"),
}


def _type(s: Settings) -> str | None:
    return s.truncated_importance_sampling_type


def _high(s: Settings) -> Any:
    """The upper bound. Any: a rule compares it only if it is a number."""
    return s.truncated_importance_sampling_ratio


def _low(s: Settings) -> Any:
    """The lower bound. Any: a rule compares it only if it is a number."""
    return s.truncated_importance_sampling_ratio_min


def _breaks_cispo(name: str, fits: object) -> Callable[[Settings], bool]:
    return lambda s: s.use_cispo and getattr(s, name) != fits


_RULES = (
    Rule(
        "token_level_loss",
        lambda s: s.sequence_level_importance_ratios and s.token_level_loss,
        "false beside sequence_level_importance_ratios: true",
    ),
    Rule("ratio_clip_c", lambda s: s.ratio_clip_c is not None and s.ratio_clip_c <= 1, "a number above 1, or null"),
)

_THRESHOLD = "seq_logprob_error_threshold"
_SET = "truncated_importance_sampling_type"
_HIGH = "truncated_importance_sampling_ratio"
_LOW = "truncated_importance_sampling_ratio_min"
_FILTERS = ("icepop", "seq-mask-tis")

_CORRECTED = "null while use_importance_sampling_correction is false"
_BESIDE_FILTER = f"a number beside {_SET}: icepop or seq-mask-tis"
_CISPO = (
    ("disable_ppo_ratio", False, "false"),
    ("force_on_policy_ratio", False, "false"),
    ("sequence_level_importance_ratios", False, "false"),
    ("ratio_clip_c", None, "null"),
    ("token_level_loss", True, "true"),
)

_HEAD_RULES = (
    Rule(_SET, lambda s: _type(s) is not None and not s.use_importance_sampling_correction, _CORRECTED),
    Rule(
        _HIGH, lambda s: _type(s) is None and _high(s) is not None, f"null while {_SET} is null (the first loss raises)"
    ),
    Rule(_HIGH, lambda s: _type(s) is not None and (_high(s) is None or _high(s) <= 0), f"above 0 beside {_SET}"),
    Rule(_LOW, lambda s: _type(s) is not None and _low(s) is not None and _low(s) > _high(s), f"at most {_HIGH}"),
    Rule(_LOW, lambda s: _type(s) in _FILTERS and _low(s) is None, _BESIDE_FILTER),
    Rule(
        _SET,
        lambda s: _type(s) == "seq-mask-tis" and s.sequence_level_importance_ratios,
        "'tis' or 'icepop' beside sequence_level_importance_ratios: true",
    ),
    *(Rule(name, _breaks_cispo(name, fits), f"{word} beside use_cispo: true") for name, fits, word in _CISPO),
)

_PR2269_RULES = (
    Rule(_HIGH, lambda s: _high(s) is not None and not s.use_importance_sampling_correction, _CORRECTED),
    Rule(_HIGH, lambda s: _high(s) is not None and _high(s) <= 0, "above 0, or null"),
    Rule(
        _SET, lambda s: _high(s) is not None and _type(s) is None, f"'tis', 'icepop' or 'seq-mask-tis' beside {_HIGH}"
    ),
    Rule(
        _SET,
        lambda s: s.truncation == "seq-mask-tis" and s.level != "token",
        "'tis' or 'icepop' unless the correction's level is token",
    ),
    Rule(_LOW, lambda s: s.truncation in _FILTERS and _low(s) is None, _BESIDE_FILTER),
)
