"""Is the run's own correction on? The settings on record are carried out on the log-probs, and held against the loss mask.

K3 alone does not tell a healthy run from a collapsing one. The share of tokens that the run's own clip or mask takes does: a
public run with K3 0.013 collapsed while 45% of its tokens were clipped, and one with 0.010 did not while 0.03% were.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ratioscope.errors import RatioscopeError
from ratioscope.metrics.corrections.effect import CarriedOut
from ratioscope.metrics.dialects import dialect
from ratioscope.metrics.dialects.effect import dialect_carried_out
from ratioscope.metrics.dialects.translation import correction_in
from ratioscope.metrics.engines.arrow_columns import flat_values, list_lengths
from ratioscope.metrics.known.trainers import trainer_named

from ..run import Run
from .mask_reasons import COLUMNS, reasons_in_words, shares_by_reason
from .own_settings import OwnSettings, own_settings
from .step_rows import columns_of, records_of

CorrectionState = Literal[
    "on", "not on", "nothing to mask", "weights only", "not visible", "none set", "no settings", "unreadable"
]
MASKS_LATER = {"skyrl": "SkyRL masks in its workers, after the loss mask on record was taken"}
"""Trainer -> why the loss mask on record cannot show its correction."""
WITHOUT_DIALECT = ("openrlhf", "prime_rl", "roll", "open_instruct", "tinker_cookbook")
"""Trainers whose correction settings no dialect reads."""
OUTSIDE = "share_outside_0.5_2"
FEW = 10
"""If the settings mask fewer tokens than this, a loss mask without masked tokens contradicts nothing."""

LEAST_OF_MASK = 0.5
"""A loss mask with less than this part of the tokens that the settings mask contradicts them. A convention."""


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

    @property
    def short(self) -> str:
        """The shares for a verdict line; empty if none is known."""
        if self.removed is not None and self.clipped is not None and self.state != "none set":
            return f"the run's own correction removes {_share(self.removed)} and clips {_share(self.clipped)} of the tokens"
        outside = "" if self.outside is None else f"{_share(self.outside)} of the tokens have a weight outside [0.5, 2]"
        if self.masked_on_record:
            masked = f"the loss mask on record removes {_share(self.masked_on_record)} of the tokens"
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
    correction = _own_correction(run, steps)
    reasons = shares_by_reason(columns_of(run, step, COLUMNS) for step in steps)
    words = "; ".join(filter(None, (correction.words, reasons_in_words(reasons))))
    return replace(correction, words=words, reasons=reasons, outside=_outside(run, gap))


def _outside(run: Run, gap: str) -> float | None:
    frame, name = run.metrics(by=(), names=(OUTSIDE,)), f"{gap}/{OUTSIDE}"
    value = frame[name][0] if name in frame.columns and len(frame) else None
    return None if value is None else float(value)


def _own_correction(run: Run, steps: Sequence[int]) -> OwnCorrection:
    settings = own_settings(run.info)
    on_record = _masked_on_record(records_of(run, step) for step in steps)
    if settings is None:
        return OwnCorrection("no settings", _no_settings(run.info), masked_on_record=on_record)
    try:
        warnings = tuple(str(note) for note in dialect(settings.dialect).parse(settings.config).warnings)
        counts = _counts(run, steps, settings)
    except RatioscopeError as error:
        words = f"the settings on record cannot be carried out on this record: {error}"
        return OwnCorrection("unreadable", words, masked_on_record=on_record)
    n = max(counts.sampled, 1)
    shares = (counts.clipped / n, counts.removed / n, counts.masked / n)
    state = _state(run.info, settings, counts, on_record)
    words = _words(state, shares, on_record, run.info)
    return OwnCorrection(state, words, *shares, on_record, warnings=warnings)


def _counts(run: Run, steps: Sequence[int], settings: OwnSettings) -> _TokenCounts:
    counts = _TokenCounts()
    for step in steps:
        for done in dialect_carried_out(records_of(run, step), settings.dialect, settings.config):
            counts.add(done)
    return counts


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


def _state(
    info: Mapping[str, Any], settings: OwnSettings, counts: _TokenCounts, on_record: float | None
) -> CorrectionState:
    if _sets_nothing(settings):
        return "none set"
    if not counts.masked:
        return "weights only" if counts.clipped or counts.removed else "nothing to mask"
    if on_record is None or trainer_named(info.get("trainer")) in MASKS_LATER:
        return "not visible"
    expected = counts.masked / counts.sampled
    return "on" if counts.masked < FEW or on_record >= expected * LEAST_OF_MASK else "not on"


def _sets_nothing(settings: OwnSettings) -> bool:
    try:
        return not correction_in(settings.dialect, settings.config).steps
    except RatioscopeError:
        return False  # more than a Correction can express


def _words(
    state: CorrectionState, shares: tuple[float, float, float], on_record: float | None, info: Mapping[str, Any]
) -> str:
    clipped, removed, masked = shares
    zeroed = f"those of {_share(removed)}" if removed else "none"
    recorded = (
        "no loss mask is on record" if on_record is None else f"the loss mask on record has {_share(on_record)} masked"
    )
    why = MASKS_LATER.get(trainer_named(info.get("trainer")) or "", "log loss_mask to see it")
    return {
        "none set": f"the settings on record set no correction; {recorded}",
        "weights only": f"the settings on record clip the weights of {_share(clipped)} of the tokens and set {zeroed} to 0; "
        "the record cannot show that they did, because it holds no weights",
        "nothing to mask": f"the settings on record set a correction whose bounds catch no token here; {recorded}",
        "not visible": f"the settings on record mask {_share(masked)} of the tokens; the record cannot show that they were: "
        f"{why}",
        "on": f"on: the settings mask {_share(masked)} of the tokens, and {recorded}",
        "not on": f"not on: the settings on record mask {_share(masked)} of the tokens, and {recorded}. Look for a switch "
        "that is missing beside them",
    }[state]  # fmt: skip


def _no_settings(info: Mapping[str, Any]) -> str:
    trainer = trainer_named(info.get("trainer"))
    if trainer in WITHOUT_DIALECT and info.get("config"):
        return f"ratioscope cannot read the correction settings of {trainer}: only the loss mask on record shows it"
    record = 'Collector(run_dir, trainer="trl", config={"args": training_args.to_dict()})'
    return f"no correction settings are on record; record them with {record}, or with your trainer's own configuration"


def _share(value: float) -> str:
    if value >= 0.1 or not value:
        return f"{value:.0%}"
    return f"{value:.1%}" if value >= 0.01 else f"{value:.2%}" if value >= 1e-4 else f"{value:.1g}"


def plain_own_correction(correction: OwnCorrection) -> dict[str, Any]:
    """The correction as values that JSON can hold."""
    return asdict(correction) | {"warnings": list(correction.warnings)}
