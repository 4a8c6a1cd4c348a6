"""The top of the first page, as HTML: the verdict in one line, and a card per headline metric with its course in small."""

from collections.abc import Sequence
from urllib.parse import quote

import polars as pl

from ratioscope.metrics.card import card
from ratioscope.metrics.finding import Finding
from ratioscope.metrics.metric import Metric

from ..digits import count
from ..escape import html as escaped
from ..measured import measured
from ..theme import FONT, LIGHT, MARKS, Theme
from .thinned import thinned

WIDTH, HEIGHT, POINTS = 140, 28, 70


def verdict_line(finding: Finding, *, theme: Theme = LIGHT) -> str:
    """The finding: its grade, cause, since when and how sure; its evidence, meaning and remedy below."""
    word = finding.severity.label
    healthy = word == "healthy"
    since = "" if finding.since_step is None or healthy else f" since step {finding.since_step}"
    below = "" if healthy else f"<p>{escaped(finding.meaning)} <b>Try:</b> {escaped(finding.remedy)}</p>"
    return (
        f'<div class="rs-verdict-{theme.name}"><style>{_verdict_style(theme, word)}</style>'
        f'<p class="v"><b>{MARKS[word]} {word}</b><span>{escaped(finding.title)}{since}</span>'
        f"<small>{finding.confidence} confidence</small></p><p>{escaped(finding.evidence)}</p>{below}</div>"
    )


def metric_cards(frame: pl.DataFrame, metrics: Sequence[Metric], gap: str, *, theme: Theme = LIGHT) -> str:
    """A card per metric: its value at the last step ± standard error, over how many tokens or sequences, and its course."""
    cards = "".join(_card(frame, metric, gap, theme) for metric in metrics)
    return f'<div class="rs-cards-{theme.name}"><style>{_card_style(theme)}</style>{cards}</div>'


def _card(frame: pl.DataFrame, metric: Metric, gap: str, theme: Theme) -> str:
    name = f"{gap}/{metric.name}"
    value, error, size = (_last(frame, column) for column in (name, f"{name}_se", f"{gap}/{metric.level}s"))
    unit = "" if metric.unit == "1" else metric.unit
    at = f" · step {frame['step'][-1]}" if len(frame) else ""
    below = f"{count(size, metric.level)}{at}" if value is not None else "not available"
    spoken, _, spread = measured(metric.name, value, error).partition(" ± ")
    spread = f"<small> ± {spread}</small>" if spread else ""
    return (
        f'<div title="{_lines(_about(metric, gap))}"><h6>{escaped(metric.name)} <span>{unit}</span></h6>'
        f"<p>{spoken}{spread}</p>{_sparkline(frame, name, theme.gaps[gap])}<span>{below}</span></div>"
    )


def _about(metric: Metric, gap: str) -> str:
    """What the card of the metric says, and its names in trainers for this gap."""
    elsewhere = (f"{place.trainer}: {place.name}" for place in card(metric.name).elsewhere if place.gap == gap)
    facts = (metric.formula, metric.meaning, f"{metric.estimator}; {metric.weighting}", metric.direction)
    return "\n".join((*(fact for fact in facts if fact), *elsewhere))


def _last(frame: pl.DataFrame, name: str) -> float | None:
    return frame[name][-1] if name in frame.columns and len(frame) else None


def _lines(text: str) -> str:
    return "&#10;".join(escaped(line) for line in text.split("\n"))


def _sparkline(frame: pl.DataFrame, name: str, colour: str) -> str:
    """The metric's course: bucket means between their smallest and largest. Infinite and missing steps are holes."""
    drawn = _points(frame, name)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -2 {WIDTH} {HEIGHT + 4}" preserveAspectRatio="none">'
        f'<path d="{drawn}" fill="none" stroke="{colour}" stroke-width="1.4" vector-effect="non-scaling-stroke"/></svg>'
    )
    # An image, because Streamlit removes inline SVG from HTML.
    return f'<img alt="" src="data:image/svg+xml,{quote(svg)}">'


def _points(frame: pl.DataFrame, name: str) -> str:
    if name not in frame.columns:
        return ""
    values = frame[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    means = pl.Series(thinned(values, values, points=POINTS).mean).fill_nan(None)
    low, high = means.min(), means.max()
    if not isinstance(low, float) or not isinstance(high, float):
        return ""
    apart = WIDTH / max(1, len(means) - 1)
    path, down = "", False
    for place, mean in enumerate(means):
        if mean is not None:
            y = HEIGHT * (high - mean) / (high - low) if high > low else HEIGHT / 2
            path += f"{'L' if down else 'M'}{place * apart:.4g} {y:.4g}"
        down = mean is not None
    return path if len(means) > 1 else f"{path}h{WIDTH}"


def _verdict_style(theme: Theme, word: str) -> str:
    root = f".rs-verdict-{theme.name}"
    return (
        f"{root}{{border-left:4px solid {theme.severity[word]};padding:2px 0 4px 14px;font:14px/1.5 {FONT};color:{theme.text}}}"
        f"{root} p{{margin:0;color:{theme.muted};max-width:110ch}}"
        f"{root} p.v{{font-size:17px;color:{theme.text};display:flex;flex-wrap:wrap;gap:2px 12px;align-items:baseline}}"
        f"{root} p.v b{{color:{theme.ink[word]}}}{root} small{{font-size:13px;color:{theme.muted}}}"
    )


def _card_style(theme: Theme) -> str:
    root = f".rs-cards-{theme.name}"
    return (
        f"{root}{{display:grid;grid-template-columns:repeat(auto-fit,minmax(158px,1fr));gap:10px;"
        f"font:12px/1.4 {FONT};color:{theme.muted}}}"
        f"{root}>div{{border:1px solid {theme.border};border-radius:5px;padding:9px 12px 7px;min-width:0}}"
        f"{root} h6{{margin:0;padding:0;font:500 12.5px/1.4 {FONT};color:{theme.text};overflow-wrap:anywhere}}"
        f"{root} h6 span{{color:{theme.muted};font-weight:400}}"
        f"{root} p{{margin:2px 0 3px;font-size:21px;line-height:1.25;color:{theme.text};white-space:nowrap}}"
        f"{root} p small{{font-size:12.5px;color:{theme.muted}}}"
        f"{root} img{{display:block;width:100%;height:{HEIGHT}px;margin:2px 0 4px}}"
    )
