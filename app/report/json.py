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
    comparison                      with a known-good run, as `ratioscope diff --json`; null without one
    baseline                        the noise floor that --baseline names, as its file holds it; null without one
    side                            which side is off, by a third reading: off, sentence, reading, facts; null without one
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

A number that JSON cannot hold is "Infinity", "-Infinity" or "NaN".
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import polars as pl

from ratioscope.ingest.analysis.grades import plain_finding
from ratioscope.metrics.distribution import Level, whole_histogram
from ratioscope.metrics.metric import Metric

from ..presentation.json_values import jsonable
from ..referee.baselines import plain_baseline
from ..referee.side_off import plain_side_off
from .data import SCHEMA, ReportData
from .gap_slices import SliceOfGap
from .head import plain_head
from .scorecard import Score

CARD = ("name", "unit", "formula", "meaning", "gaps", "level", "estimator", "weighting", "direction", "range", "absent")


def json_report(data: ReportData) -> str:
    """The document, one member of a long list per line, in ASCII."""
    return _lines({"schema": SCHEMA, **{name: jsonable(member(data)) for name, member in MEMBERS.items()}}) + "\n"


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


def _verdict(data: ReportData) -> dict[str, Any]:
    return plain_finding(data.verdict)


MEMBERS: dict[str, Callable[[ReportData], Any]] = {
    "head": lambda data: plain_head(data.diagnosis.head),
    "run": lambda data: data.name,
    "gap": lambda data: data.gap,
    "gaps": lambda data: data.gaps,
    "reading_gaps": lambda data: data.reading_gaps,
    "digits": lambda data: data.digits,
    "verdict": _verdict,
    "diagnosis": lambda data: data.diagnosis.plain,
    "comparison": lambda data: None if data.baseline is None else data.baseline.plain,
    "baseline": lambda data: None if data.floor is None else plain_baseline(data.floor),
    "side": lambda data: None if data.side is None else plain_side_off(data.side),
    "graded": lambda data: data.graded,
    "scores": lambda data: [_score(score) for score in data.scores],
    "steps": lambda data: _columns(data.steps),
    "grades": lambda data: _columns(data.grades),
    "spells": lambda data: [asdict(spell) for spell in data.spells],
    "events": lambda data: _rows(data.events),
    "distributions": lambda data: [
        _distribution(level, gap, frame) for (level, gap), frame in data.distributions.items()
    ],
    "places": lambda data: [_place(place) for place in data.places],
    "worst_sequences": lambda data: [vars(item) | {"tokens": _rows(item.tokens)} for item in data.worst],
    "text": lambda data: data.text,
    "quality": lambda data: asdict(data.quality),
    "reproduction": lambda data: asdict(data.reproduction),
    "glossary": lambda data: [_card(metric) for metric in data.glossary],
}
