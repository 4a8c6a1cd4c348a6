"""A response as HTML, each token tinted by a value on a fixed scale, with all facts about it on hover.

The tint has fixed steps, so that two sequences can be compared by eye: orange where the later policy finds the token less
likely, blue where it finds it more likely, purple for values without a side. Not by colour alone: a thick underline is a
confident disagreement, hatching a weight outside the chosen band, a dotted line under muted text a token outside the mask.
No script: the hover is CSS (an anchored ::after), and so is the scrolling to a token; the same HTML serves the page, the
report and a notebook.
The style sheet of tinted tokens: the tints on their scale, the frame, the hover and the legend.
"""

import math
from collections.abc import Iterator, Mapping
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
from ...presentation.theme import CODE_FONT, FONT, LIGHT, READABLE, Theme, channels, contrast, faded
from ..drawing.floats import floats
from .fact_cards import hover_box

LONGEST = 200
"""Characters of one token's text that are shown."""
BEFORE = 12
"""Tokens in sight before the chosen one: they fit the frame even where each ends a line."""
LEAST_PART = 4
"""Tokens that make a part of a turn with a border of its own."""

OPACITIES = (0.07, 0.13, 0.2, 0.3, 0.42, 0.56, 0.72)
"""Opacity of the tint at each step of the scale."""
TALLEST = 460
"""Pixels of text shown before it scrolls in its own frame, so that the chart under it stays in reach."""


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
    heads: Mapping[int, str] | None = None,
    faint: int = 0,
) -> str:
    """One element holding the text of `tokens` (a frame with a row per token, see Run.sequence), tinted by a value of the gap.

    Tokens without text show their ids, or their positions if ids are missing too. by: a name of token_values.VALUES.
    at: the position of a token that is marked, and to which the text is scrolled when it appears. styled: False for a document
    that has the style already. heads: row -> words over what begins there; None for `borders`. faint: the tokens before this
    position stand back.
    """
    value = BY_NAME[by]
    earlier, x, values = token_values(tokens, gap, value)
    confident = confident_disagreement(earlier, x).tolist()
    rows = zip(tokens.iter_rows(named=True), values.tolist(), x.tolist(), confident, strict=True)
    begins = borders(tokens) if heads is None else heads
    body = "".join(
        f"{_border(begins.get(place, ''))}{_token(row, tint(value, by), ratio, sure, band, at, faint)}"
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


def _token(
    row: dict[str, object], tinted: str, ratio: float, sure: bool, band: WeightBand, at: int | None, faint: int
) -> str:
    text, broken = _text(row)
    masked = row.get("mask") is False
    dropped = row.get("loss_mask") is False and not masked
    outside = not masked and not band.holds(_exp(ratio))
    sure = sure and not masked
    flags = (
        ("d", dropped),
        ("c", sure),
        ("o", outside),
        ("f", int(str(row["position"])) < faint),
        *_chosen(row["position"], at),
    )
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
    sampled, trainer = _number(row, "rollout_version"), _number(row, "trainer_version")
    if sampled is None:
        sampled = _number(row, "rollout_version_min")
    if sampled is not None:
        lag = "" if trainer is None else f" · lag {int(trainer - sampled)}"
        yield f"rollout version {int(sampled)}{lag}"
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


def style(theme: Theme) -> str:
    """The rules, all below the theme's own class, so that both appearances can stand in one document."""
    root = f".rs-{theme.name}"
    tints = "".join(
        f"{root} .{side}{step}{{background:{faded(colour, opacity)}{_ink(colour, opacity, theme)}}}"
        for side, colour in (("l", theme.less), ("m", theme.more), ("a", theme.gaps["drift"]))
        for step, opacity in enumerate(OPACITIES)
    )
    rules = f"""
{{color:{theme.text};font:13px/1.75 {CODE_FONT}}}
 i{{font-style:normal}}
 .rs-text{{white-space:pre-wrap;overflow-wrap:anywhere;max-height:{TALLEST}px;overflow-y:auto}}
 .rs-text h6{{margin:10px 0 4px;padding:3px 0 0;border-top:1px solid {theme.border};font:500 11.5px/1.5 {FONT};\
color:{theme.muted};white-space:normal}}
 .rs-text h6:first-child{{margin-top:0}}
 .rs-text i{{border-radius:2px;padding:1px 0;margin-right:1px}}
 i.x{{color:{theme.muted};border-bottom:1px dotted {theme.muted};border-radius:0}}
 i.u{{outline:1px dashed {theme.border};outline-offset:-1px}}
 .rs-text i.d{{text-decoration:line-through {theme.muted} 1px}}
 i.c{{border-bottom:2.5px solid {theme.text};border-radius:2px 2px 0 0}}
 .rs-text i.f{{opacity:.45}}
 .rs-text i.t{{outline:2px solid {theme.primary};outline-offset:0}}
 .rs-text i.s{{display:inline-block;scroll-initial-target:nearest}}
 .rs-text i:hover{{outline:1px solid {theme.text};outline-offset:-1px;position:relative;anchor-name:--rs}}
 .rs-text i:hover::after{{content:attr(data-h);position:absolute;left:0;top:1.7em;width:max-content;\
max-width:22rem;white-space:pre-wrap;{hover_box(theme)}}}
 .rs-legend{{display:flex;flex-wrap:wrap;align-items:center;gap:2px 10px;font:11.5px/1.6 {FONT};color:{theme.muted};\
margin-bottom:10px}}
 .rs-legend b{{display:inline-flex;font-weight:400}}
 .rs-legend b i{{min-width:19px;padding:0 2px;font-size:9.5px;line-height:15px;text-align:center;color:{theme.text};\
display:inline-block}}
 .rs-legend b i.z{{min-width:9px;border:solid {theme.border};border-width:0 1px}}"""
    hatch = f"repeating-linear-gradient(135deg,{faded(theme.text, 0.2)} 0 1px,transparent 1px 5px)"
    hatched = f"{root} i.o{{background-image:{hatch}}}"
    anchored = (
        f"@supports (position-try-fallbacks:flip-inline){{{root} .rs-text i:hover{{position:static}}"
        f"{root} .rs-text i:hover::after{{position:fixed;position-anchor:--rs;left:anchor(left);top:anchor(bottom);"
        "margin:4px 0;position-try-fallbacks:flip-inline,flip-block,flip-inline flip-block}}"
        f"@media (max-width:640px){{{root} .rs-text i:hover::after{{left:12px;right:12px;width:auto;max-width:none}}}}"
    )
    lines = rules.replace("\\\n", "").strip("\n").split("\n")
    return "".join(f"{root}{line}" for line in lines) + tints + hatched + anchored


def _ink(colour: str, opacity: float, theme: Theme) -> str:
    """Black text where the tint is so strong that the theme's own would be hard to read on it."""
    behind = [
        opacity * over + (1 - opacity) * under
        for over, under in zip(channels(colour), channels(theme.background), strict=True)
    ]
    own, black = (contrast(behind, text) for text in (channels(theme.text), (0.0, 0.0, 0.0)))
    return ";color:#000" if own < READABLE < black else ""
