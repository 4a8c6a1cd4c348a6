"""The budget of the trust region: who its two sides are, and how much of the run's own clip is spent before any update.

A PPO clip bounds how far an update moves a token, if its ratio is 1 before the update. It is not where old is a copy of rollout,
or where the trainer's two passes disagree; and if current never differs from old the clip never acts.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.errors import RatioscopeError
from ratioscope.metrics.dialects import dialect
from ratioscope.metrics.dialects.clip_band import ClipBand, clip_band
from ratioscope.metrics.engines.arrow_columns import gap_rows, pc
from ratioscope.metrics.known.trainers import trainer_named
from ratioscope.record import gap_between

from ..run import Run
from .copies import CopyFact, copy_facts
from .own_correction import no_settings, own_settings
from .step_rows import columns_of

UNKNOWN = (
    "no token rows are known to be from before an update; log trainer_version, and minibatch where a step has several"
)
_READ = ("mask", "minibatch", "trainer_version", "generation_step")


@dataclass(frozen=True)
class SpentBand:
    """Tokens outside the clip before any update: of the first minibatch after old was computed, at the steps that were read."""

    gap: str
    """The gap whose ratio the clip bounds."""
    tokens: int
    """Sampled tokens of such minibatches that were read."""
    outside: int
    """Those of them whose ratio lies outside the band."""
    steps: int
    """Number of steps that have one."""

    @property
    def share(self) -> float:
        return self.outside / self.tokens


@dataclass(frozen=True)
class TrustRegion:
    """The facts on the trust region of a run."""

    trainer: str | None
    """Name of the run's trainer; None if run.json names none that is known."""
    copies: tuple[CopyFact, ...] = ()
    """The mismatch and the drift, if one side is a copy of the other at every step."""
    band: ClipBand | None = None
    """The clip of the run's own settings; None if none is known."""
    spent: SpentBand | None = None
    """None if it was not counted."""
    because: str = ""
    """Reason why it was not; empty if it was."""


def trust_region(run: Run, steps: Sequence[int]) -> TrustRegion:
    """steps: those with token rows that may be read."""
    trainer = trainer_named(run.info.get("trainer"))
    copies = tuple(each for each in copy_facts(run) if each.gap != "total" and each.whole)
    band, because = _band(run)
    if band is None:
        return TrustRegion(trainer, copies, because=because)
    gap = gap_between(band.anchor, "current")
    if gap not in run.gaps:
        return TrustRegion(trainer, copies, band, because=f"no row has the log-probs of both {band.anchor} and current")
    # The least of step - trainer_version at these steps and those right before them; None if no version is on record.
    # A trainer that makes several steps of one batch computes old once: only the first of them, whose age is the
    # least, is fresh.
    recorded = sorted(run.rows_on_disk)
    before = [recorded[at - 1] for step in steps if (at := bisect_left(recorded, step)) > 0]
    tables = (run.rows(step, ("trainer_version",)) for step in sorted({*steps, *before}))
    ages = (pc.min(pc.subtract(each["step"], each["trainer_version"])).as_py() for each in tables)
    newest = min((age for age in ages if age is not None), default=None)
    counted = [_counted(columns_of(run, step, _READ), gap, band, newest) for step in steps]
    tokens, outside = (sum(column) for column in zip(*counted, strict=True)) if counted else (0, 0)
    if not tokens:
        return TrustRegion(trainer, copies, band, because=UNKNOWN)
    return TrustRegion(trainer, copies, band, SpentBand(gap, tokens, outside, sum(own > 0 for own, _ in counted)))


def _band(run: Run) -> tuple[ClipBand | None, str]:
    """The clip of the run's own settings, or the reason why there is none."""
    own = own_settings(run.info)
    if own is None:
        return None, no_settings(run.info)
    try:
        found = clip_band(own.dialect, dialect(own.dialect).parse(own.config), own.config)
    except RatioscopeError as error:
        return None, f"the settings on record cannot be read: {error}"
    return found, "" if found else "the loss of the settings on record clips no ratio of single tokens"


def _counted(records: pa.Table, gap: str, band: ClipBand, newest: int | None) -> tuple[int, int]:
    """(tokens, those outside the band) of the rows before any update. newest: the age of weights that computed a fresh old."""
    version, step = records["trainer_version"], records["step"]
    by_version = pc.equal(pc.subtract(step, version), pa.scalar(newest, pa.int64()))
    fresh = pc.if_else(pc.is_valid(version), by_version, pc.equal(records["generation_step"], step))
    first = pc.equal(pc.fill_null(records["minibatch"], 0), 0)
    rows = gap_rows(records.filter(pc.fill_null(pc.and_(first, fresh), False)), gap)
    with np.errstate(all="ignore"):
        ratio = np.exp(rows.later.astype(np.float64) - rows.earlier)
    known = rows.mask & ~np.isnan(ratio)
    beyond = known & ((ratio < band.low) | (ratio > band.high))
    return int(known.sum()), int(beyond.sum())


def plain_trust(trust: TrustRegion) -> dict[str, Any]:
    """The facts as values that JSON can hold."""
    return {
        "copies": [{"gap": each.gap, "steps": len(each.steps), "of": each.of} for each in trust.copies],
        "clip": None if trust.band is None else asdict(trust.band),
        "spent": None if trust.spent is None else asdict(trust.spent) | {"share": trust.spent.share},
        "because": trust.because,
    }
