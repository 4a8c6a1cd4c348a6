"""The effect of each compared correction on the chosen steps: from distributions if they suffice, else from a job."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import nan
from typing import Literal

import numpy as np
import polars as pl

from ratioscope.ingest.jobs.correction_results import CorrectionResults, CorrectionWork, gap_of
from ratioscope.ingest.jobs.step_ledger import Digests
from ratioscope.ingest.run import Run
from ratioscope.metrics.corrections.advice import Advice, ranked
from ratioscope.metrics.corrections.correction import WeightedGap
from ratioscope.metrics.corrections.effect import SUMS, compared_values, merged_weights
from ratioscope.metrics.corrections.threshold import NOTHING, Threshold, treated
from ratioscope.metrics.corrections.threshold_effect import VALUES, threshold_effects, whole_effect
from ratioscope.metrics.distribution import Histogram, Interval, Level, whole_histogram

from ..figures.html.comparison import COLUMNS, TableRow
from ..presentation.digits import count
from .corrections_text import IN_USE, Entry
from .view import CacheRequest, View, figure_request

SHOWN = (*VALUES, "removed_share_sequence")
NO_ROWS = "none of these steps has token rows, and only a single threshold can be computed from statistics"


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
    """Values over the steps that all compared corrections have; so are the next three."""
    before: Histogram | None = None
    """Histogram of the weights."""
    left: Histogram | None = None
    """The same after the correction."""
    removed: float = nan
    """Share of the weights that the correction removes."""

    @property
    def told(self) -> dict[str, Interval] | None:
        """`whole`, without a mass that is removed where nothing is corrected."""
        mass = "" if self.entry.text != "none" else "mass_removed"
        return None if self.whole is None else {name: value for name, value in self.whole.items() if name != mass}

    @property
    def exact(self) -> bool:
        """True if the values are exact, not intervals."""
        return not isinstance(self.entry.made, Threshold) or self.entry.made.exact or self.source == "rows"

    def at(self, steps: Iterable[int]) -> pl.DataFrame:
        return self.steps.filter(pl.col("step").is_in(list(steps)))

    @property
    def unit(self) -> str:
        """A weight is of one."""
        return self.over.removesuffix("s")

    def weights(self) -> pl.DataFrame:
        """Number of weights in each bucket of log-weights, before and after."""
        known = [(part, when) for part, when in ((self.before, "before"), (self.left, "after")) if part is not None]
        return pl.concat(
            pl.DataFrame({"when": [when] * len(part.counts), "low": part.low, "high": part.high, "count": part.counts})
            for part, when in known
        )

    @property
    def note(self) -> str:
        """The data that the values are made of, where they are not exact ones of all tokens of the gap."""
        from_rows = self.source == "rows"
        notes = [
            f"token rows of {len(self.steps):,} of {count(self.possible, 'step')}"
            if from_rows and self.possible
            else "",
            "an estimate: the budget kept a sample of the rows" if from_rows and self.sampled else "",
            "over sequences, because no step has token rows" if self.over == "sequences" else "",
            "" if self.exact else "intervals: a bound lies between histogram edges",
            f"uses {self.gap}" if from_rows and len(self.steps) else "",
            f"not available, because {self.reason}" if self.reason else "",
            "not computed yet" if from_rows and not len(self.steps) and not self.reason else "",
        ]
        return " · ".join(filter(None, notes))


@dataclass(frozen=True)
class OutcomeSource:
    """The data that outcomes are read from."""

    view: View
    gap: WeightedGap
    chosen: range
    """The chosen steps."""

    @property
    def with_rows(self) -> list[int]:
        """The chosen steps that have token rows, with the readings of the gap if it has any."""
        return [step for step in self.view.of(_digests, self.gap) if step in self.chosen]

    def digests_of(self, results: CorrectionResults) -> Digests:
        """The digests of token rows by which these results are valid. A trainer's own correction reads all rows."""
        return self.view.of(_digests, gap_of(results.correction))

    def results(self, entry: Entry) -> CorrectionResults | None:
        """The results of jobs; None for a threshold on tokens, of which distributions tell all."""
        single = _threshold_of(entry)
        if single is not None and single.level == "token":
            return None
        return self.view.source.jobs.ledger(self.view.path, entry.correction(self.gap))

    def compute(self, results: Sequence[CorrectionResults]) -> None:
        """Computes what these results lack, now."""
        work = CorrectionWork(self.view.run, results, self.with_rows)
        for step in work.pieces:
            work.do(step)

    def missing(self, results: Iterable[CorrectionResults]) -> set[int]:
        """The steps with token rows that these results lack."""
        return set[int]().union(*(each.ledger.missing(self.digests_of(each), self.with_rows) for each in results))

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


def _digests(run: Run, gap: str) -> Digests:
    return run.row_digests(gap=gap)


def _histogram(source: OutcomeSource, level: Level, steps: tuple[int, ...] | None) -> Histogram:
    rows = source.distribution(level)
    return whole_histogram(rows if steps is None else rows.filter(pl.col("step").is_in(list(steps))))


def _steps(source: OutcomeSource, level: Level) -> frozenset[int]:
    """The chosen steps that have a distribution."""
    return frozenset(source.distribution(level)["step"].unique())


def _effects(source: OutcomeSource, threshold: Threshold) -> pl.DataFrame:
    return threshold_effects(source.distribution(threshold.level), threshold)


def effects_ahead(source: OutcomeSource, entries: Iterable[Entry]) -> Iterator[CacheRequest]:
    """Requests for the values that the page reads from distributions for these entries; where there are token rows, of tokens."""
    yield from (figure_request(_histogram, source, "token", None), figure_request(_steps, source, "token"))
    known = [each for each in map(_threshold_of, entries) if each and (each.level == "token" or not source.with_rows)]
    yield from (figure_request(_effects, source, threshold) for threshold in known)


def _threshold_of(entry: Entry) -> Threshold | None:
    """The threshold whose effect distributions give in full; None if the entry needs token rows."""
    return entry.made if isinstance(entry.made, Threshold) else NOTHING if entry.text == "none" else None


def _outcome(source: OutcomeSource, entry: Entry, ledger: CorrectionResults | None) -> CorrectionOutcome:
    """The outcome of one entry over tokens, as far as it is known; over sequences only where no step has token rows."""
    threshold = _threshold_of(entry)
    if threshold is not None and (threshold.level == "token" or ledger is None or not source.with_rows):
        return _of_statistics(source, entry, threshold)
    assert ledger is not None
    return _of_rows(source, entry, ledger)


@dataclass(frozen=True)
class Outcomes:
    """The compared corrections in their order, as the cache key of a chart.

    Partial results of a job belong to no revision of the run, so the key has their digest.
    """

    source: OutcomeSource
    digest: bytes
    """Equal for equal outcomes."""
    each: tuple[CorrectionOutcome, ...] = field(compare=False)
    """One for each compared correction."""
    common: tuple[int, ...] = field(compare=False)
    """The steps that all of them have. One without any step does not limit them."""

    @property
    def fair(self) -> list[CorrectionOutcome]:
        """Those that can be ranked: over tokens, of the gap."""
        return [each for each in self.each if each.over == "tokens" and each.gap == self.source.gap and len(each.steps)]

    def rows(self) -> list[TableRow]:
        """A row of the table for each."""
        gap, rows = self.source.gap, []
        for each in self.each:
            size = int(each.at(self.common)["weights"].sum())
            over = count(size, each.unit) if size else "–"
            is_fair = each.over == "tokens" and each.gap == gap and each.entry.text != "none"
            rows.append(TableRow(each.entry.name, over, each.told, each.note, is_fair))
        return rows

    def numbers(self) -> pl.DataFrame:
        """A row for each, with the least possible values."""
        rows = []
        for each in self.each:
            values = each.told or {}
            found = {column.name: values[column.name].low for column in COLUMNS if column.name in values}
            rows.append(
                {"correction": each.entry.name, "over": each.over, "gap": each.gap, "from": each.source, **found}
            )
        return pl.DataFrame(rows, infer_schema_length=None)

    def over_steps(self, name: str) -> pl.DataFrame:
        """One value of all over the steps."""
        parts = [
            each.steps.select(
                "step", correction=pl.lit(each.entry.name), over=pl.lit(each.over), least=name, most=f"{name}_most"
            )
            for each in self.each
            if len(each.steps)
        ]
        return pl.concat(parts) if parts else pl.DataFrame(schema={"step": pl.Int64, "correction": pl.String})

    def advice(self, *, is_on: bool = True) -> Advice | None:
        """The best of them, in agreement with the run's verdict; None if they have no step in common.

        is_on: False if the run's own correction is set, but the record shows that it is not on.
        """
        view, name = self.source.view, f"{self.source.gap}/sequences"
        frame = view.metrics(gap=self.source.gap)
        if name not in frame.columns or not self.common:
            return None
        sizes = frame.select("step", sequences=pl.col(name).cast(pl.Float64))
        effects = {each.entry.name: each.at(self.common) for each in self.fair if each.entry.text != "none"}
        nothing = _outcome(self.source, Entry("none", "no correction", NOTHING), None)
        own = next((each.entry.name for each in self.fair if is_on and each.entry.text == IN_USE), "")
        return ranked(effects, nothing.at(self.common), sizes, view.verdict(), own)


def outcomes_of(source: OutcomeSource, entries: Sequence[Entry]) -> Outcomes:
    """The outcomes of these entries, as far as they are known."""
    results = [source.results(entry) for entry in entries]
    known = [_outcome(source, entry, own) for entry, own in zip(entries, results, strict=True)]
    sets = [set(each.steps["step"].to_list()) for each in known if len(each.steps)]
    common = sorted(set.intersection(*sets)) if sets else []
    digest = blake2b()
    for each in known:
        digest.update(f"{each.entry.text} {each.reason}".encode() + each.steps.hash_rows().to_numpy().tobytes())
    filled = (_filled(source, each, own, common) for each, own in zip(known, results, strict=True))
    return Outcomes(source, digest.digest(), tuple(filled), tuple(common))


def _of_statistics(source: OutcomeSource, entry: Entry, threshold: Threshold) -> CorrectionOutcome:
    steps = source.effects(threshold)
    over: Literal["tokens", "sequences"] = "tokens" if threshold.level == "token" else "sequences"
    gone = "removed_share" if over == "sequences" else None
    more = {f"removed_share_sequence{end}": steps[f"{gone}{end}"] if gone else pl.lit(nan) for end in ("", "_most")}
    reason = "" if len(steps) else f"no distribution of {source.gap} is on record"
    return CorrectionOutcome(entry, source.gap, over, "statistics", steps.with_columns(**more), reason=reason)


def _of_rows(source: OutcomeSource, entry: Entry, results: CorrectionResults) -> CorrectionOutcome:
    frame = results.ledger.frame(source.digests_of(results)).filter(pl.col("step").is_in(source.with_rows))
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


def _filled(
    source: OutcomeSource, each: CorrectionOutcome, results: CorrectionResults | None, common: Sequence[int]
) -> CorrectionOutcome:
    if not len(each.steps):
        return each
    if each.source == "statistics":
        threshold = each.entry.made if isinstance(each.entry.made, Threshold) else NOTHING
        part = source.histogram(threshold.level, common)
        whole = whole_effect(part, threshold)
        gone = whole["removed_share"] if each.over == "sequences" else Interval(nan, nan)
        left, removed = treated(part, threshold)
        share = removed / total if (total := int(part.counts.sum())) else nan
        whole = {**whole, "removed_share_sequence": gone}
        if threshold == NOTHING:  # weights of 1 add up to another sum than exact ones: no mass was taken away
            whole["mass_removed"] = Interval(nan, nan)
        return replace(each, whole=whole, before=part, left=left, removed=share)
    assert results is not None
    frame = results.ledger.frame(source.digests_of(results)).filter(
        pl.col("step").is_in(list(common)), pl.col("reason").is_null()
    )
    values = compared_values({name: np.array([frame[name].sum()], np.float64) for name in SUMS})
    whole = {name: Interval(float(value[0]), float(value[0])) for name, value in values.items()}
    left, before = merged_weights(frame), source.histogram("token", common)
    return replace(each, whole=whole, before=before, left=left, removed=whole["removed_share"].low)
