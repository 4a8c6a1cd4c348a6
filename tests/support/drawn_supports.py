"""Tokens that are drawn from a small vocabulary, each with the likeliest tokens of its position under two policies."""

import numpy as np

from ratioscope.metrics.analysis.support_bins import SupportTokens


def drawn(
    random: np.random.Generator,
    *,
    n: int = 600,
    vocabulary: int = 7,
    k: int = 7,
    gap: float = 0.3,
    per: int = 10,
    bias: float = 0.0,
) -> SupportTokens:
    """n tokens, each sampled from a rollout of its own, with the k likeliest of the vocabulary. gap: noise of the logits.

    bias: what the sampler's logits add to the trainer's own, times these logits. per: tokens of a sequence.
    """
    logits = random.normal(0, 1.5, (n, vocabulary))
    train = log_softmax(logits)
    rollout = log_softmax((1 + bias) * logits + random.normal(0, gap, logits.shape))
    sampled = np.array([random.choice(vocabulary, p=np.exp(row)) for row in rollout])
    ids = np.argsort(-rollout, axis=1)[:, :k].astype(np.int64)
    rows = np.arange(n)
    return SupportTokens(
        ids, np.take_along_axis(rollout, ids, 1), np.take_along_axis(train, ids, 1), sampled,
        rollout[rows, sampled], train[rows, sampled], random.normal(0, 1, n // per).repeat(per), np.ones(n, bool),
        rows // per, np.ones(n),
    )  # fmt: skip


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
