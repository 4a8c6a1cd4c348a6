"""Is the run's own correction on? The settings on record are carried out on the log-probs, and held against the loss mask.

K3 alone does not tell a healthy run from a collapsing one. The share of tokens that the run's own clip or mask takes does: a
public run with K3 0.013 collapsed while 45% of its tokens were clipped, and one with 0.010 did not while 0.03% were.
The loss's own reasons for the tokens that it left out: the share of the sampled tokens for each reason on record.
The settings of a trainer's own correction, as run.json has them, in the shape that the trainer's dialect reads.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ratioscope.errors import RatioscopeError
from ratioscope.metrics.corrections.effect import CarriedOut
from ratioscope.metrics.diagnosis.diagnosis import at_read
from ratioscope.metrics.dialects import dialect
from ratioscope.metrics.dialects.effect import dialect_carried_out
from ratioscope.metrics.dialects.translation import correction_in
from ratioscope.metrics.engines.arrow_columns import flat_values, list_lengths
from ratioscope.metrics.frame import value_in
from ratioscope.metrics.known.trainers import DIALECT, trainer_named
from ratioscope.record import MASK_REASONS

from ..run import Run
from .step_rows import columns_of, records_of

CorrectionState = Literal[
    "on", "not on", "nothing to mask", "weights only", "not visible", "none set", "no settings", "unreadable"
]
MASKS_LATER = {"skyrl": "SkyRL masks in its workers, after the loss mask on record was taken"}
"""Trainer -> why the loss mask on record cannot show its correction."""
MASKS_INSIDE = "off_policy_mask_threshold acts inside TRL's loss, and no reason of the loss on record is of it"
"""The same of TRL's off-policy mask: a loss mask that a user logs is taken before it; the adapter's has its reason."""
WITHOUT_DIALECT = ("openrlhf", "molt", "prime_rl", "roll", "open_instruct", "tinker_cookbook")
"""Trainers whose correction settings no dialect reads."""
OUTSIDE = "share_outside_0.5_2"
FEW = 10
"""If the settings mask fewer tokens than this, a loss mask without masked tokens contradicts nothing."""

LEAST_OF_MASK = 0.5
"""A loss mask with less than this part of the tokens that the settings mask contradicts them. A convention."""

COLUMNS = ("mask", "mask_reason")

RecordedConfig = Mapping[str, Any]


@dataclass(frozen=True)
class OwnSettings:
    """The part of a configuration that a dialect reads."""

    dialect: str
    config: RecordedConfig
    """`Any` values: each dialect checks its own."""


@dataclass(frozen=True)
class OwnCorrection:
    """The run's own correction, and what the record shows of it. Shares are of the sampled tokens that were read."""

    state: CorrectionState
    words: str
    """The answer in sentences."""
    clipped: float | None = None
    """Share of tokens whose weight a bound of the settings changes; None if the settings were not carried out."""
    removed: float | None = None
    """Share of tokens that the settings take out of the loss, by mask or zero weight, likewise."""
    masked: float | None = None
    """Share of tokens that the settings take out by mask, with a weight above 0, likewise."""
    masked_on_record: float | None = None
    """Share of sampled tokens outside the recorded loss mask; None without one."""
    outside: float | None = None
    """Share of tokens whose weight lies outside [0.5, 2]: the tokens that a usual correction would touch."""
    reasons: Mapping[str, float] = field(default_factory=dict)
    """Reason that the loss recorded -> share of tokens that it left out for it; empty without reasons on record."""
    warnings: tuple[str, ...] = ()
    """Settings that the trainer accepts silently, but that do harm."""
    among: str = ""
    """The steps that the shares are of, but for `outside`, in words that follow "tokens"; empty if it is all of the run."""

    @property
    def refuted(self) -> str:
        """The answer if the loss mask on record shows that the correction is not on; else empty."""
        return self.words if self.state == "not on" else ""

    @property
    def short(self) -> str:
        """The shares for a verdict line; empty if none is known."""
        if self.removed is not None and self.clipped is not None and self.state != "none set":
            taken = f"removes {_share(self.removed)} and clips {_share(self.clipped)}"
            return f"the run's own correction {taken} of the tokens{self.among}"
        outside = "" if self.outside is None else f"{_share(self.outside)} of the tokens have a weight outside [0.5, 2]"
        if self.masked_on_record:
            masked = f"the loss mask on record removes {_share(self.masked_on_record)} of the tokens{self.among}"
            return f"{masked}, and {outside}" if outside else masked
        return outside


@dataclass
class _TokenCounts:
    """Tokens of the steps that were read."""

    sampled: int = 0
    """Tokens that the policy sampled."""
    clipped: int = 0
    """Tokens left in the loss whose weight a bound changed."""
    removed: int = 0
    """Sampled tokens that are left without a weight in the loss."""
    masked: int = 0
    """Sampled tokens that the correction's mask takes out though they have a weight."""

    def add(self, done: CarriedOut) -> None:
        own = done.result
        left = own.mask & (own.weight != 0)
        self.sampled += int(own.sampled.sum())
        self.clipped += int((own.clipped & left).sum())
        self.removed += int((own.sampled & ~left).sum())
        self.masked += int((own.sampled & ~own.mask & (own.weight > 0)).sum())


def own_correction_of(run: Run, steps: Sequence[int], gap: str = "mismatch") -> OwnCorrection:
    """The effect of the run's own correction at these steps, by its settings and by the recorded loss mask."""
    reasons = shares_by_reason(columns_of(run, step, COLUMNS) for step in steps)
    correction = _own_correction(run, steps, reasons)
    words = "; ".join(filter(None, (correction.words, reasons_in_words(reasons))))
    among = f" {at_read(len(steps))}" if len(steps) < len(run.steps) else ""
    if among and (correction.removed is not None or correction.masked_on_record or reasons):
        words = f"{among.strip()}, {words}"
    return replace(correction, words=words, reasons=reasons, outside=_outside(run, gap), among=among)


def _outside(run: Run, gap: str) -> float | None:
    value = value_in(run.metrics(by=(), names=(OUTSIDE,)), f"{gap}/{OUTSIDE}")
    return None if value is None else float(value)


def _own_correction(run: Run, steps: Sequence[int], reasons: Mapping[str, float]) -> OwnCorrection:
    settings = own_settings(run.info)
    on_record = _masked_on_record(records_of(run, step) for step in steps)
    if settings is None:
        return OwnCorrection("no settings", no_settings(run.info), masked_on_record=on_record)
    try:
        warnings = tuple(str(note) for note in dialect(settings.dialect).parse(settings.config).warnings)
        counts = _TokenCounts()
        for step in steps:
            for done in dialect_carried_out(records_of(run, step), settings.dialect, settings.config):
                counts.add(done)
    except RatioscopeError as error:
        words = f"the settings on record cannot be carried out on this record: {error}"
        return OwnCorrection("unreadable", words, masked_on_record=on_record)
    n = max(counts.sampled, 1)
    shares = (counts.clipped / n, counts.removed / n, counts.masked / n)
    unseen = _unseen(run.info, settings, reasons)
    state = _state(settings, counts, None if unseen else on_record)
    words = _words(state, shares, on_record, unseen)
    return OwnCorrection(state, words, *shares, on_record, warnings=warnings)


def _masked_on_record(parts: Iterator[pa.Table]) -> float | None:
    """Share of the sampled tokens that the recorded loss mask leaves out; None if no row has a loss mask."""
    sampled = outside = 0
    for records in parts:
        own = records.filter(records["loss_mask"].is_valid())
        lengths = list_lengths(own["loss_mask"])
        absent = pa.scalar(True, pa.bool_())
        mask, kept = (_flags(flat_values(own[name], lengths, absent)) for name in ("mask", "loss_mask"))
        sampled += int(mask.sum())
        outside += int((mask & ~kept).sum())
    return outside / sampled if sampled else None


def _flags(values: Any) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Flat values as booleans, a null as True. Any: an Arrow array or a chunked one."""
    return np.asarray(values.fill_null(True).to_numpy(zero_copy_only=False), np.bool_)


def _unseen(info: Mapping[str, Any], settings: OwnSettings, reasons: Mapping[str, float]) -> str:
    """Why the loss mask on record cannot show the correction; empty if it can."""
    is_inside = settings.dialect == "trl" and settings.config.get("off_policy_mask_threshold") is not None
    if is_inside and "off_policy" not in reasons:
        return MASKS_INSIDE
    return MASKS_LATER.get(trainer_named(info.get("trainer")) or "", "")


def _state(settings: OwnSettings, counts: _TokenCounts, on_record: float | None) -> CorrectionState:
    """on_record: share of tokens outside the loss mask; None without one that can show the correction."""
    if _sets_nothing(settings):
        return "none set"
    if not counts.masked:
        return "weights only" if counts.clipped or counts.removed else "nothing to mask"
    if on_record is None:
        return "not visible"
    expected = counts.masked / counts.sampled
    return "on" if counts.masked < FEW or on_record >= expected * LEAST_OF_MASK else "not on"


def _sets_nothing(settings: OwnSettings) -> bool:
    try:
        return not correction_in(settings.dialect, settings.config).steps
    except RatioscopeError:
        return False  # more than a Correction can express


def _words(state: CorrectionState, shares: tuple[float, float, float], on_record: float | None, unseen: str) -> str:
    clipped, removed, masked = shares
    zeroed = f"those of {_share(removed)}" if removed else "none"
    recorded = (
        "no loss mask is on record" if on_record is None else f"the loss mask on record has {_share(on_record)} masked"
    )
    return {
        "none set": f"the settings on record set no correction; {recorded}",
        "weights only": f"the settings on record clip the weights of {_share(clipped)} of the tokens and set {zeroed} to 0; "
        "the record cannot show that they did, because it holds no weights",
        "nothing to mask": f"the settings on record set a correction whose bounds catch no token here; {recorded}",
        "not visible": f"the settings on record mask {_share(masked)} of the tokens; the record cannot show that they were: "
        f"{unseen or 'log loss_mask to see it'}",
        "on": f"on: the settings mask {_share(masked)} of the tokens, and {recorded}",
        "not on": f"not on: the settings on record mask {_share(masked)} of the tokens, and {recorded}. Look for a switch "
        "that is missing beside them",
    }[state]  # fmt: skip


def no_settings(info: Mapping[str, Any]) -> str:
    trainer = trainer_named(info.get("trainer"))
    if trainer in WITHOUT_DIALECT and info.get("config"):
        return f"ratioscope cannot read the correction settings of {trainer}: only the loss mask on record shows it"
    if trainer not in (None, "trl"):
        record = f'Collector(run_dir, trainer="{trainer}", config=CONFIG)'
        return f"no correction settings are on record; record them with {record}, the whole configuration of {trainer}"
    record = 'Collector(run_dir, trainer="trl", config={"args": training_args.to_dict()})'
    return f"no correction settings are on record; record them with {record}, or with your trainer's own configuration"


def _share(value: float) -> str:
    if value >= 0.1 or not value:
        return f"{value:.0%}"
    return f"{value:.1%}" if value >= 0.01 else f"{value:.2%}" if value >= 1e-4 else f"{value:.1g}"


def plain_own_correction(correction: OwnCorrection) -> dict[str, Any]:
    """The correction as values that JSON can hold."""
    return asdict(correction) | {"warnings": list(correction.warnings)}


def shares_by_reason(parts: Iterable[pa.Table]) -> dict[str, float]:
    """Reason -> share of the sampled tokens that the loss left out for it; {} if no row has reasons.

    Reasons that no token has are left out, unless no token has any: then "kept" is there with 1. A number without a name, of a
    newer ratioscope, counts as other.
    """
    counts = np.zeros(len(MASK_REASONS), np.int64)
    for records in parts:
        own = records.filter(records["mask_reason"].is_valid())
        lengths = list_lengths(own["mask_reason"])
        numbers = flat_values(own["mask_reason"], lengths, pa.scalar(0, pa.int16())).to_numpy(zero_copy_only=False)
        sampled = _flags(flat_values(own["mask"], lengths, pa.scalar(True, pa.bool_())))
        known = (numbers >= 0) & (numbers < len(MASK_REASONS))
        named = np.where(known, numbers, MASK_REASONS.index("other")).astype(np.int64)
        counts += np.bincount(named[sampled], minlength=len(MASK_REASONS))
    total = int(counts.sum())
    if not total:
        return {}
    shares = {word: float(n / total) for word, n in zip(MASK_REASONS, counts.tolist(), strict=True) if n}
    return shares if set(shares) == {"kept"} else {word: share for word, share in shares.items() if word != "kept"}


def reasons_in_words(shares: dict[str, float]) -> str:
    """The shares in one clause; empty if there are none.

    >>> reasons_in_words({"high": 0.08, "sequence": 0.02})
    "the loss's own reasons for leaving tokens out: high 8%, sequence 2%"
    """
    if not shares:
        return ""
    if "kept" in shares:
        return "the loss left no token out by its own reasons"
    listed = ", ".join(f"{word.replace('_', ' ')} {_percent(share)}" for word, share in shares.items())
    return f"the loss's own reasons for leaving tokens out: {listed}"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{share:.2%}"


def own_settings(info: Mapping[str, Any]) -> OwnSettings | None:
    """The settings of the run's own correction; None if they are not on record, or if the trainer has no dialect."""
    trainer = trainer_named(info.get("trainer"))
    config = info.get("config")
    if trainer is None or trainer not in _READ or not isinstance(config, Mapping):
        return None
    settings = _READ[trainer](config)
    return None if settings is None else OwnSettings(DIALECT.get(trainer, trainer), settings)


def _section(config: RecordedConfig, name: str) -> RecordedConfig:
    value = config.get(name)
    return value if isinstance(value, Mapping) else {}


def _trl(config: RecordedConfig) -> RecordedConfig | None:
    args = _section(config, "args") or config
    return args if "vllm_importance_sampling_mode" in args else None


def _verl(config: RecordedConfig) -> RecordedConfig | None:
    own = config if "algorithm" in config else _section(config, "config")
    return own if "rollout_correction" in _section(own, "algorithm") else None


def _slime(config: RecordedConfig) -> RecordedConfig | None:
    args = _section(config, "args")
    if "use_tis" not in args:
        return None
    path = args.get("custom_tis_function_path")
    own = {"custom_tis_function_path": path.replace("miles.", "slime.", 1)} if isinstance(path, str) else {}
    return {"args": {**args, **own}}


_READ: Mapping[str, Callable[[RecordedConfig], RecordedConfig | None]] = {
    "trl": _trl, "verl": _verl, "slime": _slime, "miles": _slime,
    "skyrl": lambda config: config if _section(_section(config, "trainer"), "algorithm") else None,
    "nemo_rl": lambda config: config if _section(config, "loss_fn") else None,
    "areal": lambda config: own if _section(own := _section(config, "areal") or config, "actor") else None,
    "fireworks": lambda config: config if "tis" in config else None,
}  # fmt: skip
"""Trainer -> the part of its configuration that its dialect reads; None if that part is not on record."""
