"""The effect of each compared correction on the chosen steps: from distributions if they suffice, else from a job."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import Literal

import numpy as np
import polars as pl

from ratioscope.ingest.jobs.correction_results import CorrectionResults, gap_of
from ratioscope.ingest.jobs.step_ledger import Digests
from ratioscope.metrics.corrections.correction import WeightedGap
from ratioscope.metrics.corrections.effect import SUMS, compared_values, merged_weights
from ratioscope.metrics.corrections.threshold import Threshold, treated
from ratioscope.metrics.corrections.threshold_effect import VALUES, threshold_effects, whole_effect
from ratioscope.metrics.distribution import Histogram, Interval, Level, whole_histogram

from ....pages.view import CacheRequest, View, figure_request
from .entries import Entry

SHOWN = (*VALUES, "removed_share_sequence")
NOTHING = Threshold("reject")
"""No correction, as a threshold: rejection without bounds leaves weights of 1."""


@dataclass(frozen=True)
class CorrectionOutcome:
    """The effect of one correction on the chosen steps."""

    entry: Entry
    gap: str
    over: Literal["tokens", "sequences"]
    """Unit of the weights in means."""
    source: Literal["statistics", "rows"]
    """rows: a job read token rows; statistics: no row was read."""
    steps: pl.DataFrame
    """Columns `step`, `weights` (N), and `<name>` and `<name>_most` of SHOWN; NaN if unknown."""
    possible: int = 0
    """Number of steps that have token rows."""
    sampled: bool = False
    """True if a budget kept a sample of the rows."""
    reason: str = ""
    """The reason why there is no result, or why steps are missing."""
    whole: dict[str, Interval] | None = None
    """Values over the common steps, see `on_common_steps`; so are `left` and `removed`."""
    left: Histogram | None = None
    """Histogram of the weights after the correction."""
    removed: float = nan
    """Share of the weights that the correction removes."""

    @property
    def exact(self) -> bool:
        """True if the values are exact, not intervals."""
        return not isinstance(self.entry.made, Threshold) or self.entry.made.exact or self.source == "rows"

    def at(self, steps: Iterable[int]) -> pl.DataFrame:
        return self.steps.filter(pl.col("step").is_in(list(steps)))


@dataclass(frozen=True)
class OutcomeSource:
    """The data that outcomes are read from: a view, a gap, the chosen steps, and digests of the view's token rows."""

    view: View
    gap: WeightedGap
    chosen: range
    digests: Digests = field(compare=False)
    """The digests of the rows that a Correction reads: those with the readings of the gap, if it has any."""
    recorded: Digests = field(compare=False)
    """The digests of all rows, which a trainer's own correction reads."""

    @property
    def with_rows(self) -> list[int]:
        """The chosen steps that have token rows."""
        return [step for step in self.digests if step in self.chosen]

    def digests_of(self, results: CorrectionResults) -> Digests:
        """The digests by which these results are valid."""
        return self.digests if gap_of(results.correction) else self.recorded

    def distribution(self, level: Level) -> pl.DataFrame:
        """Run.distribution of the chosen steps."""
        whole = self.view.distribution(level, self.gap)
        return whole.filter(pl.col("step").is_between(self.chosen.start, self.chosen.stop - 1))

    def histogram(self, level: Level, steps: Sequence[int] | None = None) -> Histogram:
        """The histogram over all the chosen steps, or over these. Steps that are all of them need no histogram of their own."""
        is_whole = steps is None or self.view.figure(_steps, self, level) <= set(steps)
        return self.view.figure(_histogram, self, level, None if is_whole else tuple(steps or ()))

    def effects(self, threshold: Threshold) -> pl.DataFrame:
        """The effect of a threshold on each of the chosen steps."""
        return self.view.figure(_effects, self, threshold)


def _histogram(source: OutcomeSource, level: Level, steps: tuple[int, ...] | None) -> Histogram:
    rows = source.distribution(level)
    return whole_histogram(rows if steps is None else rows.filter(pl.col("step").is_in(list(steps))))


def _steps(source: OutcomeSource, level: Level) -> frozenset[int]:
    """The chosen steps that have a distribution."""
    return frozenset(source.distribution(level)["step"].unique())


def _effects(source: OutcomeSource, threshold: Threshold) -> pl.DataFrame:
    return threshold_effects(source.distribution(threshold.level), threshold)


def effects_to_prefetch(source: OutcomeSource, entries: Iterable[Entry]) -> list[CacheRequest]:
    """Requests for the values that the page reads from distributions for these entries, and for its first threshold."""
    known = [threshold for entry in entries if (threshold := _threshold_of(entry)) is not None]
    made = [threshold for threshold in known if threshold.level == "token" or not source.with_rows]
    levels = dict.fromkeys(threshold.level for threshold in made)
    requests: list[CacheRequest] = []
    for level in levels:
        requests += [figure_request(_histogram, source, level, None), figure_request(_steps, source, level)]
    return [*requests, *(figure_request(_effects, source, threshold) for threshold in made)]


def _threshold_of(entry: Entry) -> Threshold | None:
    """The threshold whose effect distributions give in full; None if the entry needs token rows."""
    return entry.made if isinstance(entry.made, Threshold) else NOTHING if entry.text == "none" else None


def needs_rows(entry: Entry) -> bool:
    """True if token rows add to the result from distributions: for all entries but single thresholds on tokens."""
    single = _threshold_of(entry)
    return single is None or single.level != "token"


def outcome(source: OutcomeSource, entry: Entry, ledger: CorrectionResults | None) -> CorrectionOutcome:
    """The outcome of one entry over tokens, as far as it is known; over sequences only where no step has token rows."""
    threshold = _threshold_of(entry)
    if threshold is not None and (threshold.level == "token" or ledger is None or not source.with_rows):
        return _of_statistics(source, entry, threshold)
    assert ledger is not None
    return _of_rows(source, entry, ledger)


def on_common_steps(
    source: OutcomeSource, outcomes: Sequence[CorrectionOutcome], ledgers: Sequence[CorrectionResults | None]
) -> tuple[list[CorrectionOutcome], list[int]]:
    """The outcomes with totals over the steps that all of them have, and these steps.

    Outcomes without any step do not limit the common steps.
    """
    sets = [set(each.steps["step"].to_list()) for each in outcomes if len(each.steps)]
    common = sorted(set.intersection(*sets)) if sets else []
    filled = [_filled(source, each, ledger, common) for each, ledger in zip(outcomes, ledgers, strict=True)]
    return filled, common


def _of_statistics(source: OutcomeSource, entry: Entry, threshold: Threshold) -> CorrectionOutcome:
    steps = source.effects(threshold)
    over: Literal["tokens", "sequences"] = "tokens" if threshold.level == "token" else "sequences"
    gone = "removed_share" if over == "sequences" else None
    more = {f"removed_share_sequence{end}": steps[f"{gone}{end}"] if gone else pl.lit(nan) for end in ("", "_most")}
    reason = "" if len(steps) else f"no distribution of {source.gap} is on record"
    return CorrectionOutcome(entry, source.gap, over, "statistics", steps.with_columns(**more), reason=reason)


def _of_rows(source: OutcomeSource, entry: Entry, ledger: CorrectionResults) -> CorrectionOutcome:
    frame = ledger.frame(source.digests_of(ledger)).filter(pl.col("step").is_in(source.with_rows))
    computed = frame.filter(pl.col("reason").is_null())
    values = compared_values({name: computed[name].to_numpy() for name in SUMS})
    columns = {f"{name}{end}": value for name, value in values.items() for end in ("", "_most")}
    steps = computed.select("step", weights=pl.col("tokens").round().cast(pl.Int64)).with_columns(
        pl.Series(name, value) for name, value in columns.items()
    )
    refused = frame.filter(pl.col("reason").is_not_null())
    gaps = computed["gap"].unique().to_list()
    return CorrectionOutcome(
        entry,
        str(gaps[0]) if gaps else source.gap,
        "tokens",
        "rows",
        steps,
        possible=len(source.with_rows) - len(refused),
        sampled=bool(computed["sampled"].any()),
        reason=str(refused["reason"][0]) if len(refused) else "" if source.with_rows else NO_ROWS,
    )


NO_ROWS = "none of these steps has token rows, and only a single threshold can be computed from statistics"


def _filled(
    source: OutcomeSource, each: CorrectionOutcome, ledger: CorrectionResults | None, common: Sequence[int]
) -> CorrectionOutcome:
    if not len(each.steps):
        return each
    if each.source == "statistics":
        threshold = each.entry.made if isinstance(each.entry.made, Threshold) else NOTHING
        part = source.histogram(threshold.level, common)
        whole = whole_effect(part, threshold)
        gone = whole["removed_share"] if each.over == "sequences" else Interval(nan, nan)
        left, removed = treated(part, threshold)
        total = int(part.counts.sum())
        return replace(
            each,
            whole={**whole, "removed_share_sequence": gone},
            left=left,
            removed=removed / total if total else nan,
        )
    assert ledger is not None
    frame = ledger.frame(source.digests_of(ledger)).filter(
        pl.col("step").is_in(list(common)), pl.col("reason").is_null()
    )
    values = compared_values({name: np.array([frame[name].sum()], np.float64) for name in SUMS})
    whole = {name: Interval(float(value[0]), float(value[0])) for name, value in values.items()}
    return replace(each, whole=whole, left=merged_weights(frame), removed=whole["removed_share"].low)
