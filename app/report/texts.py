"""The report's numbers as words: one wording for HTML and Markdown. Nothing is escaped here; each renderer does that once."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from ratioscope.ingest.commits.conservation import UNSEEN
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.finding import Finding
from ratioscope.metrics.metric import Band, Metric

from ..presentation.digits import count, digits
from ..presentation.gap_words import gap_words
from ..presentation.labelled_texts import LabelledTexts
from ..presentation.loss_words import lost_words
from ..presentation.metric_places import SPOKEN, names_at
from ..presentation.value_text import value_words
from .data import ReportData
from .gap_slices import SliceOfGap
from .quality import Quality
from .reproduction import Reproduction
from .scorecard import Score
from .worst import WorstSequence

NAMES = {**SPOKEN, "group_id": "group", "finish_reason": "finished by"}


def value_of(score: Score) -> str:
    """The value ± its standard error, or the reason why it is absent."""
    if score.value is None:
        return f"not available, {score.absent}"
    return value_words(score.name, score.value, score.error)


def unit_of(name: str) -> str:
    """The unit in brackets; empty for pure numbers."""
    unit = BY_NAME[name].unit
    return "" if unit == "1" else f" [{unit}]"


def title_of(name: str) -> str:
    """The title of a metric in words, with its unit in brackets."""
    return f"{BY_NAME[name].title}{unit_of(name)}"


def headlines(scores: Sequence[Score]) -> list[Score]:
    """The scores with a chart of their own, in the order of the charts."""
    first_scores = (score for score in scores if score.headline)
    return sorted(first_scores, key=lambda score: names_at("chart", score.gap).index(score.name))


def size_of(score: Score) -> str:
    return count(score.count, score.counted.removesuffix("s"))


def worst_value(score: Score) -> str:
    """The value at the worst step ± its standard error."""
    return value_words(score.name, score.worst, score.worst_error)


def worst_of(score: Score) -> str:
    if score.worst is None:
        return ""
    return f"{worst_value(score)} at {score.worst_step}{f', {score.worst_reading}' if score.worst_reading else ''}"


def score_words(score: Score | None) -> str:
    """The value of the whole run and the worst step in words, for those who do not see the chart."""
    if score is None or score.absent:
        return ""
    worst = worst_of(score)
    return f": whole run {value_of(score)}{unit_of(score.name)}" + (f", worst {worst}" if worst else "")


def summary(data: ReportData) -> LabelledTexts:
    """The run and the data of the report, in a few facts."""
    steps = data.steps["step"].to_list() if len(data.steps) else []
    return run_facts(steps, (*data.gaps, *data.reading_gaps), data.reproduction.trainer, data.graded)


def run_facts(steps: Sequence[int], gaps: Sequence[str], trainer: object, graded: Mapping[str, int]) -> LabelledTexts:
    """graded: severity -> number of steps."""
    return [
        ("steps", f"{count(len(steps))} ({steps[0]} to {steps[-1]})" if steps else "none"),
        ("gaps", ", ".join(map(gap_words, gaps)) or "none"),
        ("trainer", str(trainer or "not recorded")),
        ("graded", ", ".join(f"{count(number)} {word}" for word, number in graded.items())),
    ]


def verdict_facts(data: ReportData) -> LabelledTexts:
    """The rows of the verdict box, below the likely causes."""
    found = data.diagnosis
    return [*verdict_rows(data.verdict, found.answer, leads=found.leads), *found.facts]


def verdict_rows(verdict: Finding, answer: str, *, leads: bool) -> LabelledTexts:
    """The verdict without the diagnosis. answer: of the diagnosis; empty without one. leads: it stands above already."""
    rows = (
        ("when", verdict.when),
        ("verdict", verdict.title) if leads else ("diagnosis", answer),
        ("confidence", verdict.confidence),
        ("evidence", verdict.evidence),
        ("what it means", verdict.meaning),
        ("what to try", verdict.remedy),
        ("what was checked", verdict.checked),
    )
    return [(name, text) for name, text in rows if text]


def place_table(place: SliceOfGap) -> tuple[list[str], list[list[str]]]:
    """Header and rows of one slice; a metric that no row has is left out."""
    frame = place.frame
    assert frame is not None
    names = [
        m
        for m in names_at("table", place.gap)
        if f"{place.gap}/{m}" in frame.columns and frame[f"{place.gap}/{m}"].null_count() < len(frame)
    ]
    header = [place.slice, *map(title_of, names)]
    rows = [
        [str(row[place.slice]), *(_cell(row, place.gap, name) for name in names)] for row in frame.iter_rows(named=True)
    ]
    return header, rows


def _cell(row: dict[str, Any], gap: str, name: str) -> str:
    return value_words(name, row[f"{gap}/{name}"], row.get(f"{gap}/{name}_se"))


def sequence_facts(item: WorstSequence) -> str:
    """One line with the place of the sequence and the size of its gap."""
    update = "" if item.minibatch is None else f", minibatch {item.minibatch}"
    facts = (f"{NAMES.get(name, name.replace('_', ' '))} {_fact(value)}" for name, value in item.facts.items())
    return " · ".join((f"step {item.step}{update}", count(item.length, "token"), *facts, *_window(item)))


def _window(item: WorstSequence) -> tuple[str, ...]:
    """The positions that are shown, in words, where these are not all."""
    if len(item.tokens) in (0, item.length):
        return ()
    return (f"shown: positions {item.tokens['position'][0]:,} to {item.tokens['position'][-1]:,}",)


def text_of(item: WorstSequence) -> str:
    """The text of the tokens shown; empty where none was recorded or texts were left out."""
    texts = item.tokens["token_text"].to_list() if "token_text" in item.tokens.columns else []
    return "".join(text for text in texts if text is not None)


def worst_tokens(item: WorstSequence, gap: str, most: int) -> list[str]:
    """The shown tokens with the largest |x|: text or id, position, x."""
    known = item.tokens.filter(pl.col(gap).is_finite(), pl.col("mask").fill_null(True))
    ranked = known.sort(pl.col(gap).abs(), "position", descending=[True, False]).head(most)
    return [f"{_name(row)} at {row['position']}: {digits(row[gap])}" for row in ranked.iter_rows(named=True)]


def _name(row: dict[str, Any]) -> str:
    text, token = row.get("token_text"), row.get("token_id")
    return f"'{text}'" if text is not None else "token" if token is None else f"id {token}"


def _fact(value: object) -> str:
    return digits(value) if isinstance(value, float) else str(value)


def reproduction_facts(made: Reproduction) -> LabelledTexts:
    """Versions, digest and command."""
    versions = ", ".join(f"{name} {version}" for name, version in made.versions.items())
    return [
        ("report made by", f"ratioscope {made.version}"),
        ("command, to run in the parent folder of the run", made.command),
        ("input digest (sha256)", made.digest),
        ("trainer", made.trainer or "not recorded"),
        ("recorded with", versions or "not recorded"),
    ]


def config_lines(made: Reproduction) -> list[str]:
    """The run's configuration as indented JSON."""
    return json.dumps(made.config, indent=2, ensure_ascii=False, default=str).split("\n")


def card_line(metric: Metric) -> str:
    """A metric's card without formula and meaning, in one line."""
    bands = "; ".join(f"{_bounds(band)}: {band.reading} ({band.source})" for band in metric.bands)
    facts = {
        "estimator": metric.estimator,
        "direction": metric.direction,
        "weighting": metric.weighting,
        "range": metric.range,
        "gaps": ", ".join(metric.gaps),
        "bands": bands,
    }
    return " · ".join(f"{name}: {value}" for name, value in facts.items() if value)


def _bounds(band: Band) -> str:
    if band.low == float("-inf"):
        return f"below {band.high:g}"
    return f"from {band.low:g}" if band.high == float("inf") else f"{band.low:g} to {band.high:g}"


def quality_facts(counts: Quality) -> LabelledTexts:
    """Counts of the data that the report rests on; counts of trouble only if they are above 0."""
    span = f" ({counts.first_step} to {counts.last_step})" if counts.steps else ""
    missing = f", {count(counts.missing_steps)} missing in between" if counts.missing_steps else ""
    exact = "every logged token" if counts.exact else "a sample of the tokens: values are estimates"
    whole = (
        f"; {count(counts.sequences, 'whole sequence')}"
        if counts.sequences_set_aside
        else f" of {count(counts.sequences, 'sequence')}"
    )
    return [
        ("state", counts.state),
        ("steps", f"{count(counts.steps)}{span}{missing}"),
        ("policies on record", ", ".join(counts.policies) or "none"),
        ("metrics cover", exact if counts.tokens else "nothing: no token has two log-probs"),
        ("tokens", f"{count(counts.tokens)}{whole}"),
        ("set aside", _listed(_set_aside(counts)) or "nothing"),
        (
            "sequences logged",
            f"{count(counts.offered)} by {count(counts.writers, 'writer')}, {count(counts.written)} written",
        ),
        *(
            [("in statistics only", f"{count(counts.left_out, 'sequence')}, because of the budget")]
            if counts.left_out
            else []
        ),
        ("dropped", _dropped(counts)),
        *(("writer in trouble", state) for state in counts.states),
        *([("lost", lost_words(counts.lost, counts.gone, counts.silent))] if _ended_badly(counts) else []),
        *([("pending in a running writer", count(counts.pending, "sequence"))] if counts.pending else []),
        *(("not shown", words) for words in counts.replaced),
        *([("files without a commit", count(counts.uncommitted))] if counts.uncommitted else []),
        ("files set aside", _files_set_aside(counts)),
        *(("note", note) for note in counts.notes),
    ]


def _set_aside(counts: Quality) -> dict[str, int]:
    return {
        "tokens with a log-prob that is NaN or infinite": counts.non_finite,
        "positive log-probs (counted, not left out)": counts.positive_logprobs,
        "tokens of weight 0": counts.zero_weight_tokens,
        "sequences with a token set aside": counts.sequences_set_aside,
        "sequences without an unmasked token": counts.empty_sequences,
    }


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count(number)} {what}" for what, number in counts.items() if number)


def _ended_badly(counts: Quality) -> bool:
    return bool(counts.lost or counts.gone or counts.silent)


def _dropped(counts: Quality) -> str:
    if not counts.dropped:
        return "nothing"
    reasons = "; ".join(f"{count(drop.sequences)} {drop.reason}" for drop in counts.drop_reasons)
    tokens = f"tokens {UNSEEN}" if counts.dropped_tokens is None else count(counts.dropped_tokens, "token")
    return f"{count(counts.dropped, 'sequence')} ({reasons}); {tokens}"


def _files_set_aside(counts: Quality) -> str:
    if not counts.quarantined:
        return "none"
    rows = f", with {count(counts.rows_set_aside, 'token row')}" if counts.rows_set_aside else ""
    return f"{count(len(counts.quarantined))}{rows}"
