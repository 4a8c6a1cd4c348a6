"""Counts: the tokens and sequences that metrics are computed from, and those set aside."""

from ..metric import Metric, Statistic

UNMASKED = Statistic("unmasked_tokens", lambda c, xp: c.unmasked)
TOKENS = Statistic("tokens", lambda c, xp: c.token)
FINITE = Statistic("finite_tokens", lambda c, xp: c.finite)
ZERO_WEIGHT = Statistic("zero_weight_tokens", lambda c, xp: c.token - c.finite)
NON_FINITE = Statistic("non_finite", lambda c, xp: c.unmasked - c.token)
POSITIVE = Statistic("positive_logprobs", lambda c, xp: c.positive)
SEQUENCES = Statistic("sequences", lambda s, xp: s.sequence, "sequence")
EMPTY = Statistic("empty_sequences", lambda s, xp: s.empty, "sequence")
SET_ASIDE = Statistic("sequences_set_aside", lambda s, xp: s.set_aside, "sequence")


def _count(title: str, statistic: Statistic, meaning: str, formula: str, *, unit: str = "1") -> Metric:
    return Metric(
        statistic.name,
        unit,
        formula,
        meaning,
        title=title,
        needs=(statistic,),
        value=lambda n: n,
        level="sequence" if statistic.level == "sequence" else "token",
        estimator="count",
        kind="count",
        topic="counts",
        range="0, 1, 2, ...",
        absent="a slice by token has no whole sequences" if statistic.level == "sequence" else "no row is on record",
    )


METRICS = (
    _count(
        "Tokens",
        TOKENS,
        "The number of tokens that the metrics of this gap are computed from.",
        "unmasked tokens that were not set aside",
    ),
    _count(
        "Sequences",
        SEQUENCES,
        "The number of sequences that the sequence metrics of this gap are computed from.",
        "sequences with at least one token and none set aside",
    ),
    _count(
        "Tokens set aside",
        NON_FINITE,
        "Unmasked tokens that are left out of every metric (set aside).",
        "tokens with a NaN or +inf log-prob, or an earlier log-prob of -inf",
    ),
    _count(
        "Sequences set aside",
        SET_ASIDE,
        "Sequences left out of sequence metrics.",
        "sequences with at least one token set aside",
    ),
    _count("Empty sequences", EMPTY, "Sequences without a single unmasked token.", "sequences whose mask is empty"),
    _count(
        "Tokens of weight 0",
        ZERO_WEIGHT,
        "Tokens the later policy gives probability 0.",
        "tokens with a later log-prob of -inf",
    ),
    _count(
        "Positive log-probs",
        POSITIVE,
        "Tokens with a positive value, which cannot be a log-probability. They are counted, but not left out.",
        "tokens with a log-prob above 1e-6",
    ),
)
