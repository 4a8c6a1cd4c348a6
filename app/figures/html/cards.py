"""The top of the first page, as HTML: the verdict in one line, and a card per headline metric with its course in small."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.metrics.card import card
from ratioscope.metrics.frame import value_in
from ratioscope.metrics.grading.finding import Finding
from ratioscope.metrics.grading.limits import Limit, reading_of
from ratioscope.metrics.metric import Metric

from ...presentation.answer import Answer, first_words
from ...presentation.digits import count
from ...presentation.escape import html as escaped
from ...presentation.noise_floor import NoiseFloor, times_words
from ...presentation.sentence import capital
from ...presentation.theme import FONT, LIGHT, MARKS, Theme
from ...presentation.value_text import limit_words, value_with_error
from ..drawing.bands import ERRORS
from ..drawing.floats import floats
from ..drawing.thinning import thinned_steps

WIDTH, HEIGHT, POINTS = 140, 28, 70


def verdict_line(
    finding: Finding,
    answer: Answer | None = None,
    *,
    note: str = "",
    brief: bool = False,
    links: bool = False,
    theme: Theme = LIGHT,
) -> str:
    """The severity, the answer and since when; below it why, what to do and what helps meanwhile, and what was measured.

    answer: of the diagnosis; None if there is none. note: a few words at the end of the first line. brief: without proof,
    meaning, remedy and checks. links: without meaning and checks, because links below it lead there.
    """
    words, word = first_words(finding, answer, links=links), finding.word
    first = escaped(", ".join(part for part in (capital(words.title), words.when) if part))
    named = answer if answer and answer.leads and answer.do and not brief else None  # the cause, told in columns
    columns = "" if named is None else _columns(named, words.next)
    lines = (
        "" if brief else f"<strong>Do:</strong> {escaped(words.do)}",
        escaped(answer.proof) if answer and not brief else "",
        f"<strong>Next:</strong> {escaped(words.next)}" if words.next else "",
    )
    parts = [
        *(() if columns else lines),
        f"<b>{escaped(words.verdict)}</b> {escaped(words.measured)}" if words.verdict else escaped(words.measured),
        escaped(words.diagnosis),
        *(() if brief or links else (escaped(words.meaning), escaped(finding.checked))),
    ]
    below = "".join(f"<p>{part}</p>" for part in parts if part)
    said = " · ".join(part for part in (f"{words.confidence} confidence", escaped(note)) if part)
    return (
        f'<div class="rs-verdict-{theme.name}"><style>{_verdict_style(theme, word)}</style>'
        f'<p class="v"><b>{MARKS[word]} {word}</b><span>{first}</span><small>{said}</small></p>{columns}{below}</div>'
    )


def _columns(answer: Answer, experiment: str) -> str:
    """Why, what to do, and what helps until then, beside each other."""
    told = (
        ("Why", answer.proof or answer.share),
        (f"Do in {answer.trainer}" if answer.trainer else "Do", answer.do),
        ("Meanwhile", answer.meanwhile),
        ("Next", experiment),
    )
    shown = (f"<div><h6>{escaped(head)}</h6><p>{escaped(capital(text))}</p></div>" for head, text in told if text)
    return f'<div class="c">{"".join(shown)}</div>'


def facts_line(severity: str, facts: Sequence[tuple[str, str]], *, theme: Theme = LIGHT) -> str:
    """Facts in one line, name and value each, after the mark of a severity. Facts are plain text and may be foreign."""
    items = "".join(f"<span>{escaped(name, 80)} <b>{escaped(value, 200)}</b></span>" for name, value in facts)
    root = f".rs-facts-{theme.name}"
    style = (
        f"{root}{{display:flex;flex-wrap:wrap;gap:2px 16px;font:13px/1.5 {FONT};color:{theme.muted};align-items:baseline}}"
        f"{root} b{{font-weight:500;color:{theme.text};overflow-wrap:anywhere}}"
        f"{root} i{{font-style:normal;color:{theme.ink.get(severity, theme.muted)}}}"
    )
    return f'<div class="rs-facts-{theme.name}"><style>{style}</style><i>{MARKS[severity]}</i>{items}</div>'


def metric_cards(
    frame: pl.DataFrame,
    metrics: Sequence[Metric],
    gap: str,
    limits: Mapping[str, Sequence[Limit]] | None = None,
    *,
    floor: NoiseFloor | None = None,
    theme: Theme = LIGHT,
) -> str:
    """A card per metric: its value at the last step ± standard error, the next limit, over how many tokens, and its course.

    limits: of each metric, by name. A card has the colour of the grade that its value has reached.
    """
    cards = "".join(_card(frame, metric, gap, (limits or {}).get(metric.name, ()), floor, theme) for metric in metrics)
    return f'<div class="rs-cards-{theme.name}"><style>{_card_style(theme)}</style>{cards}</div>'


def _card(
    frame: pl.DataFrame, metric: Metric, gap: str, limits: Sequence[Limit], floor: NoiseFloor | None, theme: Theme
) -> str:
    name = f"{gap}/{metric.name}"
    value, error, size = (value_in(frame, column, -1) for column in (name, f"{name}_se", f"{gap}/{metric.level}s"))
    unit = "" if metric.unit == "1" else metric.unit
    at = f" · step {frame['step'][-1]}" if len(frame) else ""
    spoken, _, spread = value_with_error(metric, value, error).partition(" ± ")
    sure = "± 1 se · " if spread else ""
    sized = count(size, metric.level) if size else "no standard error"
    below = f"{sure}{sized}{at}" if value is not None else "not available"
    spread = f"<small> ± {spread}</small>" if spread else ""
    graded = [limit for limit in limits if limit.severity]
    grade = reading_of(value, graded) or ("healthy" if graded and value is not None else "")
    return (
        f'<div class="{grade}" title="{_lines(_about(metric, gap))}"><h6>{escaped(metric.title)} <span>{unit}</span></h6>'
        f"<p>{spoken}{spread}</p>{_sparkline(frame, name, theme.of_gap(gap))}<span>{below}</span>"
        f"<span>{_limit_words(limits, theme)}</span>{_times(floor, metric, gap, value, error)}</div>"
    )


def _times(floor: NoiseFloor | None, metric: Metric, gap: str, value: float | None, error: float | None) -> str:
    """The value beside that of the baseline or pinned run, in words."""
    said = "" if floor is None else times_words(floor, metric, gap, value, error)
    return f"<span>{escaped(said, 120)}</span>" if said else ""


def _limit_words(limits: Sequence[Limit], theme: Theme) -> str:
    """The limits that grade the metric, in the colours of their grades."""
    graded = [limit for limit in limits if limit.severity]
    return " · ".join(
        f'<b style="color:{theme.ink.get(limit.severity or "", theme.muted)}">{limit_words(limit)}</b>'
        for limit in graded
    )


def _about(metric: Metric, gap: str) -> str:
    """Formula, meaning, estimator and direction of the metric, and its names in trainers for this gap."""
    elsewhere = (f"{place.trainer}: {place.name}" for place in card(metric.name).elsewhere if place.gap == gap)
    facts = (metric.name, metric.formula, metric.meaning, f"{metric.estimator}; {metric.weighting}", metric.direction)
    return "\n".join((*(fact for fact in facts if fact), *elsewhere))


def _lines(text: str) -> str:
    return "&#10;".join(escaped(line) for line in text.split("\n"))


def _sparkline(frame: pl.DataFrame, name: str, colour: str) -> str:
    """The metric's course: bucket means, in a band of their spread. Infinite steps, and steps not on record, are holes."""
    course = _course(frame, name)
    band, line = ("", "") if course is None else (_band(course), _line(course))
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -2 {WIDTH} {HEIGHT + 4}" preserveAspectRatio="none">'
        f'<path d="{band}" fill="{colour}" fill-opacity="0.18"/>'
        f'<path d="{line}" fill="none" stroke="{colour}" stroke-width="1.4" vector-effect="non-scaling-stroke"/></svg>'
    )
    # An image, because Streamlit removes inline SVG from HTML.
    return f'<img alt="" src="data:image/svg+xml,{quote(svg)}">'


@dataclass(frozen=True)
class _Curve:
    """Heights in the image, NaN where there is nothing to draw; low and high bound the band."""

    x: Floats
    """Places from left to right, in the image's units."""
    low: Floats
    mean: Floats
    """The line."""
    high: Floats


def _course(frame: pl.DataFrame, name: str) -> _Curve | None:
    """The band contains the extremes of each bucket and two standard errors. The image cuts it off, so that the line keeps its
    shape. None if no step has a value.
    """
    if name not in frame.columns or frame.is_empty():
        return None
    steps, values, errors = (floats(frame, column) for column in ("step", name, f"{name}_se"))
    drawn = thinned_steps(steps, values, errors, POINTS)
    if not np.isfinite(drawn.mean).any():
        return None
    error = np.nan_to_num(drawn.error)
    lowest, highest = float(np.nanmin(drawn.mean)), float(np.nanmax(drawn.mean))
    room = highest - lowest or float(2 * ERRORS * error.max()) or 1.0
    bottom, top = lowest - room / 3, highest + room / 3

    def height(value: Floats) -> Floats:
        return HEIGHT * (1 - (np.clip(value, bottom, top) - bottom) / (top - bottom))

    spread = ERRORS * error
    x = WIDTH * np.arange(len(drawn.mean)) / max(1, len(drawn.mean) - 1)
    low, high = np.fmin(drawn.low, drawn.mean - spread), np.fmax(drawn.high, drawn.mean + spread)
    return _Curve(x, height(low), height(drawn.mean), height(high))


def _line(course: _Curve) -> str:
    path, down = "", False
    for x, y in zip(course.x, course.mean, strict=True):
        known = np.isfinite(y)
        path += f"{'L' if down else 'M'}{x:.4g} {y:.4g}" if known else ""
        down = bool(known)
    return path if len(course.x) > 1 else f"{path}h{WIDTH}"


def _band(course: _Curve) -> str:
    """One outline per unbroken stretch."""
    known = np.isfinite(course.low) & np.isfinite(course.high)
    path = ""
    for part in np.split(np.arange(len(known)), np.flatnonzero(np.diff(known.astype(int))) + 1):
        if len(part) > 1 and known[part[0]]:
            edge = [
                *zip(course.x[part], course.high[part], strict=True),
                *zip(course.x[part][::-1], course.low[part][::-1], strict=True),
            ]
            path += "M" + "L".join(f"{x:.4g} {y:.4g}" for x, y in edge) + "Z"
    return path


def _verdict_style(theme: Theme, word: str) -> str:
    root, edge, ink = (
        f".rs-verdict-{theme.name}",
        theme.severity.get(word, theme.border),
        theme.ink.get(word, theme.muted),
    )
    return (
        f"{root}{{border-left:4px solid {edge};padding:2px 0 4px 14px;font:14px/1.5 {FONT};color:{theme.text}}}"
        f"{root} p{{margin:0;color:{theme.muted};max-width:140ch;text-wrap:pretty}}"
        f"{root} p.v{{max-width:none;font-size:17px;color:{theme.text};display:flex;flex-wrap:wrap;gap:2px 12px;"
        f"align-items:baseline}}"
        f"{root} p.v b{{color:{ink}}}{root} small{{font-size:13px;color:{theme.muted}}}"
        f"{root} p:not(.v){{font-size:13.5px}}{root} strong{{color:{theme.text}}}"
        f"{root} .c{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,230px),1fr));"
        f"gap:6px 28px;margin:6px 0 8px}}"
        f"{root} .c p{{color:{theme.text}}}{root} h6{{margin:0;padding:0;font:600 12.5px/1.5 {FONT};color:{theme.muted}}}"
    )


def _card_style(theme: Theme) -> str:
    root = f".rs-cards-{theme.name}"
    return (
        f"{root}{{display:grid;grid-template-columns:repeat(auto-fit,minmax(158px,1fr));gap:10px;"
        f"font:12px/1.4 {FONT};color:{theme.muted}}}"
        f"{root}>div{{border:1px solid {theme.border};border-radius:5px;padding:9px 12px 7px;min-width:0;max-width:330px}}"
        f"{root}>div>span{{display:block}}{root}>div>span b{{font-weight:400}}"
        f"{root}>.watch{{border-color:{theme.severity['watch']}}}{root}>.watch p{{color:{theme.ink['watch']}}}"
        f"{root}>.act{{border:2px solid {theme.severity['act']};padding:8px 11px 6px}}{root}>.act p{{color:{theme.ink['act']}}}"
        f"{root} h6{{margin:0;padding:0;font:500 12.5px/1.4 {FONT};color:{theme.text};overflow-wrap:anywhere}}"
        f"{root} h6 span{{color:{theme.muted};font-weight:400}}"
        f"{root} p{{margin:2px 0 3px;font-size:21px;line-height:1.25;color:{theme.text};white-space:nowrap}}"
        f"{root} p small{{font-size:12.5px;color:{theme.muted}}}"
        f"{root} img{{display:block;width:100%;height:{HEIGHT}px;margin:2px 0 4px}}"
    )
