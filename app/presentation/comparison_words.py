"""A comparison in words and tables: one sentence, the metrics side by side, and the settings that differ."""

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

import polars as pl

from ratioscope.ingest.analysis.run_settings import by_part, settings
from ratioscope.metrics.analysis.comparison import Compared, Estimate, Paired, holm, over_runs
from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.metrics.definitions.registry import BY_NAME, METRICS
from ratioscope.metrics.frame import value_in

from .digits import count, digits, plus_minus
from .metric_places import names_at
from .run_names import told_apart
from .value_text import bound, value_words

SURE = 0.05
"""Adjusted p-value below which a difference is reported."""
UNITS = {metric.name: "" if metric.unit == "1" else f" {metric.unit}" for metric in METRICS}
"""Metric -> its unit, to follow a value. A number of a trainer's own has none."""
MANY, UNSET = " | ", "unset"
FEW_SETTINGS = 3
"""Most settings in a sentence; a table lists all."""
VALUE_ROOM = 60
"""Most characters of a value there."""
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")
_DECIMALS = range(-7, 16)
"""Powers of ten of numbers that are written without an exponent."""
_DIGITS = 12
"""Digits of a number that was computed: 3.0000000000000001e-06 was meant to be 0.000003."""


def compared_metrics(a: Sequence[pl.DataFrame], b: Sequence[pl.DataFrame], gap: str) -> list[Compared]:
    """Every metric of the gap that both sides have, the headline ones first. a, b: the runs' metric frames, one row each."""
    names = dict.fromkeys((*names_at("card", gap), *(metric.name for metric in METRICS if metric.is_of(gap))))
    comparisons = [Compared(name, _side(a, f"{gap}/{name}"), _side(b, f"{gap}/{name}")) for name in names]
    known = [one for one in comparisons if one.a.known and one.b.known]
    return sorted(known, key=lambda one: one.a.value == 0 == one.b.value)  # metrics that are 0 on both sides come last


def table_of(comparisons: Sequence[Compared]) -> pl.DataFrame:
    """One row per metric, as text. Significance is judged over all rows together (Holm)."""
    chances = _judged(comparisons)
    rows = [
        (
            one.metric,
            estimate_words(one.metric, one.a),
            estimate_words(one.metric, one.b),
            plus_minus(one.difference, one.error)
            if math.isfinite(one.error)
            else _bounded(one, digits(one.difference)),
            _bounded(one, digits(one.ratio)),
            digits(math.nan if _is_count(one) else one.z, 2),
            _reading(one, chance),
        )
        for one, chance in zip(comparisons, chances, strict=True)
    ]
    columns = {
        "metric": pl.String, "A": pl.String, "B": pl.String, "B − A": pl.String, "B / A": pl.String, "z": pl.String,
        "result": pl.String,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=columns, orient="row")


def titled(table: pl.DataFrame) -> pl.DataFrame:
    """The table with the metrics' titles in words; their names for commands and code stand last."""
    titles = [title_of(name) for name in table["metric"]]
    return table.with_columns(pl.Series("metric", titles, pl.String), name=pl.col("metric"))


def numbers_of(comparisons: Sequence[Compared]) -> pl.DataFrame:
    """The same as numbers, null if not available."""
    chances = _judged(comparisons)
    rows = [
        {
            "metric": one.metric, "a": one.a.value, "a_error": one.a.error, "a_runs": one.a.runs, "b": one.b.value,
            "b_error": one.b.error, "b_runs": one.b.runs, "difference": one.difference, "error": one.error,
            "ratio": one.ratio, "z": one.z, "p": one.p, "p_adjusted": chance,
        }
        for one, chance in zip(comparisons, chances, strict=True)
    ]  # fmt: skip
    frame = pl.DataFrame(
        rows,
        schema_overrides=dict.fromkeys(("a_error", "b_error", "error", "ratio", "z", "p", "p_adjusted"), pl.Float64),
    )
    return frame.fill_nan(None) if len(frame) else frame


def sentence(comparisons: Sequence[Compared], gap: str, name: str = "") -> str:
    """The headline metric in words: the size and direction of the difference, and its significance. Plain text.

    name: of the metric, or of the trainer's number; the size of the gap unless given.
    """
    own = next((one for one in comparisons if one.metric == (name or size_metric(gap))), None)
    if own is None:
        why = "the difference B − A is not available" if comparisons else f"they have no metric of {gap} in common"
        return f"A and B cannot be compared by {BY_NAME[size_metric(gap)].title}: {why}."
    metric, name, unit = own.metric, title_of(own.metric), UNITS.get(own.metric, "")
    sides = f"{estimate_words(metric, own.b)}{unit} against A's {estimate_words(metric, own.a)}{unit}"
    if own.difference == 0:
        return f"A and B have the same {name}: {estimate_words(metric, own.a)}{unit}."
    if metric == size_metric(gap) and 0 in (own.a.value, own.b.value):
        equal, other, value = ("A", "B", own.b) if own.a.value == 0 else ("B", "A", own.a)
        return (
            f"{equal}'s two sides are equal at every token, as copies and aligned stacks are; {other}'s {name} is "
            f"{estimate_words(metric, value)}{unit}."
        )
    if math.isnan(own.z):
        return f"B's {name} is {sides}; chance cannot be judged without standard errors on both sides."
    apart = f"z = {digits(own.z, 2)}"
    if own.p >= SURE:
        return f"A and B cannot be told apart by {name}: B's is {sides} ({apart}, which chance alone explains)."
    sure = "is" if own.p < SURE / 10 else "may be"
    hedge = "" if own.p < SURE / 10 else f"; chance alone gives as much in 1 of {digits(1 / own.p, 2)} comparisons"
    return f"B's {name} {sure} {_times(own)}: {sides} ({apart}{hedge})."


def paired_sentence(pairs: Paired, metric: str, partner: str) -> str:
    """The result of the pairs in words."""
    unit = UNITS[metric]
    left = f"{count(pairs.only_a)} of A and {count(pairs.only_b)} of B have no partner"
    if not pairs.pairs:
        return f"Nothing can be paired by {partner}: {left}."
    mean = f"B − A = {plus_minus(pairs.difference, pairs.error)}{unit} over {count(pairs.pairs, 'pair')}"
    if math.isnan(pairs.z):
        return (
            f"{mean}; {'no difference in any pair' if pairs.difference == 0 else 'too few pairs for an error'}. {left}."
        )
    verdict = "beyond chance" if abs(pairs.z) >= 3 else "hardly beyond chance" if abs(pairs.z) >= 2 else "within chance"
    return f"Pair by pair, {mean} (z = {digits(pairs.z, 2)}, {verdict}); {left}."


def settings_table(a: Sequence[dict[str, object]], b: Sequence[dict[str, object]]) -> pl.DataFrame:
    """The keys that differ between A and B, or among the runs of a side: the code first, keys of one side alone last.

    a, b: run.json of each run. A number is the same however it is written.
    """
    of_a, of_b = ([plain_numbers(settings(info)) for info in infos] for infos in (a, b))
    one, other, every = _merged(of_a), _merged(of_b), (*of_a, *of_b)
    keys = sorted(
        {key for side in every for key in side}, key=lambda key: (key not in one or key not in other, by_part(key))
    )
    rows = [
        (key, one.get(key, UNSET), other.get(key, UNSET)) for key in keys if len({side.get(key) for side in every}) > 1
    ]
    return pl.DataFrame(rows, schema={"setting": pl.String, "A": pl.String, "B": pl.String}, orient="row")


def few_settings(rows: Sequence[tuple[str, str, str]]) -> str:
    """The first of the settings that differ, and the number of the others. rows: those of a settings table."""
    if not rows:
        return "none on record differs"
    shown = "; ".join(f"{key} {' → '.join(told_apart(values, VALUE_ROOM))}" for key, *values in rows[:FEW_SETTINGS])
    more = len(rows) - FEW_SETTINGS
    return f"{shown}; and {more:,} more" if more > 0 else shown


def _side(frames: Sequence[pl.DataFrame], column: str) -> Estimate:
    return over_runs([_estimate(frame, column) for frame in frames])


def _estimate(frame: pl.DataFrame, column: str) -> Estimate:
    value, error = (value_in(frame, name) for name in (column, f"{column}_se"))
    return Estimate() if value is None else Estimate(value, math.nan if error is None else error, 1)


def _judged(comparisons: Sequence[Compared]) -> list[float]:
    return holm([math.nan if _is_count(one) else one.p for one in comparisons])


def title_of(metric: str) -> str:
    """The title of a metric; the name of a trainer's own number."""
    return BY_NAME[metric].title if metric in BY_NAME else metric


def estimate_words(metric: str, estimate: Estimate) -> str:
    """The value of a metric with its error or as a bound; a trainer's own number, or a mean over steps, as it is."""
    known = metric in BY_NAME
    return value_words(metric, estimate.value, estimate.error) if known else digits(estimate.value)


def _bounded(one: Compared, shown: str) -> str:
    """Prefixes a difference or ratio of a metric with ≥ or ≤ if an operand is only a bound.

    A bound on B carries over; a bound on A is reversed; with two bounds the result is unknown (–).
    """
    if one.metric not in BY_NAME:
        return shown
    a, b = (
        bound(BY_NAME[one.metric], each.value, None if math.isnan(each.error) else each.error).strip()
        for each in (one.a, one.b)
    )
    if shown == "–" or not (a or b):
        return shown
    return "–" if a and b else f"{b or {'≥': '≤', '≤': '≥'}[a]} {shown}"


def _is_count(one: Compared) -> bool:
    return one.metric in BY_NAME and BY_NAME[one.metric].kind == "count"


def _reading(one: Compared, chance: float) -> str:
    if _is_count(one):
        return "a count"
    if one.difference == 0:
        return "the same"
    if math.isnan(chance):
        is_bound = one.metric in BY_NAME and BY_NAME[one.metric].bound
        return "only bounds known" if is_bound else "no standard error"
    return "differs" if chance < SURE else "may be chance"


def _times(one: Compared) -> str:
    """The difference of B from A: a factor, a percentage if it is small, or a plain difference if the signs forbid both."""
    if math.isnan(one.ratio):
        return f"{digits(abs(one.difference), 2)} {'higher' if one.difference > 0 else 'lower'}"
    word = "higher" if one.ratio > 1 else "lower"
    larger = max(one.ratio, 1 / one.ratio)
    return f"{digits(larger, 2)} times {word}" if larger >= 1.5 else f"{digits(100 * abs(one.ratio - 1), 2)}% {word}"


def _merged(of_runs: Sequence[dict[str, str]]) -> dict[str, str]:
    """Settings of several runs as one: all values of a setting that differs, or the range of many numbers."""
    keys = dict.fromkeys(key for own in of_runs for key in own)
    return {key: _all_of([*dict.fromkeys(own.get(key, UNSET) for own in of_runs)]) for key in keys}


def _all_of(values: Sequence[str]) -> str:
    if len(values) > FEW_SETTINGS and all(map(_NUMBER.fullmatch, values)):
        return f"{min(values, key=float)} to {max(values, key=float)}, {len(values)} values"
    return MANY.join(values)


def plain_numbers(known: Mapping[str, str]) -> dict[str, str]:
    """The settings by dotted key, with each number of the configuration in its one form. A version such as 2.10 is no number."""
    return {key: plain_number(value) if key.startswith("config.") else value for key, value in known.items()}


def plain_number(value: str) -> str:
    """A number without an exponent, unless it is very large or small, and without digits of rounding; other text as it is.

    >>> plain_number("1e-06"), plain_number("1e-6"), plain_number("2.9999999999999997e-06"), plain_number("1.50")
    ('0.000001', '0.000001', '0.000003', '1.5')
    >>> plain_number("123456789012345678"), plain_number("1e-30"), plain_number("1e400"), plain_number("0x10")
    ('123456789012345678', '1e-30', '1e400', '0x10')
    """
    if not _NUMBER.fullmatch(value) or not math.isfinite(number := float(value)) or value.lstrip("-+").isdecimal():
        return value
    short = Decimal(f"{number:.{_DIGITS}g}")
    return f"{short.normalize():f}" if short.adjusted() in _DECIMALS or not short else f"{number:.{_DIGITS}g}"
