"""The numbers that several tokens per position give, over the steps of a run, and the effect of score centering there."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from ratioscope.arrays import Booleans, Floats
from ratioscope.metrics.analysis.persistence import Persistence, persistence
from ratioscope.metrics.analysis.score_centering import CenteringEffect, effects, support_sums
from ratioscope.metrics.analysis.support_bins import SupportTokens, bins_of
from ratioscope.metrics.analysis.support_metrics import SUPPORT_METRICS, SupportNumber, numbers
from ratioscope.metrics.metric import SAMPLED
from ratioscope.record import kin

from ..run import Run
from .support import Support, support_pieces

MOST_STEPS = 40
"""The most steps that are read, evenly spaced, the newest among them: a file of top-k has some hundred MB."""
MOST_TOKENS = 20_000
"""The tokens of a step that are read, about: its first sequences, whole. The page waits a second for a million alternatives."""
COUNTED = ("no_support", "too_much", "not_finite", "disagreeing")
"""The fields of Bins that count tokens."""
CARD = ("name", "title", "unit", "formula", "meaning", "estimator", "weighting", "range", "source")


@dataclass(frozen=True)
class SupportNumbers:
    """Numbers of the supports of a gap. All are of the steps and sequences that were read."""

    gap: str
    steps: tuple[int, ...] = ()
    """Steps with a usable token, ascending."""
    k: int = 0
    """The most tokens of a position."""
    whole: tuple[SupportNumber, ...] = ()
    """A number for each of SUPPORT_METRICS, over all of these steps."""
    by_step: tuple[tuple[SupportNumber, ...], ...] = ()
    """The same for each step."""
    effects: tuple[CenteringEffect, ...] = ()
    """The corrections with score centering and without, over all of these steps."""
    drift: Persistence | None = None
    """The persistent part of `score_drift`; None where it was not tested."""
    counted: tuple[int, ...] = ()
    """Number of tokens for each of COUNTED."""
    is_part: bool = False
    """True if a step with top-k, or a part of one, was not read."""
    because: str = ""
    """Reason why there is no number; empty if there is one."""

    def named(self, name: str) -> SupportNumber:
        """The number of this metric over the whole run."""
        return next(own for metric, own in zip(SUPPORT_METRICS, self.whole, strict=True) if metric.name == name)

    @property
    def gain(self) -> float:
        """The error of K3 / that of `support_kl`, on the same tokens; NaN without one."""
        own, sampled = self.named("support_kl").error, self.named("support_k3").error
        return sampled / own if own > 0 else float("nan")

    @property
    def course(self) -> pl.DataFrame:
        """A row per step: step, "<gap>/<metric>" and "<gap>/<metric>_se", as in frames of metrics."""
        columns: dict[str, Any] = {"step": self.steps}
        for place, metric in enumerate(SUPPORT_METRICS):
            own = [each[place] for each in self.by_step]
            columns |= {f"{self.gap}/{metric.name}": [each.value for each in own]}
            columns |= {f"{self.gap}/{metric.name}_se": [each.error for each in own]}
        floats = {name: pl.Float64 for name in columns if name != "step"}
        return pl.DataFrame(columns, schema_overrides={"step": pl.Int64, **floats}).fill_nan(None)


def support_numbers(run: Run, gap: str, steps: range | None = None) -> SupportNumbers | None:
    """None for a run without top-k on record, as most are. steps: only these; None: all."""
    known = run.topk_steps
    if not known:
        return None
    if kin(gap) not in SAMPLED:
        return SupportNumbers(gap, because=f"the tokens of the {gap} are not sampled from its earlier policy")
    wanted = known if steps is None else [step for step in known if step in steps]
    read = [wanted[place] for place in _places(len(wanted))]
    found = [_of_step(run, step, gap) for step in read]
    usable = [(step, own) for step, own in zip(read, found, strict=True) if own is not None and own.sums[0, -1]]
    if not usable:
        return SupportNumbers(gap, because=f"no position has log-probs of both sides of the {gap} at one token")
    is_part = len(read) < len(wanted) or any(own.is_part for _, own in usable)
    return _joined(gap, usable, is_part=is_part)


@dataclass(frozen=True)
class _Step:
    """The sums of a step."""

    sums: Floats
    """As `support_sums`."""
    counted: tuple[int, ...]
    """Number of tokens for each of COUNTED."""
    k: int
    """The most tokens of a position."""
    is_part: bool
    """True if the step has more than was read."""


def _of_step(run: Run, step: int, gap: str) -> _Step | None:
    """The sums of the first sequences of a step; None without top-k of sequences on record."""
    pieces = support_pieces(run, step, gap)
    piece = next(pieces, None)
    if piece is None or not len(piece):
        return None
    kept = piece.sequence <= piece.sequence[min(len(piece), MOST_TOKENS) - 1]
    bins = bins_of(_tokens(piece, kept))
    counted = tuple(getattr(bins, name) for name in COUNTED)
    return _Step(support_sums(bins), counted, piece.ids.shape[1], not kept.all() or next(pieces, None) is not None)


def _tokens(piece: Support, kept: Booleans) -> SupportTokens:
    of = piece
    return SupportTokens(
        of.ids[kept], of.rollout[kept], of.train[kept], of.sampled_ids[kept], of.sampled_rollout[kept],
        of.sampled_train[kept], of.advantages[kept], (of.mask & of.loss_mask)[kept], of.sequence[kept], of.stands_for[kept],
    )  # fmt: skip


def _joined(gap: str, found: Sequence[tuple[int, _Step]], *, is_part: bool) -> SupportNumbers:
    own = len(SUPPORT_METRICS)
    total = np.sum([step.sums for _, step in found], axis=0)
    by_step = tuple(numbers(step.sums[:own]) for _, step in found)
    place = next(place for place, metric in enumerate(SUPPORT_METRICS) if metric.name == "score_drift")
    drift = np.array([each[place].value for each in by_step])
    return SupportNumbers(
        gap, tuple(step for step, _ in found), max(step.k for _, step in found), numbers(total[:own]), by_step,
        effects(total), persistence(drift[np.isfinite(drift)]),
        tuple(np.sum([step.counted for _, step in found], axis=0).tolist()), is_part,
    )  # fmt: skip


def _places(number: int) -> list[int]:
    """At most MOST_STEPS places of as many, evenly spaced, the last among them."""
    if not number:
        return []
    return [int(place) for place in np.unique(np.linspace(number - 1, 0, min(number, MOST_STEPS)).round())]


def plain_support(found: SupportNumbers) -> dict[str, Any]:
    """The numbers as values that JSON can hold."""
    drift = found.drift
    known = zip(SUPPORT_METRICS, found.whole, strict=bool(found.whole))
    cards = [{name: getattr(metric, name) for name in CARD} | _plain(own) for metric, own in known]
    return {
        "gap": found.gap,
        "because": found.because,
        "tokens_per_position": found.k,
        "is_part": found.is_part,
        "metrics": cards,
        "drift": None if drift is None else asdict(drift) | {"persistent": drift.is_persistent},
        "score_centering": [
            {
                "name": each.centering.name,
                "left": _plain(each.left),
                "removed": _plain(each.removed),
                "because": each.because,
            }
            for each in found.effects
        ],
        "left_out": dict(zip(COUNTED, found.counted, strict=bool(found.counted))),
        "steps": found.course.to_dicts(),
    }


def _plain(number: SupportNumber) -> dict[str, Any]:
    """The number; a value or error that is not known is None."""
    known = {"value": number.value, "error": number.error}
    return asdict(number) | {name: value if np.isfinite(value) else None for name, value in known.items()}
