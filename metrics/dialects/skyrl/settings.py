"""SkyRL's settings of `trainer.algorithm` that affect off-policy tokens, and its cuts of the batch.

Settings that SkyRL rejects (when it builds its config, in validate_cfg, or at the first loss) raise ConfigError. Settings that
it accepts silently although they do harm give a warning. SkyRL's names are unique without their block (`off_policy_correction`,
`cispo`, ...), so one dataclass has them all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ratioscope.errors import ConfigError

from ..settings import Rule, check, not_allowed, not_compared, read, section, setting

VERSIONS = ("0.4.0",)
"""The versions that were compared with SkyRL's own output; all compute the same."""
WITHOUT_CORRECTION = ("clip_cov", "kl_cov", "cross_entropy", "importance_sampling")
LOSSES = ("regular", "dual_clip", "gspo", "cispo", "rollout_is", "dppo", "sapo", *WITHOUT_CORRECTION)
REDUCTIONS = ("token_mean", "token_mean_legacy", "sequence_mean", "seq_mean_token_sum_norm", "prompt_mean")
Boundaries = tuple[tuple[int, int], ...]
"""(start, end) rows."""


@dataclass(frozen=True)
class Settings:
    """SkyRL's settings with its defaults. A mini-batch is one optimizer step."""

    policy_loss_type: str = setting("regular", *LOSSES)
    loss_reduction: str = setting("token_mean", *REDUCTIONS)
    eps_clip_low: float = setting(0.2)
    eps_clip_high: float = setting(0.2)
    clip_ratio_c: float = setting(3.0)
    max_seq_len: int | None = setting(None)
    use_kl_in_reward: bool = setting(False)

    tis_ratio_type: str | None = setting(None, "token", "sequence")
    token_tis_ratio_clip_high: float = setting(2.0)
    sequence_tis_ratio_clip_high: float = setting(5.0)
    sequence_mask_metric: str | None = setting(None, "geometric", "product")
    geo_mask_low: float = setting(0.99)
    geo_mask_high: float = setting(1.01)
    product_mask_low: float = setting(0.5)
    product_mask_high: float = setting(2.0)
    outlier_token_is_threshold_low: float | None = setting(None)
    outlier_token_is_threshold_high: float | None = setting(None)
    token_mask_is_threshold_low: float | None = setting(None)
    token_mask_is_threshold_high: float | None = setting(None)

    cispo_eps_clip_low: float = setting(1.0)
    cispo_eps_clip_high: float = setting(4.0)
    cispo_anchor: str = setting("old", "old", "rollout")
    dppo_type: str = setting("binary_tv", "binary_tv", "binary_kl")
    delta_low: float = setting(0.2)
    delta_high: float = setting(0.2)
    tau_pos: float = setting(1.0)
    tau_neg: float = setting(1.05)
    clip_ratio: float = setting(0.0002)
    clip_cov_lb: float = setting(1.0)
    clip_cov_ub: float = setting(5.0)
    kl_cov_frac: float = setting(0.2)
    ppo_kl_coef: float = setting(1.0)

    dtype: str = setting("float32", "float32", "bfloat16")
    dp_size: int = 1
    """Data-parallel ranks that share a mini-batch."""
    micro_batch_size: int | None = None
    """Rows per micro-batch; None: all rows of a rank."""
    mini_batch_boundaries: Boundaries | None = None
    """None: the batch is one mini-batch."""
    prompt_boundaries: Boundaries | None = None
    """The rows of each prompt; None if not known."""
    warnings: tuple[str, ...] = ()

    @property
    def masks_outliers(self) -> bool:
        """Whether outliers drop whole sequences; one bound is enough."""
        return self.outlier_token_is_threshold_low is not None or self.outlier_token_is_threshold_high is not None

    @property
    def masks_tokens(self) -> bool:
        """Whether single tokens are masked. SkyRL needs both bounds; with one alone it masks nothing."""
        return self.token_mask_is_threshold_low is not None and self.token_mask_is_threshold_high is not None

    @property
    def weighs_or_masks_sequences(self) -> bool:
        """Whether TIS or a sequence mask is on. SkyRL checks the loss type and log-probs only for these two corrections."""
        return self.tis_ratio_type is not None or self.sequence_mask_metric is not None

    @property
    def corrects(self) -> bool:
        """Whether any part of off_policy_correction is on."""
        return self.weighs_or_masks_sequences or self.masks_outliers or self.masks_tokens

    @property
    def anchors_on_rollout(self) -> bool:
        """Whether the loss divides by the rollout policy, whatever the correction."""
        if self.policy_loss_type == "cispo":
            return self.cispo_anchor == "rollout"
        return self.policy_loss_type in ("rollout_is", "dppo")

    @property
    def skips_policy_forward(self) -> bool:
        """Whether SkyRL computes no old log-probs for a batch that has rollout log-probs."""
        return self.anchors_on_rollout and not self.use_kl_in_reward and not self.corrects


BLOCKS: Mapping[str, tuple[str, ...]] = {
    "off_policy_correction": (
        *("tis_ratio_type", "token_tis_ratio_clip_high", "sequence_tis_ratio_clip_high", "sequence_mask_metric"),
        *("geo_mask_low", "geo_mask_high", "product_mask_low", "product_mask_high"),
        *("outlier_token_is_threshold_low", "outlier_token_is_threshold_high"),
        *("token_mask_is_threshold_low", "token_mask_is_threshold_high"),
    ),
    "cispo": ("cispo_eps_clip_low", "cispo_eps_clip_high", "cispo_anchor"),
    "dppo": ("dppo_type", "delta_low", "delta_high"),
    "sapo": ("tau_pos", "tau_neg"),
    "clip_cov": ("clip_ratio", "clip_cov_lb", "clip_cov_ub"),
    "kl_cov": ("kl_cov_frac", "ppo_kl_coef"),
}
ALGORITHM = (
    *("policy_loss_type", "loss_reduction", "eps_clip_low", "eps_clip_high", "clip_ratio_c", "max_seq_len"),
    "use_kl_in_reward",
)
"""The settings of `trainer.algorithm` itself, outside its blocks."""


def parse(config: Mapping[str, Any], version: str | None = None) -> Settings:
    """Settings and warnings of a SkyRL configuration. Keys of `trainer.algorithm` that change no ratio are ignored."""
    whole = _nested(config)
    algorithm, warnings = _without_deprecated(_algorithm(whole))
    values = {name: algorithm[name] for name in ALGORITHM if name in algorithm}
    for block, known in BLOCKS.items():
        mapping = section(algorithm, block)
        for name in sorted(set(mapping) - set(known)):
            found = f"{block}.{name} is {mapping[name]!r}, but no such setting exists"
            raise ConfigError(f"{found}; known: {', '.join(known)}")
        values |= mapping
    settings = read(
        Settings,
        {**values, "dtype": whole.get("dtype", "float32")},
        dp_size=whole.get("dp_size", 1),
        micro_batch_size=whole.get("micro_batch_size", section(whole, "trainer").get("micro_train_batch_size_per_gpu")),
        mini_batch_boundaries=_boundaries(whole.get("mini_batch_boundaries")),
        prompt_boundaries=_boundaries(whole.get("prompt_boundaries", whole.get("policy_prompt_boundaries"))),
    )
    check(settings, RULES)
    warnings += [text for holds, text in WARNINGS if holds(settings)]
    warnings += _logprobs_warnings(section(section(whole, "generator"), "sampling_params"), settings)
    return replace(settings, warnings=(*warnings, *not_compared(version, VERSIONS)))


def _nested(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with dot overrides (`trainer.algorithm.eps_clip_low`, `+` allowed) as nested mappings."""
    whole: dict[str, Any] = {}
    for name, value in config.items():
        *parents, last = str(name).lstrip("+").split(".")
        place = whole
        for parent in parents:
            place = place.setdefault(parent, {})
        if isinstance(value, Mapping):
            place.setdefault(last, {}).update(_nested(value))
        else:
            place[last] = value
    return whole


def _algorithm(whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """`trainer.algorithm`, found under that path, as `trainer_algorithm`, or as the mapping itself."""
    outer = section(whole, "trainer_algorithm") or section(section(whole, "trainer"), "algorithm")
    mapping = outer or section(whole, "algorithm") or whole
    return {"off_policy_correction": mapping} if set(BLOCKS["off_policy_correction"]) & set(mapping) else mapping


def _without_deprecated(algorithm: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """The algorithm with `use_tis` rewritten, as SkyRL does it: token TIS with cap `tis_imp_ratio_cap` (default -1)."""
    if not algorithm.get("use_tis"):
        return algorithm, []
    cap = algorithm.get("tis_imp_ratio_cap", -1.0)
    warnings = ["use_tis is deprecated: set off_policy_correction.tis_ratio_type=token"]
    if isinstance(cap, int | float) and cap <= 0:
        warnings.append(
            f"tis_imp_ratio_cap is {cap}, so every weight becomes {cap} and the gradient changes sign or is 0; "
            "set off_policy_correction.token_tis_ratio_clip_high (2.0 is usual)"
        )
    block = {**section(algorithm, "off_policy_correction"), "tis_ratio_type": "token", "token_tis_ratio_clip_high": cap}
    return {**algorithm, "off_policy_correction": block}, warnings


def _boundaries(pairs: Any) -> Boundaries | None:
    return None if pairs is None else tuple((int(start), int(end)) for start, end in pairs)


def _logprobs_warnings(sampling: Mapping[str, Any], settings: Settings) -> list[str]:
    """Warnings about `generator.sampling_params.logprobs`, which corrections need; ConfigError above 1, as in SkyRL."""
    logprobs = sampling.get("logprobs", 1)
    if logprobs is not None and (not isinstance(logprobs, int) or logprobs > 1):
        raise not_allowed("generator.sampling_params.logprobs", logprobs, (None, 0, 1))
    if logprobs is not None or not settings.corrects:
        return []
    if settings.weighs_or_masks_sequences:
        return ["generator.sampling_params.logprobs is null: SkyRL sets it to 1"]
    return [
        "generator.sampling_params.logprobs is null: SkyRL does not set it to 1 for outlier and token masks alone, and "
        "without rollout log-probs it silently skips them; set it to 1"
    ]


RULES = (
    Rule(
        "policy_loss_type",
        lambda s: s.policy_loss_type in ("clip_cov", "kl_cov") and s.weighs_or_masks_sequences,
        "any other loss, or neither tis_ratio_type nor sequence_mask_metric: SkyRL cannot correct this one",
    ),
    Rule(
        "tis_ratio_type",
        lambda s: s.policy_loss_type == "cispo" and s.anchors_on_rollout and s.tis_ratio_type is not None,
        "null, because cispo_anchor='rollout' is already the correction",
    ),
    Rule(
        "max_seq_len",
        lambda s: s.loss_reduction == "seq_mean_token_sum_norm" and s.max_seq_len is None,
        "a number, because loss_reduction='seq_mean_token_sum_norm' divides by it",
    ),
    Rule("micro_batch_size", lambda s: s.micro_batch_size is not None and s.micro_batch_size < 1, "at least 1"),
    Rule("dp_size", lambda s: s.dp_size < 1, "at least 1"),
)


def _crossed(low: str, high: str, metric: str | None = None) -> tuple[Callable[[Settings], bool], str]:
    """(whether a pair of bounds in use has its low above its high, the warning)."""

    def holds(settings: Settings) -> bool:
        lower, upper = getattr(settings, low), getattr(settings, high)
        used = metric is None or settings.sequence_mask_metric == metric
        return used and lower is not None and upper is not None and lower > upper

    return holds, f"{low} is above {high}: everything is masked"


WARNINGS: tuple[tuple[Callable[[Settings], bool], str], ...] = (
    (
        lambda s: (s.token_mask_is_threshold_low is None) != (s.token_mask_is_threshold_high is None),
        "only one of token_mask_is_threshold_low and token_mask_is_threshold_high is set: SkyRL then masks no token",
    ),
    (
        lambda s: s.policy_loss_type in ("rollout_is", "dppo") and s.tis_ratio_type is not None,
        "this policy_loss_type is already anchored on the rollout policy: TIS counts the mismatch twice",
    ),
    (
        lambda s: s.policy_loss_type in WITHOUT_CORRECTION and s.corrects,
        "this policy_loss_type never applies off_policy_correction",
    ),
    (
        lambda s: s.policy_loss_type in ("gspo", "sapo") and s.loss_reduction != "sequence_mean",
        "SkyRL recommends loss_reduction=sequence_mean with this policy_loss_type",
    ),
    _crossed("geo_mask_low", "geo_mask_high", "geometric"),
    _crossed("product_mask_low", "product_mask_high", "product"),
    _crossed("outlier_token_is_threshold_low", "outlier_token_is_threshold_high"),
    _crossed("token_mask_is_threshold_low", "token_mask_is_threshold_high"),
)
