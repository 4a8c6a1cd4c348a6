"""The settings in which two runs differ, those first whose effect on the gap is known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ratioscope.ingest.analysis.setting_effects import ORDER, SettingEffect, setting_effects

from .comparison_words import settings_table

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
