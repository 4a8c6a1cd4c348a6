"""Two runs compared by the numbers of each step, in words: for runs of which one is a scalar log and holds no tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.logged_comparison import LoggedDifference, logged_differences
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.comparison import holm
from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.metrics.definitions.registry import BY_NAME

from .comparison_words import SURE, times_higher
from .difference import GAPS, WORDS, common_gap
from .differing_settings import DifferingSettings, differing_settings
from .digits import count, digits, plus_minus


@dataclass(frozen=True)
class LoggedComparison:
    """The comparison of run B with run A by the numbers of their steps."""

    gap: str | None
    """The gap that both have a metric of; None without one."""
    numbers: tuple[LoggedDifference, ...]
    settings: DifferingSettings

    @property
    def size(self) -> LoggedDifference | None:
        """The number for the size of the gap: the usual metric, else the first number near a gap that grows with it."""
        usual = [f"{gap}/{size_metric(gap)}" for gap in ([self.gap] if self.gap else GAPS)]
        exact = (one for one in self.numbers if one.name in usual)
        return next(exact, next((one for one in self.numbers if _grows(one.near, self.gap)), None))

    @property
    def direction(self) -> int:
        """-1 if the gap of B is smaller beyond chance, 1 if it is larger, else 0."""
        return 0 if self.size is None or not self.size.p < SURE else -1 if self.size.difference < 0 else 1


def _grows(near: str, gap: str | None) -> bool:
    own, _, metric = near.partition("/")
    return bool(near) and gap in (own, None) and BY_NAME[metric].worse == "above" and BY_NAME[metric].neutral == 0


def logged_comparison(a: Run, b: Run, gap: str | None = None, pair_by: str | None = None) -> LoggedComparison:
    """The comparison of run B with run A. ConfigError for a gap that one of them lacks, and for a key of prompts."""
    if pair_by is not None:
        lacking = next(run for run in (a, b) if run.no_tokens)
        raise ConfigError(
            f"--pair-by {pair_by}: {lacking.name} has no prompts, because {lacking.no_tokens}; leave it out"
        )
    has_one = any(name in a.gaps and name in b.gaps for name in GAPS)
    chosen = common_gap(a, b, gap) if gap is not None or has_one else None
    return LoggedComparison(chosen, logged_differences(a, b), differing_settings(a.info, b.info))


def logged_headline(compared: LoggedComparison) -> str:
    """The effect of the change from A to B, in one sentence."""
    size = compared.size
    if not compared.numbers:
        return "Not compared: A and B have no number in common."
    if size is None:
        return "The gap is not compared, because no number of its size is in both runs; other numbers are."
    sides = f"{digits(size.b)} against A's {digits(size.a)}, {_steps(size)}"
    if size.difference == 0:
        return f"{WORDS[0]}: A and B have the same {size.name}: {sides}."
    if size.p != size.p:
        return f"{WORDS[0]}: B's {size.name} is {sides}; chance cannot be judged from so few steps."
    if size.p >= SURE:
        return f"{WORDS[0]}: B's {size.name} is {sides} (z = {digits(size.z, 2)}, which chance alone explains)."
    times = times_higher(size.ratio, size.difference)
    return f"{WORDS[compared.direction]}: B's {size.name} is {times}: {sides} ({_apart(size)})."


def _apart(size: LoggedDifference) -> str:
    return f"z = {digits(size.z, 2)}" if size.error else "without any spread"


def _steps(one: LoggedDifference) -> str:
    if one.is_paired:
        return f"means over {count(one.steps, 'step')} that both have"
    return f"means over all steps, of which both have too few in common: {count(one.steps, 'step')} or more of each"


def errors_in_words(compared: LoggedComparison) -> str:
    """The errors of the comparison: their source, and what they leave out."""
    if not compared.numbers:
        return ""
    return (
        "A logged mean has no standard error: errors come from the spread between blocks of steps, and not from seeds."
        " Since which step they are apart is not available."
    )


def logged_table(compared: LoggedComparison, most: int | None = None) -> pl.DataFrame:
    """One row per number, as text, at most so many. Significance is judged over all numbers together (Holm)."""
    rows = [
        (
            one.name,
            digits(one.a),
            digits(one.b),
            plus_minus(one.difference, one.error),
            digits(one.ratio),
            digits(one.z, 2),
            _result(one, chance),
            one.near if one.near != one.name else "",
        )
        for one, chance in zip(compared.numbers, _judged(compared.numbers), strict=True)
    ]
    names = ("number", "A", "B", "B − A", "B / A", "z", "result", "comes near")
    table = pl.DataFrame(rows[:most], schema=dict.fromkeys(names, pl.String), orient="row")
    return table if any(table[names[-1]]) else table.drop(names[-1])


def _judged(numbers: Sequence[LoggedDifference]) -> list[float]:
    return holm([one.p for one in numbers])


def _result(one: LoggedDifference, chance: float) -> str:
    if one.difference == 0:
        return "the same"
    return "no standard error" if chance != chance else "differs" if chance < SURE else "may be chance"


def plain_logged(compared: LoggedComparison) -> dict[str, Any]:
    """The comparison as values that JSON can hold, with the members that other comparisons have."""
    rows: list[dict[str, Any]] = [
        {
            "name": one.name, "near": one.near or None, "steps": one.steps, "is_paired": one.is_paired, "a": one.a, "b": one.b,
            "difference": one.difference, **{name: _known(getattr(one, name)) for name in ("error", "ratio", "z", "p")},
            "p_adjusted": _known(chance),
        }
        for one, chance in zip(compared.numbers, _judged(compared.numbers), strict=True)
    ]  # fmt: skip
    unknown = {"a_error": None, "a_runs": 1, "b_error": None, "b_runs": 1}
    own = [row for row in rows if compared.gap and row["name"].startswith(f"{compared.gap}/")]
    return {
        "sentence": logged_headline(compared),
        "direction": {-1: "better", 0: "unclear", 1: "worse"}[compared.direction],
        "gap": compared.gap,
        "paired": None,
        "first_apart": None,
        "settings": compared.settings.plain(),
        "metrics": [{"metric": row["name"].partition("/")[2], **row, **unknown} for row in own],
        "logged": rows,
    }


def _known(value: float) -> float | None:
    return value if value == value else None
