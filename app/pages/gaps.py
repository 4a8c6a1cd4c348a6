"""The gaps of a report: the one that its sections are about, those of readings that it draws, and the metrics of both."""

from collections.abc import Iterator, Sequence

import polars as pl

from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.ingest.analysis.resolution import coarse_words, too_coarse, without_coarse
from ratioscope.ingest.analysis.run_comparison import asked_gap
from ratioscope.ingest.run import Run
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.record import GAPS, gap_between, sides

from ..blocks import Block, Facts, Paragraph, Section
from ..presentation.metric_places import names_at
from ..referee.answer import compared_steps, referee_of
from .scope import Scope


def recorded_gap(run: Run, gap: str) -> str:
    """The recorded gap beside which those of readings stand: the gap itself if it is one, else the first on record."""
    return gap if gap in GAPS else next(iter(judged_first(run)), "mismatch")


def gaps_of_readings(run: Run, gap: str) -> tuple[str, ...]:
    """The gap itself if one of its sides is a reading, then the gap of each side of the recorded gap to the referee."""
    own = () if gap in GAPS else (gap,)
    referee = referee_of(run.readings)
    if referee is None:
        return own
    judged = (gap_between(side, referee) for side in sides(recorded_gap(run, gap)))
    return tuple(dict.fromkeys((*own, *(each for each in judged if each in run.reading_gaps))))


def metrics_of(run: Run, by: tuple[str, ...], gaps: Sequence[str]) -> pl.DataFrame:
    """The metric frame of the recorded gaps, by step or of the whole run, with the columns of these gaps of readings.

    A step without the reading has nulls there. So has, where the run is on a store, a step that "Which side is off?" does not
    compare: its rows would have to be fetched.
    """
    frame = run.metrics(by=by)
    for gap in gaps:
        own = run.metrics(by=by, gap=asked_gap(gap), steps=_drawn_steps(run, gap))
        frame = frame.join(own, on=list(by), how="left", maintain_order="left") if by else frame.hstack(own)
    return frame


def steps_of_all(run: Run, readings: tuple[str, ...]) -> pl.DataFrame:
    """`metrics_of` by step, null where the digits of the file are too few."""
    return without_coarse(metrics_of(run, ("step",), readings), too_coarse(run))


def few_digits(scope: Scope, gap: str) -> Iterator[Block]:
    """Says what the digits of the file are too few for; nothing where all digits are on record."""
    if known := scope.view.of(too_coarse).get(gap):
        yield Paragraph(coarse_words(gap, known), "absent")


def _drawn_steps(run: Run, gap: str) -> frozenset[int] | None:
    """The steps at which a gap of readings is computed; None for all."""
    names = [side for side in sides(gap) if side in run.readings]
    return frozenset(compared_steps(run, names[0])) if run.is_remote and names else None


ABOUT = (
    "x is the log-ratio of a token: log-prob of the later policy minus log-prob of the earlier one. S is its sum over a sequence,"
    " m its mean. `ratioscope explain NAME` has every metric with its estimator, its weighting, its range and its limits."
)


def glossary(gaps: Sequence[str]) -> Iterator[Section]:
    """The metrics with a chart of one of these gaps."""
    metrics = [BY_NAME[name] for name in dict.fromkeys(name for gap in gaps for name in names_at("chart", gap))]
    rows = [(f"{each.title} ({each.name})", f"{each.formula}. {each.meaning}") for each in metrics]
    yield Section("glossary", "Glossary", lambda: (Paragraph(ABOUT, "muted"), Facts(rows)), is_reference=True)
