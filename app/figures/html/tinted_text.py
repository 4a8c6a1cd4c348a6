"""A response as HTML, each token tinted by a value on a fixed scale, with all facts about it on hover.

The tint has fixed steps, so that two sequences can be compared by eye: orange where the later policy finds the token less
likely, blue where it finds it more likely, purple for values without a side. Not by colour alone: a thick underline is a
confident disagreement, hatching a weight outside the chosen band, a dotted line under muted text a token outside the mask.
No script: the hover is CSS (an anchored ::after), and so is the scrolling to a token; the same HTML serves the page, the
report and a notebook.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.metrics.analysis.token_values import (
    BY_NAME,
    PROBABLE,
    TokenValue,
    confident_disagreement,
    log_ratio,
    step_of,
)
from ratioscope.record import sides

from ...presentation.digits import digits, percent
from ...presentation.escape import html as escaped
from ...presentation.gap_words import gaps_in, sides_in
from ...presentation.theme import LIGHT, Theme
from ..drawing.floats import floats
from .tinted_style import style

LONGEST = 200
"""Characters of one token's text that are shown."""
BEFORE = 12
"""Tokens in sight before the chosen one: they fit the frame even where each ends a line."""
LEAST_PART = 4
"""Tokens that make a part of a turn with a border of its own."""


@dataclass(frozen=True)
class WeightBand:
    """Weights outside [low, high) are hatched."""

    low: float = 0.0
    high: float = math.inf

    def holds(self, weight: float) -> bool:
        return math.isnan(weight) or self.low <= weight < self.high

    @property
    def words(self) -> str:
        """
        >>> WeightBand(0.8, 1.2).words, WeightBand(high=2).words
        ('0.8 to 1.2', '0 to 2')
        """
        return f"{digits(self.low)} to {digits(self.high)}"


OPEN = WeightBand()


def token_text(
    tokens: pl.DataFrame,
    gap: str,
    *,
    theme: Theme = LIGHT,
    legend: bool = True,
    styled: bool = True,
    by: str = "log_ratio",
    band: WeightBand = OPEN,
    at: int | None = None,
) -> str:
    """One element holding the text of `tokens` (a frame with a row per token, see Run.sequence), tinted by a value of the gap.

    Tokens without text show their ids, or their positions if ids are missing too. by: a name of token_values.VALUES.
    at: the position of a token that is marked, and to which the text is scrolled when it appears. styled: False for a document
    that has the style already.
    """
    value = BY_NAME[by]
    earlier, x, values = token_values(tokens, gap, value)
    confident = confident_disagreement(earlier, x).tolist()
    rows = zip(tokens.iter_rows(named=True), values.tolist(), x.tolist(), confident, strict=True)
    begins = borders(tokens)
    body = "".join(
        f"{_border(begins.get(place, ''))}{_token(row, tint(value, by), ratio, sure, band, at)}"
        for place, (row, value, ratio, sure) in enumerate(rows)
    )
    scale = _legend(gap, value, band) if legend else ""
    own = f"<style>{style(theme)}</style>" if styled else ""
    return f'<div class="rs-{theme.name}">{own}{scale}<div class="rs-text">{body}</div></div>'


def tint(value: float | None, by: str = "log_ratio") -> str:
    """The tint's class: l(ess), m(ore) or a(bsolute), and its step from 0 (weakest) to 6; empty below the first step.

    >>> tint(-0.3), tint(0.04), tint(float("inf")), tint(None), tint(0.5, "weight"), tint(0.6, "kl_k3")
    ('l2', '', 'm6', 'u', 'l4', 'a4')
    """
    if value is None or math.isnan(value):
        return "u"
    scale = BY_NAME[by]
    if by == "weight":
        side, size = ("l", 1 / value if value > 0 else math.inf) if value < 1 else ("m", value)
    else:
        side, size = ("l" if value < 0 else "m") if scale.two_sided else "a", abs(value)
    step = step_of(scale, size)
    return f"{side}{step}" if step >= 0 else ""


def borders(tokens: pl.DataFrame) -> dict[int, str]:
    """Row -> what begins there: a turn, and who wrote it. Empty for a response of one turn.

    Tokens outside the mask were not sampled: a tool or a user wrote them. A few of them do not make a part of their own.
    """
    if "turn" not in tokens.columns or tokens["turn"].n_unique() < 2:
        return {}
    turns = tokens["turn"].fill_null(-1).to_numpy()
    masked = ~tokens["mask"].fill_null(True).to_numpy() if "mask" in tokens.columns else np.zeros(len(turns), np.bool_)
    edges = np.flatnonzero((np.diff(turns) != 0) | (np.diff(masked.astype(np.int8)) != 0)) + 1
    marks: dict[int, str] = {}
    before = None
    for first, last in pairwise([0, *edges.tolist(), len(turns)]):
        here = int(turns[first]), bool(masked[first])
        same_turn = before is not None and before[0] == here[0]
        if here == before or (same_turn and last - first < LEAST_PART):
            continue
        marks[first], before = _part_words(*here), here
    return marks


def _part_words(turn: int, masked: bool) -> str:
    who = "not sampled: tool, user or template" if masked else "policy"
    return who if turn < 0 else f"turn {turn} · {who}"


def _border(words: str) -> str:
    return f"<h6>{escaped(words)}</h6>" if words else ""


def token_values(tokens: pl.DataFrame, gap: str, value: TokenValue) -> tuple[Floats, Floats, Floats]:
    """(earlier log-prob, log-ratio, value) of each token; NaN where the gap is not known."""

    x = floats(tokens, gap)
    known = np.where(np.isnan(x), np.nan, 0.0)
    earlier, later = (floats(tokens, f"{policy}_logprob") + known for policy in sides(gap))
    return earlier, x, x if value.of is log_ratio else value.of(earlier, later)


def _token(row: dict[str, object], tinted: str, ratio: float, sure: bool, band: WeightBand, at: int | None) -> str:
    text, broken = _text(row)
    masked = row.get("mask") is False
    dropped = row.get("loss_mask") is False and not masked
    outside = not masked and not band.holds(_exp(ratio))
    sure = sure and not masked
    flags = (("d", dropped), ("c", sure), ("o", outside), *_chosen(row["position"], at))
    names = " ".join(filter(None, ("x" if masked else tinted, *(name for name, on in flags if on))))
    facts = "&#10;".join(escaped(line) for line in (*_fact_lines(row), *_judged(sure, band if outside else None)))
    return f'<i class="{names}" data-h="{facts}">{text}</i>{"<br>" if broken else ""}'


def _chosen(position: object, at: int | None) -> Iterator[tuple[str, bool]]:
    """Classes and whether the token has them: "t" for the chosen token, "s" for a token a little before it, the scroll target."""
    if at is not None:
        yield "t", position == at
        yield "s", position == max(0, at - BEFORE)


def _judged(sure: bool, outside: WeightBand | None) -> Iterator[str]:
    """The reasons why the token is underlined or hatched."""
    if sure:
        yield f"confident disagreement: earlier at least {percent(PROBABLE)}, later over 2 nats lower"
    if outside is not None:
        yield f"weight outside {outside.words}"


def _text(row: dict[str, object]) -> tuple[str, bool]:
    """The shown text of the token, escaped, and True if the line breaks after it."""
    text = row.get("token_text")
    if text is not None:
        raw = str(text)
        return escaped(raw, LONGEST) or "∅", raw.endswith("\n")
    token = row.get("token_id")
    return (f"{token} " if token is not None else f"#{row['position']} "), False


def _fact_lines(row: dict[str, object]) -> Iterator[str]:
    token = "" if row.get("token_id") is None else f" · id {row['token_id']}"
    text = "" if row.get("token_text") is None else f" · '{str(row['token_text'])[:40]}'"
    yield f"position {row['position']}{token}{text}"
    for policy in sides_in(row):
        logprob = _number(row, f"{policy}_logprob")
        if logprob is not None:
            yield f"{policy} {digits(logprob)} nats · {percent(_exp(logprob))}"
    for gap in gaps_in(row):
        ratio = _number(row, gap)
        if ratio is not None:
            yield f"{gap} x {_signed(ratio)} · weight {digits(_exp(ratio))}{_moved(row, gap)}"
    for name in ("entropy", "advantage", "turn"):
        value = _number(row, name)
        if value is not None:
            yield f"{name} {digits(value)}{' nats' if name == 'entropy' else ''}"
    yield from _version(row)
    if row.get("mask") is False:
        yield "masked: not sampled by the policy"
    elif row.get("loss_mask") is False:
        yield "not in the loss: filtered or rejected"


def _moved(row: dict[str, object], gap: str) -> str:
    """The difference of the two probabilities of the gap, in percentage points."""
    earlier, later = (_number(row, f"{policy}_logprob") for policy in sides(gap))
    if earlier is None or later is None:
        return ""
    return f" · {_signed(100 * (_exp(later) - _exp(earlier)))} percentage points"


def _version(row: dict[str, object]) -> Iterator[str]:
    """The weights that sampled the token, and how many versions they lag behind the trainer's."""
    sampled, trainer = _number(row, "rollout_version"), _number(row, "trainer_version")
    if sampled is None:
        sampled = _number(row, "rollout_version_min")
    if sampled is not None:
        lag = "" if trainer is None else f" · lag {int(trainer - sampled)}"
        yield f"rollout version {int(sampled)}{lag}"


def _number(row: dict[str, object], name: str) -> float | None:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else None


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _signed(value: float) -> str:
    return f"+{digits(value)}" if value > 0 else digits(value)


def _legend(gap: str, value: TokenValue, band: WeightBand) -> str:
    """The scale with the size from which each tint is used, and what is said by other means than colour."""
    earlier, later = sides(gap)
    if value.two_sided:
        left, right = f"{later} less likely than {earlier}", "more likely"
        cells = [_cell("l", step, value) for step in reversed(range(len(value.steps)))]
        cells += ['<i class="z"></i>', *(_cell("m", step, value) for step in range(len(value.steps)))]
    else:
        left, right = "little", "much"
        cells = [_cell("a", step, value) for step in range(len(value.steps))]
    unit = f", {value.unit}" if value.unit != "1" else ""
    formula = value.formula.replace("later", later).replace("earlier", earlier)
    marks = ['<span><i class="x">masked</i></span>', '<span><i class="c">confident disagreement</i></span>']
    if band != OPEN:
        marks.append(f'<span><i class="o">&nbsp;&nbsp;&nbsp;</i> weight outside {band.words}</span>')
    return (
        f'<div class="rs-legend"><span>{left}</span><b>{"".join(cells)}</b><span>{right}</span>'
        f"<span>colour: {formula}{unit}; a swatch begins at the number on it</span>{''.join(marks)}</div>"
    )


def _cell(side: str, step: int, value: TokenValue) -> str:
    size = value.steps[step]
    shown = 1 / size if side == "l" and value.name == "weight" else size
    return f'<i class="{side}{step}">{digits(shown)}</i>'
