"""The pages Overview and Diagnosis: what is wrong, why, since when, and what to do."""

from dataclasses import replace
from functools import partial

from ratioscope.ingest.analysis.growth_rate import doubling_of
from ratioscope.metrics.analysis.slice_parts import size_metric

from ..blocks import (
    Block,
    Chart,
    Charts,
    Code,
    Drawer,
    Facts,
    Heading,
    Links,
    Markup,
    Paragraph,
    Verdict,
    in_theme,
    text_table,
)
from ..figures.html.cards import metric_cards
from ..figures.undoing import undoing
from ..presentation.digits import count
from ..presentation.metric_places import metrics_at
from ..presentation.statements import statements
from ..report import texts
from .material import Material


def overview(run: Material) -> tuple[Block, ...]:
    """The verdict with its proof, the cards, the severity of each step and the first charts."""
    data, gap = run.data, run.gap
    limits = {metric.name: run.limits(metric) for metric in metrics_at("card", gap)}
    draw = partial(metric_cards, run.course, metrics_at("card", gap), gap, limits)
    cards = () if run.course.is_empty() else (Markup(draw),)
    first = [f"{gap}-{metric.name}" for metric in metrics_at("first", gap)]
    rest = [f"{gap}-{metric.name}" for metric in metrics_at("chart", gap) if f"{gap}-{metric.name}" not in first]
    return (
        _verdict(run),
        Links(_links(run)),
        *cards,
        Charts(_known(run, ["severity"])),
        Charts(_known(run, first)),
        *_drawer("more metrics", _known(run, rest)),
        Facts(texts.summary(data)),
    )


def diagnosis(run: Material) -> tuple[Block, ...]:
    """Each likely cause with its proof and remedy, the verdict, what is ruled out, and which side is off."""
    found = run.data.diagnosis
    blocks: list[Block] = []
    for cause in found.causes:
        blocks += [Heading(cause.title), Facts(cause.facts), *((Code(cause.settings),) if cause.settings else ())]
    blocks += [Heading("Verdict"), Facts(texts.verdict_facts(run.data))]
    if found.excluded:
        title = f"ruled out: {count(len(found.excluded), 'cause')}, with what was measured"
        blocks.append(Drawer(title, lambda: (text_table(title, ("cause", "measured"), found.excluded),)))
    if run.data.side is not None:
        blocks += [Heading("Which side is off?"), Paragraph(run.data.side.sentence, "lead"), Facts(run.data.side.facts)]
    return tuple(blocks)


def _verdict(run: Material) -> Verdict:
    head = run.data.diagnosis.head
    return Verdict(head.severity, head.title, head.facts, head.share, _proof(run))


def _proof(run: Material) -> Chart | None:
    """The undoing of the likeliest cause, else the size of the gap."""
    found = run.data.diagnosis.head.evidence
    if found is None:
        size = run.charts.get(f"{run.gap}-{size_metric(run.gap)}")
        return None if size is None else replace(size, name="proof", wide=False)
    label = f"the gap of each of {count(len(found.frame), 'step')} before and after the undoing: {found.words}"
    return Chart("proof", label, in_theme, (partial(undoing, found.frame, found.gap, found.words),))


def _links(run: Material) -> list[tuple[str, str, str, str]]:
    told = statements(run.data.verdict, doubling_of(run.run, run.gap), has_tokens=not run.run.no_tokens)
    return [(each.name, each.words, each.page, each.help) for each in told]


def _known(run: Material, names: list[str]) -> tuple[Chart, ...]:
    return tuple(run.charts[name] for name in names if name in run.charts)


def _drawer(title: str, charts: tuple[Chart, ...]) -> tuple[Block, ...]:
    return (Drawer(f"{title} ({len(charts)})", lambda: (Charts(charts),)),) if charts else ()
