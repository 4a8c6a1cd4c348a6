"""The pages Metrics, Distributions and Alerts: what was measured over the steps."""

from collections.abc import Iterator
from functools import partial

from ratioscope.metrics.analysis.quantiles import extremes_over_steps, quantiles_over_steps
from ratioscope.metrics.metric import Metric

from ..blocks import Block, Chart, Charts, Drawer, Heading, Paragraph, Table, in_theme, text_table
from ..figures.log_ratio_quantiles import log_ratio_quantiles
from ..figures.over_steps import metric_over_steps
from ..presentation.digits import count
from ..presentation.metric_topics import of_gap
from ..report import texts
from ..report.drawings import POINTS
from .material import Material

ALERTS = 200
"""Most alerts of the table, those that wait for somebody and the worst first."""


def metrics(run: Material) -> tuple[Block, ...]:
    """The scorecard, and a chart for each metric that is on record, by topic."""
    if not run.gap or run.course.is_empty():
        return (Paragraph("not available, because no step has the log-probs of two policies.", "absent"),)
    blocks: list[Block] = [Heading(f"Scorecard of {run.gap}"), _scorecard(run)]
    for place, (topic, of_topic) in enumerate(of_gap(run.gap).items()):
        charts = tuple(_courses(run, of_topic))
        if charts:
            own = Charts(charts)
            blocks += [Heading(topic), own] if place == 0 else [Drawer(f"{topic} ({len(charts)})", partial(_only, own))]
    for gap in run.data.gaps:
        charts = tuple(chart for name, chart in run.charts.items() if name.startswith(f"{gap}-"))
        if gap != run.gap and charts:
            blocks.append(Drawer(f"{gap} over the steps ({len(charts)})", partial(_only, Charts(charts))))
    return tuple(blocks)


def _only(block: Block) -> tuple[Block, ...]:
    return (block,)


def _scorecard(run: Material) -> Table:
    rows = [
        (texts.title_of(score.name), texts.value_of(score), texts.worst_of(score), texts.size_of(score), score.name)
        for score in texts.headlines([score for score in run.data.scores if score.gap == run.gap])
        if not score.absent
    ]
    return text_table(
        f"scorecard of {run.gap}", ("metric", "whole run", "worst step", "N", "name"), rows, is_numbers=True
    )


def _courses(run: Material, of_topic: tuple[Metric, ...]) -> Iterator[Chart]:
    """The charts of the metrics with a value; those of the report are taken as they are."""
    for metric in of_topic:
        name, column = f"{run.gap}-{metric.name}", f"{run.gap}/{metric.name}"
        if name in run.charts:
            yield run.charts[name]
            continue
        if column not in run.course.columns or run.course[column].null_count() == len(run.course):
            continue
        draw = partial(
            metric_over_steps,
            run.course,
            metric,
            run.gap,
            limits=run.limits(metric),
            events=run.data.events,
            points=POINTS,
        )
        yield Chart(name, f"{run.gap} {metric.name} over {count(len(run.course), 'step')}", in_theme, (draw,))


def distributions(run: Material) -> tuple[Block, ...]:
    """Log-ratios and weights of tokens and sequences, and the quantiles over the steps."""
    blocks: list[Block] = []
    for (level, gap), frame in run.data.distributions.items():
        names = (f"heat-{level}", f"weights-{level}", f"survival-{level}")
        charts = tuple(run.charts[name] for name in names if name in run.charts)
        if charts:
            course = _quantiles(run, gap) if level == "token" and len(frame) else ()
            blocks += [Heading(f"By {level}"), Charts((*charts, *course))]
    return tuple(blocks) or (Paragraph("not available, because the run has no distribution of this gap", "absent"),)


def _quantiles(run: Material, gap: str) -> tuple[Chart, ...]:
    extremes = extremes_over_steps(run.course, gap)
    if not extremes.columns:
        return ()
    frame = quantiles_over_steps(run.data.distributions["token", gap], extremes)
    draw = partial(log_ratio_quantiles, frame, gap, events=run.data.events)
    return (Chart("quantiles", f"quantiles of the {gap} log-ratio over the steps", in_theme, (draw,), wide=True),)
