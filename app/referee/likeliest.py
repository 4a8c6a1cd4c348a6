"""Log-probs of given tokens at another temperature, or renormalised over the tokens that a sampler keeps, between two bounds.

A server scores given tokens at temperature 1, and gives the K likeliest tokens of each place beside the recorded one. The rest of
the probability belongs to tokens of which each has at most that of the K-th. So the sum that normalises lies between two numbers:
equal where the rest is cut off, near each other below temperature 1, and apart above it, where many rare tokens count.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Booleans, Floats, Singles
from ratioscope.errors import SourceError

LIKELIEST = 20
"""Tokens of each place that a server is asked for: vLLM gives no more unless it is started with --max-logprobs."""
ABOVE = 1e-4
"""A log-prob above 0 by more than this is none: softmax in float32 rounds by less."""
NONE = -9999.0
"""The number that vLLM writes for minus infinity."""
WHOLE = 1e-3
"""The probabilities of all tokens add up to 1 within this."""
VOCABULARY = 1 << 18
"""Tokens that a vocabulary has at most. Above temperature 1 the bounds depend on it; the largest in use have so many."""
ROUNDED = 1e-5
"""The error of the probability that is left, and of one log-prob written twice: log_softmax in float32 rounds by less."""
Setting = tuple[str, float]
"""A parameter of a sampler by the name that vLLM and SGLang have for it, and its value."""
Between = tuple[Floats, Floats]
"""The least and the greatest log-prob of each token, nats, shape (tokens,)."""


@dataclass(frozen=True)
class Likeliest:
    """The log-probs of the tokens of a response and of the likeliest ones at their places, nats, at temperature 1."""

    own: Floats
    """Those of the response, shape (tokens,)."""
    top: Floats
    """Those of the likeliest, from the first on, shape (tokens, K)."""

    @property
    def is_beyond(self) -> Booleans:
        """True for a token of the response that is less likely than all that are listed, by more than ROUNDED."""
        found: Booleans = self.own < self.top[:, -1] - ROUNDED
        return found

    @property
    def beyond(self) -> Floats:
        """The probability of such a token; 0 for one that is listed."""
        return np.where(self.is_beyond, np.exp(self.own), 0.0)

    @property
    def rest(self) -> Floats:
        """The probability of all others, with the error of ROUNDED."""
        found: Floats = np.maximum(1 - np.exp(self.top).sum(1) - self.beyond, 0.0)
        return found


Places = Sequence[Sequence[float]]
"""The log-probs of the likeliest tokens at each place of a response."""


def asked(kind: str, number: int) -> dict[str, Any]:
    """The part of a body that asks a server of this kind for the likeliest tokens of so many sequences."""
    return {"prompt_logprobs": LIKELIEST} if kind == "vllm" else {"top_logprobs_num": [LIKELIEST] * number}


def likeliest_in(kind: str, answer: Any, lengths: Sequence[int]) -> list[Places]:
    """The likeliest tokens at the places of each response. lengths: its tokens, shape (sequences,)."""
    if kind == "sglang":
        rows = [one["meta_info"]["input_top_logprobs"] for one in answer]
        found = [[[logprob for logprob, *_ in place or ()] for place in row] for row in rows]
    else:
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        rows = [choice["prompt_logprobs"] for choice in choices]
        found = [[[entry["logprob"] for entry in (place or {}).values()] for place in row] for row in rows]
    return [row[-length:] for row, length in zip(found, lengths, strict=True)]


def likeliest(own: Singles, places: Places) -> Likeliest:
    """The log-probs of a response, and of the likeliest tokens. SourceError unless they are as many as were asked for."""
    rows = [sorted(place, reverse=True)[:LIKELIEST] for place in places]
    width = max(map(len, rows))
    top = np.array([row + [NONE] * (width - len(row)) for row in rows], np.float64)
    whole, is_short = np.exp(top).sum(1), np.array([len(row) < LIKELIEST for row in rows])
    fits = (top <= ABOVE).all(1) & (whole <= 1 + WHOLE) & (~is_short | (whole >= 1 - WHOLE))
    if len(rows) != len(own) or not fits.all():
        raise SourceError(
            f"the likeliest tokens are {min(map(len, rows))} at a place, {len(rows)} places, of a probability of up to"
            f" {whole.max():.4g}; wanted the log-probs of {LIKELIEST} at each of {len(own)} places; nothing of it is kept"
        )
    return Likeliest(own.astype(np.float64), np.minimum(top, 0.0))


def between(known: Likeliest, setting: Setting) -> Between:
    """The bounds of the log-probs under a setting."""
    name, value = setting
    return _BOUNDS[name](known, value)


def _at_temperature(known: Likeliest, temperature: float) -> Between:
    """p^a / sum p^a with a = 1/T. The rest r, in parts of at most c, adds between r c^(a-1) and n (r/n)^a.

    Both are power means; the one is the most where a > 1, the other where a < 1.
    """
    power, first = 1 / temperature, known.top[:, 0]
    listed = np.exp(power * (known.top - first[:, None])).sum(1)
    listed += np.where(known.is_beyond, np.exp(power * (known.own - first)), 0.0)
    with np.errstate(divide="ignore"):
        least, most = (np.log(np.maximum(known.rest + off, 0.0)) for off in (-ROUNDED, ROUNDED))
    whole, even = (power - 1) * known.top[:, -1], (1 - power) * np.log(VOCABULARY)
    few, many = (least + whole, power * most + even) if power < 1 else (power * least + even, most + whole)
    sums = [np.log(listed + np.exp(added - power * first)) for added in (many, few)]
    low, high = (np.minimum(power * (known.own - first) - own, 0.0) for own in sums)
    return low, high


def _cut(known: Likeliest, kept: Booleans, more: tuple[Floats, Floats]) -> Between:
    """The recorded token was sampled, so it is kept. more: the probability of others that are kept, at least and at most."""
    mass = (np.exp(known.top) * kept).sum(1)
    is_out = known.own < np.where(kept, known.top, np.inf).min(1) - ROUNDED
    mass = mass + np.where(is_out, np.exp(known.own), 0.0)
    low, high = (np.minimum(known.own - np.log(np.minimum(mass + own, 1 + ROUNDED)), 0.0) for own in more[::-1])
    return low, high


def _top_p(known: Likeliest, value: float) -> Between:
    listed = np.exp(known.top)
    before = listed.cumsum(1) - listed
    lacks = np.maximum(value - listed.sum(1), 0.0)
    return _cut(
        known,
        before < value,
        (lacks - np.minimum(lacks, known.beyond), lacks + np.where(lacks > 0, listed[:, -1], 0.0)),
    )


def _top_k(known: Likeliest, value: float) -> Between:
    width = known.top.shape[1]
    kept = np.broadcast_to(np.arange(width) < value, known.top.shape)
    more = np.minimum(max(value - width, 0) * np.exp(known.top[:, -1]), known.rest)
    return _cut(known, kept, (np.zeros_like(more), more))


def _min_p(known: Likeliest, value: float) -> Between:
    least = known.top[:, :1] + np.log(value)
    more = np.where(known.top[:, -1] >= least[:, 0], known.rest, 0.0)
    return _cut(known, known.top >= least, (np.zeros_like(more), more))


_BOUNDS: Mapping[str, Callable[[Likeliest, float], Between]] = {
    "temperature": _at_temperature,
    "top_p": _top_p,
    "top_k": _top_k,
    "min_p": _min_p,
}
SETTINGS = tuple(_BOUNDS)
"""Names of the settings under which a server's log-probs can be bounded."""
