"""The one table of where a metric stands: on cards, in charts, in tables, in pickers. It has a row per metric of a gap.

A metric without a row stands in the lists of all metrics: JSON and CSV, `explain`, the report's list, its topic on the page
Metrics. No other file of app contains a metric's name (tests/project/test_metric_names_in_app.py).
The metrics of a gap by topic.
"""

from collections.abc import Mapping
from functools import cache
from typing import Literal, get_args

from ratioscope.metrics.definitions import (
    divergence,
    gradient,
    honesty,
    perplexity,
    probability,
    structure,
    surprisal,
    tail,
    validity,
    weights,
)
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.metric import SAMPLED, Metric, Topic
from ratioscope.record import kin

MetricPlace = Literal["card", "chart", "first", "main", "core", "table", "bars", "runs"]
"""card: the cards of Overview, and the first rows of Compare. chart: the charts of Overview, the report and Compare.
first: the charts that Overview draws at once; the others wait in a drawer, so that the page paints quickly.
main: what the page Charts shows unless asked for others; with the quantiles as many as it draws in half a second.
core: the table of `ratioscope metrics` unless --metric says otherwise. table: the report's tables by slice.
bars: what the page Where offers for the bars of a slice. runs: what the page Runs draws of each run."""

_Ranks = tuple[int, int, int, int, int, int, int, int]
"""The rank of a metric in each MetricPlace, in their order; 0: it does not stand there."""

# fmt: off
_OF_SAMPLED: dict[str, _Ranks] = {
    #                               card chart first main core table bars runs
    "kl_k3":                           (1,  1,  1,  1,  1,  2,  1,  1),
    "kl_direct":                       (0,  2,  0,  0,  0,  0,  2,  0),
    "abs_log_ratio":                   (2,  3,  3,  2,  3,  3,  3,  0),
    "mean_log_ratio":                  (0,  0,  0,  0,  0,  4,  0,  0),
    "max_abs_log_ratio":               (0,  4,  0,  0,  6,  0,  4,  0),
    "chi2_token":                      (3,  5,  0,  0,  7,  0,  7,  0),
    "ess_token":                       (4,  6,  2,  3,  2,  6,  8,  0),
    "share_outside_0.5_2":             (0,  7,  4,  4,  4,  0,  5,  0),
    "share_outside_0.8_1.2":           (0,  0,  0,  0,  0,  5,  6,  0),
    "log_mean_square_weight_sequence": (0,  8,  0,  0,  0,  0,  0,  0),
    "ess_sequence":                    (5,  9,  0,  0,  5,  0,  0,  0),
    "ppl_ratio":                       (6, 10,  0,  5,  0,  0,  0,  0),
    # These say whether the others can be believed.
    "mean_weight_token":               (0, 11,  0,  0,  0,  0,  9,  0),
    "pareto_k_token":                  (0, 12,  0,  0,  0,  0,  0,  0),
    "logprob_correlation":             (0, 13,  0,  0,  0,  0,  0,  0),
    "surprisal_gap":                   (0, 14,  0,  0,  0,  0,  0,  0),
    "prob_diff":                       (0,  0,  0,  0,  0,  0, 10,  0),
    "tokens":                          (0,  0,  0,  0,  8,  1,  0,  0),
}
_OF_DRIFT: dict[str, _Ranks] = {
    #                               card chart first main core table bars runs
    "ppo_kl":                          (1,  1,  1,  1,  0,  0,  2,  0),
    "kl_k2":                           (2,  2,  2,  0,  0,  0,  1,  0),
    "abs_log_ratio":                   (3,  3,  3,  2,  1,  2,  3,  0),
    "mean_log_ratio":                  (0,  0,  0,  0,  0,  3,  0,  0),
    "max_abs_log_ratio":               (4,  4,  0,  3,  2,  0,  4,  0),
    "share_outside_0.8_1.2":           (5,  5,  4,  4,  0,  4,  5,  0),
    "share_outside_0.5_2":             (0,  0,  0,  0,  3,  0,  0,  0),
    "prob_diff":                       (6,  6,  0,  0,  0,  0,  6,  0),
    "ppl_ratio":                       (0,  7,  0,  5,  0,  0,  0,  0),
    "tokens":                          (0,  0,  0,  0,  4,  1,  0,  0),
}
# fmt: on

SequencePlace = Literal["order", "column", "fault", "prompt", "report"]
"""order: what the page Sequences sorts by. column: its columns. fault: its columns where any sequence has one.
prompt: the columns of its list of prompts. report: the facts of the report's worst sequences, which the first one ranks."""

# fmt: off
_OF_SEQUENCE: dict[str, tuple[int, int, int, int, int]] = {
    # Metrics of one sequence, and what only a sequence has (ingest/rows/sequences.py).
    #                        order column fault prompt report
    "max_abs_log_ratio":        ( 1,  1,  0,  1,  1),
    "worst_position":           ( 0,  2,  0,  0,  0),
    "kl_k3":                    ( 2,  3,  0,  2,  2),
    "abs_log_ratio":            ( 7,  4,  0,  0,  0),
    "log_ratio_sum":            ( 4,  5,  0,  0,  3),
    "log_ratio_mean":           ( 5,  6,  0,  3,  0),
    "weight":                   ( 6,  7,  0,  0,  0),
    "tokens":                   ( 8,  8,  0,  0,  0),
    "confident_disagreements":  ( 3,  0,  1,  4,  0),
    "non_finite":               ( 0,  0,  2,  0,  0),
    "zero_weight_tokens":       ( 0,  0,  3,  0,  0),
    "length":                   ( 9,  0,  0,  0,  0),
    "reward":                   (10,  0,  0,  0,  0),
}
# fmt: on

TINT = "abs_log_ratio"
"""The metric at whose steps the colour of a token changes."""
OF_FLOOR = ("kl_k3", "abs_log_ratio")
"""The metrics that a noise floor is stored of: the size of the gap first, then one that every gap has."""

FIRST_PAIR = {"steps": ("abs_log_ratio", "kl_k3"), "sequences": ("length", "kl_k3")}
"""The two metrics that the page Charts draws against each other first, over steps and over sequences."""

_TITLES = {
    "worst_position": "At position",
    "log_ratio_sum": "Sum of log-ratios",
    "log_ratio_mean": "Mean log-ratio",
    "weight": "Weight of the sequence",
    "confident_disagreements": "Confident disagreements",
    "length": "Length",
    "reward": "Reward",
    "advantage": "Advantage",
    "lag": "Version lag",
    "hits": "Hits",
    "matching": "Tokens of the filter",
    "tokens_within": "Tokens in the range",
    "first_within": "First of these",
    "samples": "Samples",
    "mean_length": "Mean length",
    "mean_reward": "Mean reward",
    "sd_of_reward": "Spread of rewards",
    "sequence_id": "Sequence",
    "group_id": "Prompt group",
    "prompt_text": "Prompt",
    "minibatch": "Minibatch",
    "replica": "Engine replica",
    "rank": "Trainer rank",
    "finish_reason": "Finish reason",
}
"""Titles of what only a sequence or a prompt has."""

SPOKEN = {"max_abs_log_ratio": "max |x|", "kl_k3": "KL K3", "log_ratio_sum": "sum of x"}
"""Measures of a sequence in the words of a report."""

_FAMILIES = (divergence, gradient, weights, perplexity, probability, structure, tail, honesty, surprisal, validity)
"""Metrics in the order of their topics."""


@cache
def names_at(place: MetricPlace, gap: str) -> tuple[str, ...]:
    """The names of the metrics of a gap that stand there, in their order.

    >>> names_at("first", "drift"), names_at("runs", "drift")
    (('ppo_kl', 'kl_k2', 'abs_log_ratio', 'share_outside_0.8_1.2'), ())
    """
    return _ranked(_OF_SAMPLED if kin(gap) in SAMPLED else _OF_DRIFT, get_args(MetricPlace).index(place))


def title_of(name: str) -> str:
    """A metric, or a measure of a sequence, in words; a name without a title stays as it is.

    >>> title_of("abs_log_ratio"), title_of("weight"), title_of("group_id"), title_of("my_column")
    ('Mean |log-ratio|', 'Weight of the sequence', 'Prompt group', 'my_column')
    """
    return _TITLES.get(name) or (BY_NAME[name].title if name in BY_NAME else name)


def in_words(name: str) -> str:
    """The title with the name behind it, for a picker: a reader reads the one and may type the other.

    >>> in_words("kl_direct"), in_words("length")
    ('KL, direct estimate · kl_direct', 'Length')
    """
    return titled(title_of(name), name)


def titled(title: str, name: str) -> str:
    """The title with the name behind it, unless both are one word."""
    return title if title.casefold() == name else f"{title} · {name}"


def metrics_at(place: MetricPlace, gap: str) -> tuple[Metric, ...]:
    """The metrics of a gap that stand there, in their order."""
    return tuple(BY_NAME[name] for name in names_at(place, gap))


@cache
def sequence_measures_at(place: SequencePlace) -> tuple[str, ...]:
    """The names of the measures of a sequence that stand there, in their order."""
    return _ranked(_OF_SEQUENCE, get_args(SequencePlace).index(place))


def _ranked(rows: Mapping[str, tuple[int, ...]], column: int) -> tuple[str, ...]:
    return tuple(sorted((name for name, row in rows.items() if row[column]), key=lambda name: rows[name][column]))


GROUPS: dict[str, tuple[Metric, ...]] = {
    topic: tuple(metric for family in _FAMILIES for metric in family.METRICS if metric.topic == topic)
    for topic in get_args(Topic)
}
"""Topic -> metrics; every metric is in one of them."""


def of_gap(gap: str) -> dict[str, tuple[Metric, ...]]:
    """The groups with the metrics that this gap has."""
    groups = {title: tuple(m for m in metrics if m.is_of(gap)) for title, metrics in GROUPS.items()}
    return {title: metrics for title, metrics in groups.items() if metrics}
