"""The report as JSON: everything as data. `schema` names this layout; within one number members are only added.

    schema, run, gap, gaps          "ratioscope-report/1"; the run's name; the gap of places (the verdict's unless --gap names
                                    another); gaps on record
    reading_gaps                    gaps of readings that have scores and columns of `steps`
    digits                          gap -> what the digits of the file are too few for: these values are null
    head                            severity, title and facts of the first half page, in the words of the other formats
    verdict                         severity, title, signal, gap, since_step, until_step (null: not over), peak_step, now (grade
                                    of the newest steps), now_since, now_title, confidence, evidence, meaning, remedy, checks
                                    (name, steps, absent), rules (what the run's own rules mute or tune, in words)
    diagnosis                       as `ratioscope diagnose --json` gives it; null if the run cannot be diagnosed
    comparison                      with the pinned run, as `ratioscope diff --json`; null without one
    baseline                        the noise floor that --baseline names, as its file holds it; null without one
    side                            which side is off, by a third reading: off, sentence, reading, facts; null without one
    engine_part                     the gap in two parts, by the engine's prefill: sentence, part, mean, ...; null without one
    gradient_bias                   how the gap biases the policy gradient: metric, persistent, found (mean, error, share, total,
                                    ... per step), because (why found is null), steps; null without a gap
    graded                          severity -> number of steps
    scores                          per metric and gap over the whole run: value, error, count, worst, worst_error,
                                    worst_step, reading, limits, absent (why value is null), ...
    text                            whether prompts and token texts are in it
    steps                           columns: step, "<gap>/<metric>", "<gap>/<metric>_se"; null is "not available"
    grades, spells, events          columns per graded step; consecutive steps of one severity; events
    distributions                   per level: by_step (columns step, bucket, count) and whole_run (columns bucket, low, high,
                                    count, log_sum_weight, log_sum_square_weight)
    places                          per slice: rows, or absent (why there are none); left_out (why some values are null)
    worst_sequences                 facts, prompt and tokens (a row per token) of each
    quality, reproduction           counts, quarantined files; version, digest, command, configuration, thresholds
    glossary                        the card of every metric
    support                         only with several tokens per position on record: gap, metrics, drift, score_centering,
                                    left_out and steps, or because (why there are none)

A number that JSON cannot hold is "Infinity", "-Infinity" or "NaN".
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import polars as pl

from ratioscope.ingest.analysis.diagnosis import plain_diagnosis
from ratioscope.ingest.analysis.grades import plain_finding
from ratioscope.ingest.analysis.gradient_bias import bias_of_run, plain_bias
from ratioscope.ingest.analysis.known_context import plain_known
from ratioscope.ingest.analysis.recorded_events import recorded_events
from ratioscope.ingest.analysis.resolution import coarse_words, too_coarse
from ratioscope.ingest.analysis.support_numbers import plain_support, support_numbers
from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.metrics.distribution import Level, whole_histogram
from ratioscope.metrics.grading.severity import with_readings
from ratioscope.metrics.metric import Metric

from ..pages.gap_slices import SliceOfGap, slices_of_gap
from ..pages.head import graded_counts, plain_head
from ..pages.quality import quality
from ..pages.scorecard import Score
from ..pages.timeline import periods_of
from ..pages.worst import plain_worst
from ..presentation.json_values import jsonable
from ..referee.answer import plain_side_off
from ..referee.baselines import plain_baseline
from ..referee.engine_part import plain_engine_part
from .material import Material

SCHEMA = "ratioscope-report/1"
LEVELS: tuple[Level, ...] = ("token", "sequence")
CARD = ("name", "unit", "formula", "meaning", "gaps", "level", "estimator", "weighting", "direction", "range", "absent")


def json_report(read: Material) -> str:
    """The document, one member of a long list per line, in ASCII."""
    document: dict[str, Any] = {"schema": SCHEMA}
    for name, member in MEMBERS.items():
        read.stage(name.replace("_", " "))
        document[name] = jsonable(member(read))
    if read.run.topk_steps:
        found = read.view.of(support_numbers, read.gap, None)
        document["support"] = jsonable(None if found is None else plain_support(found))
    return _lines(document) + "\n"


def _lines(document: dict[str, Any]) -> str:
    members = (f" {json.dumps(name)}: {_value(value)}" for name, value in document.items())
    return "{\n" + ",\n".join(members) + "\n}"


def _value(value: Any) -> str:
    """A line for each item of a list and each column of a table."""
    if isinstance(value, list) and value:
        return "[\n  " + ",\n  ".join(json.dumps(item, allow_nan=False) for item in value) + "\n ]"
    if isinstance(value, dict) and any(isinstance(item, list) for item in value.values()):
        columns = (f"{json.dumps(name)}: {json.dumps(item, allow_nan=False)}" for name, item in value.items())
        return "{\n  " + ",\n  ".join(columns) + "\n }"
    return json.dumps(value, allow_nan=False)


def _columns(frame: pl.DataFrame) -> dict[str, list[Any]]:
    return frame.to_dict(as_series=False)


def _distribution(level: Level, gap: str, frame: pl.DataFrame) -> dict[str, Any]:
    whole = whole_histogram(frame)
    columns = {
        "bucket": whole.buckets, "low": whole.low, "high": whole.high, "count": whole.counts,
        "log_sum_weight": whole.log_sum_weights, "log_sum_square_weight": whole.log_sum_square_weights,
    }  # fmt: skip
    by_step = _columns(frame.select("step", "bucket", "count"))
    return {
        "level": level,
        "gap": gap,
        "by_step": by_step,
        "whole_run": {name: c.tolist() for name, c in columns.items()},
    }


def _score(score: Score) -> dict[str, Any]:
    """The score without its series, which is a column of `steps`."""
    return {name: value for name, value in asdict(score).items() if name != "series"}


def _rows(frame: pl.DataFrame | None) -> list[dict[str, Any]] | None:
    return None if frame is None else frame.to_dicts()


def _card(metric: Metric) -> dict[str, Any]:
    return {name: getattr(metric, name) for name in CARD} | {"bands": [asdict(band) for band in metric.bands]}


def _place(place: SliceOfGap) -> dict[str, Any]:
    return {
        "slice": place.slice,
        "gap": place.gap,
        "title": place.title,
        "absent": place.absent,
        "left_out": place.left_out,
        "rows": _rows(place.frame),
    }


def _grades(read: Material) -> dict[str, list[Any]]:
    return _columns(with_readings(read.view.grades()))


def _diagnosis(read: Material) -> dict[str, Any] | None:
    known = read.view.diagnosis()
    if known is None or known.result is None or known.context is None:
        return None
    return plain_diagnosis(known.result) | plain_known(known.context)


def _digits(read: Material) -> dict[str, str]:
    shown, coarse = (*read.run.gaps, *read.readings), read.view.of(too_coarse)
    return {gap: coarse_words(gap, known) for gap, known in coarse.items() if gap in shown}


MEMBERS: dict[str, Callable[[Material], Any]] = {
    "head": lambda read: plain_head(read.head),
    "run": lambda read: read.view.name,
    "gap": lambda read: read.gap,
    "gaps": lambda read: tuple(read.run.gaps),
    "reading_gaps": lambda read: read.readings,
    "digits": _digits,
    "verdict": lambda read: plain_finding(read.verdict),
    "diagnosis": _diagnosis,
    "comparison": lambda read: read.baseline and read.baseline.plain,
    "baseline": lambda read: read.scope.floor and plain_baseline(read.scope.floor),
    "side": lambda read: read.side and plain_side_off(read.side),
    "engine_part": lambda read: read.engine_part and plain_engine_part(read.engine_part),
    "gradient_bias": lambda read: (bias := read.view.of(bias_of_run)) and plain_bias(bias),
    "graded": lambda read: graded_counts(read.view.grades()),
    "scores": lambda read: [_score(score) for score in read.scores],
    "steps": lambda read: _columns(read.steps),
    "grades": _grades,
    "spells": lambda read: [asdict(spell) for spell in read.view.of(periods_of, read.view)],
    "events": lambda read: _rows(read.view.of(recorded_events)),
    "distributions": lambda read: [
        _distribution(level, read.gap, frame) for level, frame in read.run.distributions(LEVELS, read.gap).items()
    ],
    "places": lambda read: [_place(place) for place in read.view.of(slices_of_gap, read.gap)],
    "worst_sequences": lambda read: [plain_worst(item) for item in read.worst],
    "text": lambda read: read.text,
    "quality": lambda read: asdict(quality(read.run, read.view.metrics())),
    "reproduction": lambda read: asdict(read.reproduction),
    "glossary": lambda read: [_card(metric) for metric in METRICS],
}
