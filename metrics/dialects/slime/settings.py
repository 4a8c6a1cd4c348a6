"""slime's settings that affect off-policy tokens: training arguments, and the YAML of its MIS example.

A mapping of arguments is a user's command line, so slime's start-up checks apply. A mapping {method, args, ...} is the loss's
configuration. slime merges the YAML after the start-up checks, so they do not apply to it.

Off-policy importance sampling has two conventions for its bounds. Pull request 2084 reads `tis_clip_low` and `tis_clip`. Its
first revision and the same change in miles (pull request 1344) read 1 - `eps_clip` and 1 + `eps_clip_high`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import inf
from typing import Any

from ratioscope.errors import ConfigError

from ..settings import Rule, check, not_allowed, not_compared, read, section, setting

VERSIONS = ("head", "pr2084", "miles1344")
"""slime of August 2026 (624b824a); its pull request 2084; the same change in miles, with bounds from eps_clip."""
ESTIMATORS = ("grpo", "gspo", "cispo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "ppo")
HOOK_PATHS = {
    "vanilla_tis": "slime.backends.megatron_utils.loss.vanilla_tis_function",
    "icepop": "slime.backends.megatron_utils.loss.icepop_function",
    "mis": "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp",
    "off_policy_is": "slime.utils.ppo_utils.off_policy_is_function",
}
"""Method -> the path for `--custom-tis-function-path`. Without a path slime runs vanilla TIS."""


@dataclass(frozen=True)
class Settings:
    """slime's arguments with its defaults.

    The keys of the YAML are those from `use_rs` to `tis_batch_normalize`. slime has no defaults for them; only `mis` reads
    them.
    """

    method: str = setting("none", "none", *HOOK_PATHS)
    off_policy_bounds: str = setting("tis_clip", "tis_clip", "eps_clip")
    advantage_estimator: str = setting("grpo", *ESTIMATORS)
    eps_clip: float = setting(0.2)
    eps_clip_high: float | None = setting(None)
    eps_clip_c: float | None = setting(None)
    use_rollout_logprobs: bool = setting(False)
    use_tis: bool = setting(False)
    get_mismatch_metrics: bool = setting(False)
    tis_clip: float = setting(2.0)
    tis_clip_low: float = setting(0.0)
    use_opsm: bool = setting(False)
    opsm_delta: float = setting(1e-4)
    calculate_per_token_loss: bool = setting(False)
    entropy_coef: float = setting(0.0)
    use_kl_loss: bool = setting(False)
    kl_loss_coef: float = setting(0.0)
    kl_loss_type: str = setting("k1", "k1", "k2", "k3", "low_var_kl")
    use_unbiased_kl: bool = setting(False)

    use_rs: bool = setting(False)
    tis_level: str = setting("token", "token", "sequence", "geometric")
    rs_level: str = setting("token", "token", "sequence", "geometric")
    tis_mode: str = setting("truncate", "truncate", "clip", "mask")
    tis_lower_bound: float | None = setting(None)
    tis_upper_bound: float | None = setting(None)
    rs_lower_bound: float | None = setting(None)
    rs_upper_bound: float | None = setting(None)
    rs_veto_threshold: float | None = setting(None)
    tis_batch_normalize: bool = setting(False)

    custom_pg_loss_reducer: bool = False
    """Whether the run has a reducer of its own, with an average that is not known here."""
    old_log_probs_missing: bool = False
    """Whether slime skipped the pass for old log-probs."""
    global_batch_size: int | None = None
    """The rollouts in a step; None: the rollouts in the batch."""
    micro_batches: tuple[tuple[int, ...], ...] | None = None
    """The row numbers of each micro-batch."""
    warnings: tuple[str, ...] = ()

    @property
    def runs_hook(self) -> bool:
        """Whether slime calls the TIS hook. Metrics-only mode calls the hook too and uses the loss that it returns."""
        return self.method != "none" and (self.use_tis or self.get_mismatch_metrics)

    @property
    def clip_bounds(self) -> tuple[float, float]:
        """(1 - eps_clip, 1 + eps_clip_high); eps_clip_high defaults to eps_clip."""
        return 1 - self.eps_clip, 1 + (self.eps_clip if self.eps_clip_high is None else self.eps_clip_high)

    @property
    def off_policy_clip(self) -> tuple[float, float]:
        """The bounds of off-policy IS, by the convention of `off_policy_bounds`."""
        return self.clip_bounds if self.off_policy_bounds == "eps_clip" else (self.tis_clip_low, self.tis_clip)

    @property
    def tis_bounds(self) -> tuple[float, float]:
        """The bounds of the MIS weight. The lower bound defaults to 1 / upper, the upper bound (in metrics-only mode) to inf."""
        upper = inf if self.tis_upper_bound is None else self.tis_upper_bound
        return 1.0 / upper if self.tis_lower_bound is None else self.tis_lower_bound, upper

    @property
    def rs_bounds(self) -> tuple[float, float]:
        """The bounds of rejection, by default those of the weight."""
        lower, upper = self.tis_bounds
        return (
            lower if self.rs_lower_bound is None else self.rs_lower_bound,
            upper if self.rs_upper_bound is None else self.rs_upper_bound,
        )


MIS = (
    *("use_tis", "use_rs", "tis_level", "rs_level", "tis_mode", "tis_lower_bound", "tis_upper_bound"),
    *("rs_lower_bound", "rs_upper_bound", "rs_veto_threshold", "tis_batch_normalize"),
)
"""The keys of the YAML, in the order of the file that slime ships."""


def parse(config: Mapping[str, Any], version: str | None = None) -> Settings:
    """Settings and warnings of slime's arguments (`--tis-clip`, `tis-clip` and `tis_clip` are the same).

    `version` "miles1344" takes the bounds of off-policy IS from eps_clip, unless `off_policy_bounds` says otherwise.
    """
    resolved = "args" in config
    named = section(config, "args") if resolved else config
    args = {str(name).lstrip("-").replace("-", "_"): value for name, value in named.items()}
    bounds = config.get("off_policy_bounds", "eps_clip" if version == "miles1344" else "tis_clip")
    args = {"off_policy_bounds": bounds, **args}
    method = _method(config.get("method"), args)
    settings = read(Settings, args, **_given(config, args, method))
    if settings.method == "mis" and settings.runs_hook:
        _check_mis_keys(args, settings)
        check(settings, MIS_RULES)
    check(settings, RULES if resolved else (*START_UP, *RULES))
    warnings = [text for holds, text in WARNINGS if holds(settings)]
    spelled = set(Settings.__dataclass_fields__)
    misspelt = [  # slime accepts any YAML key, so a misspelt key silently does nothing
        f"slime has no setting {name}; did you mean {close[0]}?"
        for name in args
        if name not in spelled and (close := get_close_matches(name, MIS, 1, 0.75))
    ]
    return replace(settings, warnings=(*warnings, *misspelt, *not_compared(version, VERSIONS)))


def _method(method: str | None, args: Mapping[str, Any]) -> str:
    """The hook by its name or path. With `use_tis` and neither name nor path, the hook is vanilla TIS."""
    path = args.get("custom_tis_function_path")
    if method is None and path is not None:
        if ":" in str(path):
            raise not_allowed(
                "custom_tis_function_path", path, "a dotted path; slime cannot load the file.py:name form"
            )
        method = next((known for known, hook in HOOK_PATHS.items() if str(path) == hook), None)
        if method is None:
            raise not_allowed("custom_tis_function_path", path, HOOK_PATHS.values())
    if method in (None, "none"):
        return "vanilla_tis" if args.get("use_tis") else "none"
    if method not in HOOK_PATHS:
        raise not_allowed("method", method, ("none", *HOOK_PATHS))
    return method


def _given(config: Mapping[str, Any], args: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Settings that are not slime's arguments, or that have another name there."""
    size = config.get("global_batch_size", args.get("global_batch_size"))
    groups = config.get("micro_batches")
    return {
        "method": method,
        "custom_pg_loss_reducer": args.get("custom_pg_loss_reducer_function_path") is not None,
        "old_log_probs_missing": bool(config.get("old_log_probs_missing", False)),
        "global_batch_size": None if size is None else int(size),
        "micro_batches": None if groups is None else tuple(tuple(map(int, group)) for group in groups),
    }


def _check_mis_keys(args: Mapping[str, Any], settings: Settings) -> None:
    """ConfigError if a key of the MIS example is missing, or is text because YAML reads 1e-4 (no dot) as text."""
    needed = ["tis_lower_bound", "rs_lower_bound", "rs_upper_bound"]
    if settings.use_tis:
        needed += ["use_rs", "tis_level", "tis_mode", "tis_upper_bound", "tis_batch_normalize"]
    if settings.use_tis and settings.use_rs:
        needed += ["rs_level", "rs_veto_threshold"]
    for name in needed:
        if name not in args:
            raise ConfigError(f"{name} is absent; slime has no default for it: set it in the YAML (bounds may be null)")
        if isinstance(args[name], str) and name not in ("tis_level", "rs_level", "tis_mode"):
            raise not_allowed(name, args[name], "a number or null; YAML reads 1e-4 as text, write 1.0e-4")


RULES = (
    Rule("eps_clip_c", lambda s: s.eps_clip_c is not None and s.eps_clip_c <= 1, "above 1, or null"),
    Rule(
        "global_batch_size",
        lambda s: s.global_batch_size is not None and s.global_batch_size < 1,
        "at least 1: the number of rollouts in the step",
    ),
)
START_UP = (
    Rule(
        "use_tis",
        lambda s: s.use_tis and s.use_rollout_logprobs,
        "false with use_rollout_logprobs: the ratio is then already current over rollout",
    ),
    Rule(
        "get_mismatch_metrics",
        lambda s: s.get_mismatch_metrics and s.method == "none",
        "true only with custom_tis_function_path",
    ),
)


def _crossed(bounds: tuple[float, float]) -> bool:
    return bounds[0] >= bounds[1]


MIS_RULES = (
    Rule(
        "tis_upper_bound",
        lambda s: (
            s.tis_upper_bound in (None, 0) and (s.tis_lower_bound is None or (s.use_tis and s.tis_upper_bound is None))
        ),
        "a number; null only in metrics-only mode, with a tis_lower_bound",
    ),
    Rule(
        "tis_lower_bound",
        lambda s: s.use_tis and s.tis_mode != "truncate" and _crossed(s.tis_bounds),
        "a number below tis_upper_bound; null means 1 / tis_upper_bound",
    ),
    Rule(
        "rs_lower_bound",
        lambda s: s.use_tis and s.use_rs and _crossed(s.rs_bounds),
        "a number below rs_upper_bound; null means the tis bound",
    ),
    Rule(
        "tis_level",
        lambda s: s.use_tis and s.tis_batch_normalize and s.tis_level == "geometric",
        "'token' or 'sequence', because tis_batch_normalize has no other level",
    ),
)

WARNINGS: tuple[tuple[Callable[[Settings], bool], str], ...] = (
    (
        lambda s: s.method == "mis" and s.use_rs and not s.use_tis,
        "use_rs does nothing without use_tis: the MIS example returns before it rejects",
    ),
    (
        lambda s: s.method == "mis" and s.use_tis and s.rs_veto_threshold is not None and not s.use_rs,
        "rs_veto_threshold does nothing without use_rs",
    ),
    (
        lambda s: s.method == "mis" and s.use_tis and s.tis_mode == "truncate" and _crossed(s.tis_bounds),
        "tis_lower_bound is not below tis_upper_bound: tis_mode truncate ignores it",
    ),
    (
        lambda s: (
            s.method in ("vanilla_tis", "icepop", "off_policy_is") and s.runs_hook and s.tis_clip_low > s.tis_clip
        ),
        "tis_clip_low is above tis_clip: every weight becomes tis_clip, with icepop 0",
    ),
    (
        lambda s: s.runs_hook and not s.use_tis and s.method != "mis",
        "metrics-only mode uses the loss that the hook returns, and this hook weighs it: the run is corrected all the same",
    ),
    (
        lambda s: s.use_tis and s.use_rollout_logprobs,
        "use_tis with use_rollout_logprobs counts the mismatch twice; slime refuses this unless use_tis is in the YAML",
    ),
    (
        lambda s: s.advantage_estimator == "cispo" and s.eps_clip < 1,
        "cispo keeps a lower clip bound unless eps_clip is 1.0",
    ),
)
