"""Two runs compared, and the result in words: whole runs, prompt by prompt, since which step, and settings that differ."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from ratioscope.errors import ConfigError, SourceError
from ratioscope.ingest.analysis.logged_comparison import LoggedNumbers, TwoRanges, logged_numbers
from ratioscope.ingest.analysis.run_comparison import (
    KEYS,
    PairedRuns,
    Parting,
    PromptKey,
    asked_gap,
    paired_runs,
    parting,
)
from ratioscope.ingest.analysis.setting_effects import ORDER, SettingEffect, setting_effects
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.comparison import Compared
from ratioscope.metrics.analysis.slice_parts import size_metric

from .comparison_words import SURE, compared_metrics, numbers_of, paired_sentence, sentence, settings_table, table_of
from .digits import count, digits
from .metric_places import names_at

GAPS = ("mismatch", "total", "drift")
FEW_PAIRS = 10
"""Pairs below which the whole runs decide. Convention."""
SURE_Z = 2.0
"""Standard errors of the pairs beyond which a change counts. Convention, as that of grading."""
NOT_COMPARED = "The gap is not compared, because no number of its size is in both runs; other numbers are."
NOTHING_IN_COMMON = "Nothing is compared, because A and B have no number in common."
NO_TOKENS = "Not paired by prompt, because a scalar log has no tokens."
ALL_STEPS = "all steps of each, where too few are in common"
MOST_NUMBERS = 15
"""Most numbers of logs in a short table."""
WORDS = {-1: "It helped", 0: "No clear change", 1: "It got worse"}


LAST = len(ORDER)
"""The place of settings of which nothing is known."""


@dataclass(frozen=True)
class DifferingSettings:
    """Settings that differ between run A and run B."""

    table: pl.DataFrame
    """Columns setting, A, B: those with a known effect first, the surest before the others."""
    effects: Mapping[str, SettingEffect]
    """Setting -> the knowledge of its effect; a setting of which nothing is known is absent."""
    is_judged: bool = True
    """False where a side has several runs: no effect is looked up."""

    @property
    def title(self) -> str:
        """The number of settings, and of those whose effect is known."""
        total = len(self.table)
        if not total:
            return "Settings that differ (0); more may differ than was recorded"
        if not self.is_judged:
            return f"Settings that differ ({total}):"
        known = len(self.effects)
        words = "none of them is known to act on the gap" if not known else f"{known} known to act on the gap, first"
        return f"Settings that differ ({total}); {words}:"

    def lines(self, most: int) -> list[tuple[str, str]]:
        """(setting, both values and what is known of its effect), at most so many."""
        return [
            (key, f"{one} → {other}" + (f": {self.effects[key].words}" if key in self.effects else ""))
            for key, one, other in self.table.head(most).rows()
        ]

    def plain(self) -> list[dict[str, Any]]:
        """The settings as values that JSON can hold."""
        return [
            {**row, "known": effect and effect.kind, "effect": effect and effect.words}
            for row in self.table.to_dicts()
            for effect in [self.effects.get(row["setting"])]
        ]


def differing_settings(a: Sequence[dict[str, object]], b: Sequence[dict[str, object]]) -> DifferingSettings:
    """The settings in which B differs from A. a, b: run.json of each run of the side."""
    table = settings_table(a, b)
    is_judged = len(a) == len(b) == 1
    effects = setting_effects(a[0], b[0], table["setting"].to_list()) if is_judged else {}
    rows = sorted(table.rows(), key=lambda row: effects[row[0]].place if row[0] in effects else LAST)
    return DifferingSettings(pl.DataFrame(rows, schema=table.schema, orient="row"), effects, is_judged)


@dataclass(frozen=True)
class Difference:
    """The comparison of run B with run A."""

    gap: str
    metrics: tuple[Compared, ...]
    pairs: PairedRuns | None
    """None if no two prompts are on record as the same."""
    parting: Parting | None
    """None if no two adjacent steps differ beyond chance."""
    settings: DifferingSettings
    logged: LoggedNumbers | None = None
    """The numbers that are compared where one of the runs is a scalar log; `metrics` are these."""

    @property
    def size(self) -> Compared | None:
        """The metric of the gap's size on both sides; None if a side lacks it."""
        return next((one for one in self.metrics if one.metric == self.judged), None)

    @property
    def judged(self) -> str:
        """The name of the metric, or of the trainer's number, for the size of the gap; empty for logs without one."""
        return size_metric(self.gap) if self.logged is None else self.logged.size(self.gap) or ""

    @property
    def table(self) -> pl.DataFrame:
        """The short table as text, judged over all metrics: those of cards, and of logs the first numbers."""
        every = table_of(self.metrics)
        return (
            every.head(MOST_NUMBERS)
            if self.logged
            else every.filter(pl.col("metric").is_in(names_at("card", self.gap)))
        )

    @property
    def direction(self) -> int:
        """-1 if the gap of B is smaller beyond chance, 1 if it is larger, else 0. Enough pairs decide, else the whole runs."""
        if self.pairs is not None and self.pairs.pairs.pairs >= FEW_PAIRS and math.isfinite(self.pairs.pairs.z):
            z = self.pairs.pairs.z
            return 0 if abs(z) < SURE_Z else -1 if z < 0 else 1
        return self.of_whole

    @property
    def of_whole(self) -> int:
        """The direction that the whole runs show, without pairs."""
        if self.size is None or not self.size.p < SURE:
            return 0
        return -1 if self.size.difference < 0 else 1


def common_gap(a: Run, b: Run, gap: str | None = None, *, asked: bool = True) -> str:
    """The gap, if both runs have it, else the first that both have. asked: a gap that both lack is a ConfigError.

    SourceError if the runs have no gap in common; a scalar log may have numbers that come close to one.
    """
    common = [name for name in GAPS if name in a.gaps and name in b.gaps]
    if asked and gap is not None and gap not in GAPS:
        both = [name for name in a.reading_gaps if name in b.reading_gaps]
        if gap not in both:
            lacking = " and ".join(run.name for run in (a, b) if gap not in run.reading_gaps)
            known = ", ".join((*common, *both)) or "no gap"
            raise ConfigError(
                f"--gap {gap}: {lacking} has no such reading; both runs have {known}; wanted one of these."
                " `ratioscope rescore RUN --model PATH` makes a reading"
            )
        return gap
    if asked and gap is not None and gap not in common:
        raise ConfigError(f"--gap {gap}: both runs have {', '.join(common) or 'no gap'}; wanted one of these")
    if not common and (a.no_tokens or b.no_tokens):
        return GAPS[0]
    if not common:
        raise SourceError("the two runs have no gap in common; wanted runs that record the same two policies")
    return gap if gap in common else common[0]


def difference(a: Run, b: Run, gap: str, pair_by: str | None = None) -> Difference:
    """The comparison of run B with run A on a gap that both have. pair_by: None tries every key that names a prompt."""
    key: PromptKey | None = next((name for name in KEYS if name == pair_by), None)
    if pair_by is not None and key is None:
        raise ConfigError(f"--pair-by {pair_by}: wanted one of {', '.join(KEYS)}")
    if a.no_tokens or b.no_tokens:
        return logged_difference(a, b, gap)
    return Difference(
        gap,
        tuple(compared_metrics([a.metrics(by=(), gap=asked_gap(gap))], [b.metrics(by=(), gap=asked_gap(gap))], gap)),
        paired_runs(a, b, gap, key),
        parting(a, b, gap),
        differing_settings([a.info], [b.info]),
    )


def logged_difference(a: Run, b: Run, gap: str, steps: TwoRanges = (None, None)) -> Difference:
    """The comparison where one of the runs is a scalar log. steps: those of A and of B; None for all."""
    logged = logged_numbers(a, b, steps)
    near = logged.near.get(logged.size(gap) or "", gap)
    settings = differing_settings([a.info], [b.info])
    return Difference(near.partition("/")[0], logged.compared, None, None, settings, logged)


def headline(compared: Difference) -> str:
    """The effect of the change from A to B, in one sentence."""
    if compared.logged is not None and not compared.judged:
        return NOT_COMPARED if compared.metrics else NOTHING_IN_COMMON
    by_whole = compared.of_whole == compared.direction
    whole = sentence(compared.metrics, compared.gap, compared.judged)
    return f"{WORDS[compared.direction]}: {whole if by_whole else pairs_in_words(compared)}"


def pairs_in_words(compared: Difference) -> str:
    pairs = compared.pairs
    if (logged := compared.logged) is not None:
        over = f"{count(logged.steps, 'step')} that both have" if logged.is_paired else ALL_STEPS
        return f"{NO_TOKENS} Values are means over {over}; errors come from the spread between blocks of steps, not from seeds."
    if pairs is None:
        return "Not paired: no two prompts of A and B are on record as the same; log prompt_texts or group_ids."
    return f"{paired_sentence(pairs.pairs, pairs.metric, pairs.key)} Partners have {pairs.caution}."


def parting_in_words(compared: Difference) -> str:
    if compared.logged is not None:
        return "Since which step A and B differ is not available, because a logged mean has no standard error."
    if compared.parting is None:
        return "On no two adjacent steps do A and B differ beyond chance."
    sizes = f"{digits(compared.parting.a)} in A, {digits(compared.parting.b)} in B"
    return f"Apart since step {compared.parting.step}, of {count(compared.parting.compared, 'common step')}: {sizes}."


def plain_difference(compared: Difference) -> dict[str, Any]:
    """The comparison as values that JSON can hold, without the names of the runs."""
    pairs = compared.pairs
    return {
        "sentence": headline(compared),
        "direction": {-1: "better", 0: "unclear", 1: "worse"}[compared.direction],
        "gap": compared.gap,
        "paired": None
        if pairs is None
        else {"key": pairs.key, "metric": pairs.metric, **asdict(pairs.pairs), "z": pairs.pairs.z},
        "first_apart": None if compared.parting is None else asdict(compared.parting),
        "settings": compared.settings.plain(),
        "metrics": numbers_of(compared.metrics).to_dicts(),
    }
