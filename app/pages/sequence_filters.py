"""Filters of the sequences of a step; each is a choice in the URL."""

import math
from dataclasses import dataclass, field

import polars as pl

from ratioscope.errors import ConfigError

from ..presentation.digits import digits
from ..presentation.escape import visible
from ..presentation.metric_places import in_words, title_of
from .face import AtMostOne, Face, Number, Several, Text

CHOICES = {"finish": "finish_reason", "replica": "replica", "rank": "rank", "lag": "lag"}
"""Name in the URL -> the column whose values can be chosen."""
SIGNS = ("negative", "zero", "positive")


@dataclass(frozen=True)
class Filters:
    """The filters of the sequences of a step."""

    find: str = ""
    """Part of an id or group."""
    chosen: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Column -> the values that pass."""
    signs: tuple[str, ...] = ()
    """Signs of the reward that pass."""
    rewards: tuple[float, float] | None = None
    """Range of rewards that pass, both ends included."""
    column: str | None = None
    """Column that `least` and `most` bound."""
    least: float | None = None
    """The smallest value that passes; None: no bound."""
    most: float | None = None
    """The largest value that passes; None: no bound."""
    within: tuple[float, float] | None = None
    """Range in which a token of the sequence must have its log-ratio. The page looks that up in the tokens."""

    @property
    def words(self) -> list[str]:
        """One phrase per filter; unescaped."""
        phrases = [f"id or group contains '{self.find}'"] if self.find else []
        phrases += [f"{name.replace('_', ' ')} {' or '.join(values)}" for name, values in self.chosen.items() if values]
        phrases += [f"reward {' or '.join(self.signs)}"] if self.signs else []
        phrases += [f"reward {digits(self.rewards[0])} to {digits(self.rewards[1])}"] if self.rewards else []
        if self.column is not None:
            phrases += [f"{title_of(self.column)} ≥ {digits(self.least)}"] if self.least is not None else []
            phrases += [f"{title_of(self.column)} ≤ {digits(self.most)}"] if self.most is not None else []
        if self.within is not None:
            low, high = self.within
            phrases.append(f"with tokens of log-ratio {digits(low)} to {digits(high)}")
        return phrases

    def of(self, frame: pl.DataFrame, gap: str) -> pl.DataFrame:
        """The rows that pass all filters. A row with an unknown value passes only if its column is not filtered."""
        if self.find:
            text = self.find.lower()
            texts = [name for name in ("sequence_id", "group_id") if name in frame.columns]
            frame = frame.filter(
                pl.any_horizontal(
                    pl.col(name).str.to_lowercase().str.contains(text, literal=True).fill_null(False) for name in texts
                )
            )
        for name, values in self.chosen.items():
            if values:
                frame = frame.filter(pl.col(name).cast(pl.String).is_in(list(values)))
        if self.signs:
            sign = pl.col("reward").sign()
            frame = frame.filter(pl.any_horizontal(sign == SIGNS.index(name) - 1 for name in self.signs))
        if self.rewards is not None:
            frame = frame.filter(pl.col("reward").cast(pl.Float64).fill_nan(None).is_between(*self.rewards))
        return self._between(frame, gap)

    def _between(self, frame: pl.DataFrame, gap: str) -> pl.DataFrame:
        if self.column is None:
            return frame
        column = (
            pl.col(self.column if self.column in frame.columns else f"{gap}/{self.column}")
            .cast(pl.Float64)
            .fill_nan(None)
        )
        if self.least is not None:
            frame = frame.filter(column >= self.least)
        return frame if self.most is None else frame.filter(column <= self.most)


def asked_filters(face: Face, frame: pl.DataFrame, columns: list[str]) -> tuple[Filters, str]:
    """The reader's filters, and why one of them is not in force. A column that the step lacks is not asked for."""
    with face.row("filters"):
        find = face.ask(Text("find", "id or group contains"))
        typed = face.ask(Text("within", "with tokens of log-ratio", placeholder="from:to, such as :-2"))
        chosen = {
            column: _values(face, frame, key, column) for key, column in CHOICES.items() if _varies(frame, column)
        }
        signs, paid = [], ""
        if known(frame, "reward"):
            signs = face.ask(Several("sign", "reward", SIGNS, str, "pills"))
            paid = face.ask(Text("rewards", "reward within", placeholder="from:to, such as 0.5:1"))
    with face.row("bounds"):
        column = face.ask(AtMostOne("column", "only where", columns, "a column", in_words, 340))
        least = face.ask(Number("least", "is at least", None, None, format="%g", width=140))
        most = face.ask(Number("most", "and at most", None, None, format="%g", width=140))
    within, wrong = _range_or_why(typed)
    rewards, wrong_too = _range_or_why(paid, "rewards", ", such as 0:1, :0.5 or 1:1")
    return Filters(find, chosen, tuple(signs), rewards, column, least, most, within), wrong or wrong_too


def _range_or_why(*asked: str) -> tuple[tuple[float, float] | None, str]:
    try:
        return range_of(*asked), ""
    except ConfigError as error:
        return None, str(error)


def range_of(
    text: str, of: str = "log-ratios", such_as: str = " in nats, such as -5:-2, :-2 or 2:"
) -> tuple[float, float] | None:
    """Both ends, of which one may be left open. Only a range of rewards may be a single number.

    >>> range_of("-5:-2"), range_of(":-2"), range_of("2:"), range_of("")
    ((-5.0, -2.0), (-inf, -2.0), (2.0, inf), None)
    """
    if not text.strip():
        return None
    low, colon, high = text.partition(":")
    try:
        ends = float(low) if low.strip() else -math.inf, float(high) if high.strip() else math.inf
    except ValueError:
        colon = ""
        ends = 0.0, 0.0
    is_one = of == "rewards" and ends[0] == ends[1] and math.isfinite(ends[0])
    if not colon or math.isnan(ends[0] + ends[1]) and not math.isinf(ends[0]) or (ends[0] >= ends[1] and not is_one):
        raise ConfigError(f"{of} {text!r}: wanted from:to{such_as}")
    return ends


def _values(face: Face, frame: pl.DataFrame, key: str, column: str) -> tuple[str, ...]:
    values = [str(value) for value in frame[column].drop_nulls().unique().sort().to_list()]
    return tuple(face.ask(Several(key, column.replace("_", " "), values, visible, help="any", width=220)))


def known(frame: pl.DataFrame, column: str) -> bool:
    """True if a row has a value in the column."""
    return column in frame.columns and frame[column].null_count() < len(frame)


def _varies(frame: pl.DataFrame, column: str) -> bool:
    return known(frame, column) and frame[column].n_unique() > 1
