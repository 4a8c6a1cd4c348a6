"""Settings from verl's `algorithm.rollout_correction` block, by verl's rules.

verl validates a setting at its first use and silently misreads several. `parse` rejects at once the settings that verl rejects
later; settings.py has a warning about each setting that verl misreads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from ratioscope.errors import ConfigError

from ..settings import checked_version, not_allowed, section
from .settings import (
    DEFAULTS,
    DIVERGENCES,
    LEVELS,
    LOSS_TYPES,
    OLDER,
    VERSIONS,
    ClipRange,
    Rejection,
    VerlSettings,
    warnings_about,
)


def parse(config: Mapping[str, Any] | None, version: str | None = None) -> VerlSettings:
    """The settings of a rollout_correction block, or of a whole verl configuration that has one.

    Absent keys have verl's YAML defaults: `rollout_is` is null, while verl's Python dataclass has "sequence". A `config` of None
    means no correction.
    """
    version = checked_version(version, VERSIONS, OLDER)
    whole = dict(config or {})
    block = section(section(whole, "algorithm"), "rollout_correction") if "algorithm" in whole else whole
    for name in sorted(set(block) - set(DEFAULTS) - {"_target_"}):
        raise ConfigError(f"verl {version} has no rollout_correction key {name!r}; it has {', '.join(DEFAULTS)}")
    block = {**DEFAULTS, **block}
    if block["loss_type"] not in LOSS_TYPES:
        raise not_allowed("loss_type", block["loss_type"], LOSS_TYPES)
    newest = version == VERSIONS[0]
    is_level, is_upper, is_lower = _importance(block, newest)
    # The clip range of `actor_rollout_ref.actor` if the whole configuration is given, else verl's default.
    actor = section(section(whole, "actor_rollout_ref"), "actor")
    both = actor.get("clip_ratio", 0.2)
    low, high = (actor.get(key) for key in ("clip_ratio_low", "clip_ratio_high"))
    settings = VerlSettings(
        version=version,
        is_level=is_level,
        is_upper=is_upper,
        is_lower=is_lower,
        batch_normalize=bool(block["rollout_is_batch_normalize"]),
        rejections=_rejections(block, newest),
        bypass=bool(block["bypass_mode"]),
        loss_type=block["loss_type"],
        clip=ClipRange(both if low is None else low, both if high is None else high, actor.get("clip_ratio_c", 3.0)),
    )
    return replace(settings, warnings=warnings_about(settings, block, whole))


def _importance(
    block: Mapping[str, Any], icepop: bool
) -> tuple[Literal["token", "sequence"] | None, float, float | None]:
    level, threshold = block["rollout_is"], block["rollout_is_threshold"]
    if level is not None and level not in LEVELS:
        raise not_allowed("rollout_is", level, (None, *LEVELS))
    if level is None or threshold is None:
        return None, 2.0, None
    wanted = "a number > 0" + (' or a pair "lower_upper", 0 < lower <= upper' if icepop else "")
    if isinstance(threshold, str) and icepop:
        lower, upper = _pair(threshold) if "_" in threshold else (None, _number(threshold))
    elif isinstance(threshold, int | float) and not isinstance(threshold, bool):
        lower, upper = None, float(threshold)
    else:
        raise not_allowed("rollout_is_threshold", threshold, wanted)
    # these comparisons let nan pass, as verl does
    if upper is None or upper <= 0 or (lower is not None and (lower <= 0 or lower > upper)):
        raise not_allowed("rollout_is_threshold", threshold, wanted)
    return level, upper, lower


def _rejections(block: Mapping[str, Any], ordered: bool) -> tuple[Rejection, ...]:
    chosen = block["rollout_rs"]
    if chosen is None:
        return ()
    if block["rollout_rs_threshold"] is None:
        raise not_allowed("rollout_rs_threshold", None, "a threshold, because rollout_rs is set")
    parts = [part.strip() for part in chosen.split(",")] if isinstance(chosen, str) else []
    options = list(dict.fromkeys(filter(None, parts)))
    if not options or any(option not in DIVERGENCES for option in options):
        raise not_allowed("rollout_rs", chosen, f"a comma list of {', '.join(DIVERGENCES)}")
    thresholds = _thresholds(block["rollout_rs_threshold"], len(options))
    return tuple(_divergence(option, text, ordered) for option, text in zip(options, thresholds, strict=True))


def _thresholds(threshold: object, options: int) -> Sequence[str]:
    """One threshold text per option. A single threshold applies to all options."""
    if isinstance(threshold, int | float):
        texts = [str(threshold)]
    elif isinstance(threshold, str):
        texts = [part.strip() for part in threshold.split(",") if part.strip()]
    else:
        texts = []
    if len(texts) not in {1, options}:
        wanted = f"one threshold for all, or {options} separated by commas, one per option without duplicates"
        raise not_allowed("rollout_rs_threshold", threshold, wanted)
    return texts if len(texts) == options else texts * options


def _divergence(option: str, text: str, ordered: bool) -> Rejection:
    """The rejection of one option. `ordered`: lower > upper is an error (from 0.9.0); otherwise it rejects everything."""
    if not option.endswith("k1"):
        upper = None if "_" in text else _number(text)
        if upper is None or upper <= 0:
            raise not_allowed("rollout_rs_threshold", text, f"one number > 0 for {option}")
        return Rejection(option, None, upper)
    lower, upper = _pair(text) if "_" in text else _reciprocal(text)
    if lower is None or upper is None or lower <= 0 or upper <= 0 or (ordered and lower > upper):
        pair = 'a quoted ratio pair "lower_upper", 0 < lower <= upper (YAML reads a bare 0.5_2 as 0.52)'
        wanted = f"{pair}, or one number >= 1 for {option}"
        raise not_allowed("rollout_rs_threshold", text, wanted)
    return Rejection(option, lower, upper)


def _pair(text: str) -> tuple[float | None, float | None]:
    lower, upper = text.strip().split("_", 1)
    return _number(lower), _number(upper)


def _reciprocal(text: str) -> tuple[float | None, float | None]:
    upper = _number(text)
    return (1.0 / upper if upper else None), upper


def _number(text: str) -> float | None:
    """The text as Python's float, with digit separators ("5_7" is 57); None if it is not a number."""
    try:
        return float(text)
    except ValueError:
        return None
