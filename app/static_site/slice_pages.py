"""The pages Where and Staleness: the parts of the data that have the gap, and how far it is one of old weights."""

from functools import partial
from typing import Any

import polars as pl

from ratioscope.ingest.analysis.comparability import comparability
from ratioscope.ingest.analysis.lag_over_steps import lag_over_steps, lag_table
from ratioscope.ingest.rows.text_columns import changed
from ratioscope.metrics.analysis.concentration import concentration
from ratioscope.metrics.analysis.decomposition import decomposition
from ratioscope.metrics.analysis.slice_parts import size_metric, slice_parts
from ratioscope.metrics.analysis.staleness import staleness as share_of_lag
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.limits import limits_of
from ratioscope.metrics.metric import SAMPLED

from ..figures.gap_parts import gap_parts
from ..figures.html.both_sides import both_sides
from ..figures.lags import lag_shares, lags_over_steps
from ..figures.slice_bars import slice_bars
from ..presentation.concentration_words import concentration_words
from ..presentation.digits import count
from ..presentation.lag_words import (
    OF_THE_UPDATE,
    lag_answer,
    lag_facts,
    lag_note,
    lag_parts,
    lag_rows,
    lagged,
    single_lag,
)
from ..presentation.slice_names import BY_NAME as WORDS
from ..presentation.slice_names import only_value_words
from ..presentation.theme import DARK, LIGHT
from ..presentation.weights_table import NO_DIGESTS, weights_table
from ..report import texts
from ..report.privacy import scrubbed_settings, scrubbed_text
from ..report.scorecard import Score
from .blocks import Block, Chart, Charts, Drawer, Heading, Markup, Paragraph, Table
from .frames import frame_rows
from .material import Material


def where(run: Material) -> tuple[Block, ...]:
    """The sentence on the part with most of the gap, and the bars of each slice, or its only value."""
    present = [place for place in run.data.places if place.frame is not None]
    parts = {place.slice: _parts(run, place.slice) for place in present}
    size = BY_NAME[size_metric(run.gap)]
    found = [(WORDS[name], concentration(frame)) for name, frame in parts.items()]
    said = [Paragraph(sentence, "lead") for sentence in concentration_words(found, size.title)]
    alone = {name: str(frame["label"][0]) for name, frame in parts.items() if len(frame) == 1}
    charts = tuple(_bars(run, name, frame) for name, frame in parts.items() if name not in alone)
    facts = [Paragraph(only_value_words(WORDS[name], value), "muted small") for name, value in alone.items()]
    tables = tuple(Table(place.title, *texts.place_table(place), numbers=True) for place in present)
    absent = [
        Paragraph(f"{place.title}: not available, {place.absent}", "absent")
        for place in run.data.places
        if place.absent
    ]
    numbers = [Drawer(f"numbers {table.title}", (table,)) for table in tables]
    return (*said, Charts(charts), *facts, *numbers, *absent)


def _parts(run: Material, name: str) -> pl.DataFrame:
    parts = slice_parts(run.run.metrics(by=(name,)), name, run.gap, size_metric(run.gap))
    return changed(parts, scrubbed_text, "key", "label")


def _bars(run: Material, name: str, parts: pl.DataFrame, notes: tuple[str, ...] = ()) -> Chart:
    metric, words = BY_NAME[size_metric(run.gap)], WORDS[name]
    draw = partial(
        slice_bars,
        parts,
        metric,
        run.gap,
        f"by {words.title} <i>{run.gap}</i>",
        overall=whole.value if (whole := _score(run)) else None,
        limits=limits_of(metric, run.gap, run.data.signals),
        notes=notes or ((words.about,) if words.about else ()),
    )
    return Chart(f"slice-{name}", f"{run.gap} {metric.name} by {words.title}: {count(len(parts), 'bucket')}", draw)


def _score(run: Material) -> Score | None:
    """The size of the gap over all steps together."""
    name = size_metric(run.gap)
    return next((score for score in run.data.scores if (score.gap, score.name) == (run.gap, name)), None)


def _by_lag(run: Material) -> tuple[Block, ...]:
    """The gap by version lag, or why it is not known."""
    gap, metric = run.gap, BY_NAME[size_metric(run.gap)]
    absent = next((place.absent for place in run.data.places if place.slice == "lag"), None)
    if absent:
        return (Paragraph(f"By version lag: not available, {absent}", "absent"),)
    by_lag = lag_table(run.run)
    if f"{gap}/{metric.name}" not in by_lag.columns:
        return (Paragraph(f"No token of {gap} has a known version lag.", "absent"),)
    parts, course = lag_parts(by_lag, gap), lag_over_steps(run.run)
    if len(parts) == 1:
        fact, follows = single_lag(str(parts["label"][0]), is_sampled=gap in SAMPLED)
        return (*_share(run), Paragraph(fact, "lead"), Paragraph(follows))
    limits, events = limits_of(metric, gap, run.data.signals), run.data.events
    charts = (
        Chart("lag-bars", f"{gap} {metric.name} by version lag", _bars(run, "lag", parts).draw),
        Chart("lag-shares", "share of the tokens at each version lag", partial(lag_shares, course, gap, events=events)),
        Chart(
            "lag-courses",
            f"{gap} {metric.name} by version lag over the steps",
            partial(lags_over_steps, course, metric, gap, limits=limits, events=events),
            wide=True,
        ),
    )
    table = frame_rows(f"{gap} by version lag", lag_rows(parts, metric.title))
    return (*_share(run), Charts(charts), Drawer("numbers by version lag", (table,)))


def _share(run: Material) -> tuple[Block, ...]:
    """The part of the gap that old weights explain."""
    if run.gap not in SAMPLED:
        return (Paragraph(OF_THE_UPDATE, "muted"),)
    found = share_of_lag(lagged(run.run.metrics(by=("lag",)), run.gap))
    whole = _score(run)
    own = whole.error if whole and whole.count == found.tokens else None
    rows = [(name, value, about) for name, value, about in lag_facts(found, own)]
    reason = (
        [Paragraph(f"Share explained by lag: not available, because {found.reason}.", "absent")] if found.reason else []
    )
    answer = lag_answer(found)
    return (
        *([Paragraph(answer, "lead")] if answer else []),
        Table("the share of old weights", ("", "K3", "meaning"), rows),
        Paragraph(lag_note(found), "muted small"),
        *reason,
    )


def staleness(run: Material) -> tuple[Block, ...]:
    """The gap by lag, its parts, the weights that arrived, and the settings of both sides."""
    blocks = [*_by_lag(run)]
    parts = decomposition(run.data.steps)
    if parts.is_empty():
        three = "log rollout, old and current log-probs of the same tokens"
        words = f"total = mismatch + drift: not available, because no step has all three gaps; {three}."
        blocks.append(Paragraph(words, "absent"))
    else:
        label = f"mean log-ratios of total, mismatch and drift over {count(len(parts), 'step')}"
        blocks.append(Charts((Chart("parts", label, partial(gap_parts, parts, events=run.data.events), wide=True),)))
    return (*blocks, *_weights(run), *_sides(run))


def _weights(run: Material) -> tuple[Block, ...]:
    frame, title = weights_table(run.run), Heading("Did the weights arrive?")
    if frame.is_empty():
        return (title, Paragraph(NO_DIGESTS, "absent"))
    wrong = frame.filter(pl.col("state") == "differs")["finding"].to_list()
    return (
        title,
        *(Paragraph(scrubbed_text(words), "lead") for words in wrong),
        frame_rows("weights of the engines", frame),
    )


def _sides(run: Material) -> tuple[Block, ...]:
    info: dict[str, Any] = scrubbed_settings(dict(run.run.info))  # Any: the values of run.json
    draw = partial(both_sides, comparability(info))
    return (
        Heading("Do engine and trainer use the same settings?"),
        Markup(draw(theme=LIGHT), draw(theme=DARK)),
        Paragraph("These settings come from the recorded configuration. An unknown setting may differ.", "muted small"),
    )
