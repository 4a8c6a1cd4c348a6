"""The cards of all metrics as HTML, each with a place that its name leads to. Their style is that of the document."""

from ratioscope.metrics.definitions import registry
from ratioscope.metrics.metric import Band, Metric

from ...presentation.escape import html as escaped
from ...presentation.theme import LIGHT, Theme


def glossary_cards(*, theme: Theme = LIGHT) -> str:
    """The formula, the meaning and the facts of every metric."""
    return f'<div class="cards">{"".join(map(_card, registry.METRICS))}</div>'


def _card(metric: Metric) -> str:
    unit = "" if metric.unit == "1" else f" [{metric.unit}]"
    bands = "; ".join(f"{_bounds(band)}: {band.reading} ({band.source})" for band in metric.bands)
    facts = {
        "estimator": metric.estimator,
        "direction": metric.direction,
        "weighting": metric.weighting,
        "range": metric.range,
        "gaps": ", ".join(metric.gaps),
        "bands": bands,
    }
    said = " · ".join(f"{name}: {value}" for name, value in facts.items() if value)
    return (
        f'<div class="card" id="metric-{escaped(metric.name)}"><p><b>{escaped(metric.title)}</b></p>'
        f'<p><code>{escaped(metric.name)}</code>{escaped(unit)} = <span class="code">{escaped(metric.formula)}</span></p>'
        f'<p>{escaped(metric.meaning)}</p><p class="muted small">{escaped(said)}</p></div>'
    )


def _bounds(band: Band) -> str:
    if band.low == float("-inf"):
        return f"below {band.high:g}"
    return f"from {band.low:g}" if band.high == float("inf") else f"{band.low:g} to {band.high:g}"
