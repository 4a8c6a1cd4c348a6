"""A small language model in numpy that reads a row token by token: a gated state, attention over keys, experts, a head.

Everything that a fault touches is explicit: weights may change while a row is read, keys stay as they were made, positions,
padding and the rounding of each product are arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Weights = dict[str, Floats]
Round = Callable[[Floats], Floats]
END, BEGIN, PAD, BREAK = 0, 1, 2, 3
"""Ids of the end, the begin, the padding, and the border of a message."""
WORDS = 4
"""The first id that is a word."""


@dataclass(frozen=True)
class Shape:
    """The architecture, and how sharp its policy is at first."""

    vocab: int = 320
    hidden: int = 24
    gated: bool = True
    """True: a gated recurrent state. False: the embedding alone, so that all context comes by attention."""
    attention: bool = True
    experts: int = 1
    """Each token goes through the one that its router chooses."""
    sharp: float = 1.6
    """Mean of the log of the spread of the logits, nats."""
    uneven: float = 0.6
    """Standard deviation of it over contexts: most tokens of a language model are nearly certain, some are open."""
    places: float = 0.3
    """Size of the position encoding beside the embedding."""
    end: float = 0.0
    """Logit of END beside the others."""


@dataclass(frozen=True)
class Reading:
    """The numerics and the habits of one side."""

    bits: int = 24
    """Bits of the mantissa of every product: 24 fp32, 11 fp16, 8 bf16."""
    noise: float = 0.0
    """Relative noise of the hidden state, as of other kernels."""
    key_bits: int = 24
    """Bits of the mantissa of cached keys and values: 4 for fp8."""
    dropout: float = 0.0
    """Share of the hidden state that is dropped."""
    flips: float = 0.0
    """Share of the tokens that go through another expert."""
    offset: int = 0
    """Added to every position."""
    last_place: int = 1 << 30
    """Positions beyond it count as it."""
    window: int = 1 << 30
    """Attention sees so many tokens at most."""
    sees_padding: bool = False
    temperature: float = 1.0
    """Temperature of the log-probs that this side reports."""
    cap: float = 0.0
    """Soft cap of the logits; 0 for none."""


def weights_of(shape: Shape, rng: np.random.Generator) -> Weights:
    """Random weights."""
    d = shape.hidden

    def normal(*size: int, scale: float = 1.0) -> Floats:
        return (rng.standard_normal(size) * scale).astype(np.float32)

    own = {
        "embed": normal(shape.vocab, d),
        "update": normal(2 * d, d, scale=1 / np.sqrt(2 * d)),
        "state": normal(2 * d, d, scale=1.2 / np.sqrt(2 * d)),
        "query": normal(d, d, scale=1.5 / np.sqrt(d)),
        "key": normal(d, d, scale=1.5 / np.sqrt(d)),
        "value": normal(d, d, scale=1 / np.sqrt(d)),
        "up": normal(shape.experts, d, 2 * d, scale=1 / np.sqrt(d)),
        "down": normal(shape.experts, 2 * d, d, scale=1 / np.sqrt(2 * d)),
        "router": normal(d, shape.experts),
        "head": normal(d, shape.vocab),
        "sharp": normal(d),
    }
    own["head"][:, END] *= 0.1
    return own


def rounded(x: Floats, bits: int) -> Floats:
    """The nearest numbers with so many bits of mantissa, ties to even."""
    if bits >= 24:
        return x
    drop = 24 - bits
    raw = np.ascontiguousarray(x, np.float32).view(np.uint32)
    half = np.uint32((1 << (drop - 1)) - 1)
    odd = (raw >> np.uint32(drop)) & np.uint32(1)
    kept = (raw + half + odd) & np.uint32((0xFFFFFFFF << drop) & 0xFFFFFFFF)
    return kept.view(np.float32)


def log_softmax(logits: Floats) -> Floats:
    top = logits.max(-1, keepdims=True)
    out: Floats = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    return out


@dataclass
class Reader:
    """One side while it reads a batch of rows."""

    shape: Shape
    weights: Weights
    how: Reading
    rng: np.random.Generator
    rows: int
    length: int
    """Tokens of the longest row."""
    start: Ints
    """The first place of each row that is no padding, (B,)."""
    at: int = 0
    """Place of the next token."""
    mean_state: Floats = field(init=False)
    keys: Floats = field(init=False)
    values: Floats = field(init=False)

    def __post_init__(self) -> None:
        d = self.shape.hidden
        self.mean_state = np.zeros((self.rows, d), np.float32)
        self.keys = np.zeros((self.rows, self.length, d), np.float32)
        self.values = np.zeros_like(self.keys)

    def read(self, tokens: Ints, weights: Weights | None = None) -> tuple[Floats, Floats]:
        """(logits of the next token (B, V), hidden state that the head reads (B, D)) once these tokens are read."""
        w, how, shape = weights or self.weights, self.how, self.shape
        fit: Round = lambda x: rounded(x, how.bits)  # noqa: E731
        skipped = np.zeros_like(self.start) if how.sees_padding else self.start
        places = np.minimum(np.maximum(self.at - skipped, 0) + how.offset, how.last_place)
        x = fit(w["embed"][tokens] + shape.places * _encodings(shape.hidden)[places])
        if shape.gated:
            both = np.concatenate([x, self.mean_state], 1)
            gate = 1 / (1 + np.exp(-fit(both @ w["update"])))
            state = fit((1 - gate) * self.mean_state + gate * np.tanh(1.5 * fit(both @ w["state"])))
            is_padding = (self.at < skipped)[:, None]
            self.mean_state = np.where(is_padding, 0, state).astype(np.float32)
            x = self.mean_state
        if shape.attention:
            x = self._attended(w, x, skipped, fit)
        x = self._through_experts(w, x, fit)
        hidden = x / (np.sqrt((x * x).sum(-1, keepdims=True)) + 1e-6)
        if how.noise:
            hidden = hidden * (1 + how.noise * self.rng.standard_normal(hidden.shape).astype(np.float32))
        if how.dropout:
            kept = self.rng.random(hidden.shape) >= how.dropout
            hidden = (hidden * kept / (1 - how.dropout)).astype(np.float32)
        hidden = fit(hidden.astype(np.float32))
        scale = np.exp(shape.sharp + shape.uneven * np.clip(hidden @ w["sharp"], -2, 2))[:, None]
        logits = fit((fit(hidden @ w["head"]) * scale).astype(np.float32))
        logits[:, END] += shape.end
        logits[:, BEGIN:WORDS] -= 6
        if how.cap:
            logits = how.cap * np.tanh(logits / how.cap)
        self.at += 1
        return logits.astype(np.float32), hidden * scale

    def _attended(self, w: Weights, x: Floats, skipped: Ints, fit: Round) -> Floats:
        at, how = self.at, self.how
        self.keys[:, at] = rounded(fit(x @ w["key"]), how.key_bits)
        self.values[:, at] = rounded(fit(x @ w["value"]), how.key_bits)
        low = max(0, at + 1 - how.window)
        scores = np.einsum("bd,btd->bt", fit(x @ w["query"]), self.keys[:, low : at + 1]) / np.sqrt(x.shape[1])
        hides = np.arange(low, at + 1)[None] < np.minimum(skipped, at)[:, None]
        share = np.exp(log_softmax(np.where(hides, np.float32(-1e9), scores)))
        return fit(x + fit(np.einsum("bt,btd->bd", share, self.values[:, low : at + 1]).astype(np.float32)))

    def _through_experts(self, w: Weights, x: Floats, fit: Round) -> Floats:
        if self.shape.experts == 1:
            return fit(x + fit(np.maximum(fit(x @ w["up"][0]), 0) @ w["down"][0]))
        order = np.argsort(-(x @ w["router"]), axis=1)
        flipped = self.rng.random(len(x)) < self.how.flips if self.how.flips else np.zeros(len(x), bool)
        chosen = np.where(flipped, order[:, 1], order[:, 0])
        out = np.empty_like(x)
        for expert in np.unique(chosen):
            own = chosen == expert
            out[own] = fit(np.maximum(fit(x[own] @ w["up"][expert]), 0) @ w["down"][expert])
        return fit(x + out)


@cache
def _encodings(size: int) -> Floats:
    """Sines and cosines of the first positions, (8192, size)."""
    rates = 1 / 200 ** (np.arange(size // 2) / (size // 2))
    angles = np.arange(8192)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles), np.zeros((8192, size % 2))], 1).astype(np.float32)


@dataclass(frozen=True)
class Sampling:
    """The rules by which the engine draws tokens, and the log-probs that it reports."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition: float = 1.0
    """Repetition penalty as of vLLM: logits of seen tokens are divided by it if positive, else multiplied."""
    presence: float = 0.0
    """Subtracted from the logits of seen tokens."""
    banned: tuple[int, ...] = ()
    favoured: tuple[int, ...] = ()
    bias: float = 0.0
    """Added to the logits of the favoured ids."""
    min_tokens: int = 0
    """END cannot be drawn before so many tokens."""
    grammar: tuple[int, int, int] = (0, 0, 0)
    """(period, length of the span, remainder): in the spans only ids that are 0 modulo the last number can be drawn."""
    greedy: bool = False
    report: str = "processed"
    """processed: the log-probs that were drawn from. raw: those of the policy at temperature 1. scaled: at the temperature."""

    def logits(self, logits: Floats, place: int, seen: Booleans) -> Floats:
        """The logits that tokens are drawn from."""
        out: NDArray[np.floating[Any]] = logits.copy()
        if self.repetition != 1:
            out = np.where(seen, np.where(out > 0, out / self.repetition, out * self.repetition), out)
        out = out - np.float32(self.presence) * seen
        never = np.float32(-1e9)
        out[:, list(self.favoured)] += np.float32(self.bias)
        out[:, list(self.banned)] = never
        if place < self.min_tokens:
            out[:, END] = never
        period, span, modulus = self.grammar
        if modulus and place % period < span:
            out[:, np.arange(out.shape[1]) % modulus != 0] = never
        out = out / np.float32(self.temperature)
        return _truncated(out, self).astype(np.float32)


def _truncated(logits: NDArray[np.floating[Any]], how: Sampling) -> NDArray[np.floating[Any]]:
    if how.top_p >= 1 and not how.top_k and not how.min_p:
        return logits
    order = np.argsort(-logits, axis=-1, kind="stable")
    p = np.exp(log_softmax(np.take_along_axis(logits, order, -1)))
    kept = np.cumsum(p, -1) - p < how.top_p
    if how.top_k:
        kept &= np.arange(p.shape[1]) < how.top_k
    if how.min_p:
        kept &= p >= how.min_p * p[:, :1]
    mask = np.zeros_like(kept)
    np.put_along_axis(mask, order, kept, -1)
    return np.where(mask, logits, np.float32(-1e9))


@dataclass(frozen=True)
class Rows:
    """A batch of rows, padded on the left."""

    prompts: Ints
    """(B, P)."""
    start: Ints
    """(B,): the first place that is no padding."""
    forced: Ints
    """(B, T): ids of the response; -1 where they are drawn."""

    @classmethod
    def of(cls, prompts: list[list[int]], forced: Ints) -> Rows:
        width = max(map(len, prompts))
        padded = np.full((len(prompts), width), PAD)
        for at, prompt in enumerate(prompts):
            padded[at, width - len(prompt) :] = prompt
        return cls(padded, np.array([width - len(prompt) for prompt in prompts]), forced)

    def where(self, kept: Ints) -> Rows:
        return replace(self, prompts=self.prompts[kept], start=self.start[kept], forced=self.forced[kept])


@dataclass(frozen=True)
class Passed:
    """One side's reading of a batch; every array (B, T)."""

    tokens: Ints
    logps: Floats
    entropy: Floats
    hidden: Floats
    """(B, T, D), times the sharpness: what the head read."""
    p: Floats | None = None
    """(B, T, V), if asked for."""


def passed(
    shape: Shape,
    weights: Weights,
    how: Reading,
    rows: Rows,
    rng: np.random.Generator,
    *,
    sampling: Sampling | None = None,
    older: Weights | None = None,
    until: int = 0,
    keeps_p: bool = False,
) -> Passed:
    """One side reads these rows, and draws what is not forced.

    older, until: the prompt and so many tokens of the response are read with older weights; keys and state stay.
    """
    b, width = rows.prompts.shape
    t = rows.forced.shape[1]
    reader = Reader(shape, weights, how, rng, b, width + t, rows.start)
    older = weights if older is None else older
    seen = np.zeros((b, shape.vocab), bool)
    everyone = np.arange(b)
    for place in range(width - 1):
        reader.read(rows.prompts[:, place], older)
        seen[everyone, rows.prompts[:, place]] = True
    token = rows.prompts[:, -1]
    out = Passed(
        np.empty((b, t), np.int64), np.empty((b, t), np.float32), np.empty((b, t), np.float32),
        np.empty((b, t, shape.hidden), np.float32), np.empty((b, t, shape.vocab), np.float32) if keeps_p else None,
    )  # fmt: skip
    for place in range(t):
        logits, out.hidden[:, place] = reader.read(token, older if place < until else weights)
        seen[everyone, token] = True
        own = log_softmax(logits / np.float32(how.temperature))
        if sampling is not None:
            from_logits = sampling.logits(logits, place, seen)
            drawn = log_softmax(from_logits)
            noise = 0 if sampling.greedy else rng.gumbel(size=drawn.shape)
            token = np.where(rows.forced[:, place] < 0, (drawn + noise).argmax(-1), rows.forced[:, place])
            if sampling.report == "processed":
                own = drawn
            elif sampling.report == "scaled":
                own = log_softmax(logits / np.float32(sampling.temperature))
        else:
            token = rows.forced[:, place]
        out.tokens[:, place] = token
        out.logps[:, place] = own[everyone, token]
        p = np.exp(own)
        out.entropy[:, place] = -(p * np.where(p > 0, own, 0)).sum(-1)
        if out.p is not None:
            out.p[:, place] = p
    return out


def improved(
    weights: Weights, shape: Shape, own: Passed, advantages: Floats, counts: Booleans, momentum: Weights, rate: float
) -> Weights:
    """The weights after one policy-gradient update of the head and of the last layer, of this relative size.

    counts: (B, T), the tokens that are trained. momentum: changed in place.
    """
    assert own.p is not None
    push = -own.p.copy()
    np.put_along_axis(push, own.tokens[..., None], np.take_along_axis(push, own.tokens[..., None], -1) + 1, -1)
    push *= (advantages[:, None] * counts)[..., None]
    flat, hidden = push.reshape(-1, shape.vocab), own.hidden.reshape(-1, shape.hidden)
    scale = np.linalg.norm(hidden, axis=1, keepdims=True)
    to_hidden = flat @ weights["head"].T * scale
    gradients: Weights = {"head": hidden.T @ flat, "value": hidden.T @ to_hidden}
    new = dict(weights)
    for name, gradient in gradients.items():
        momentum[name] = 0.8 * momentum.get(name, np.zeros_like(gradient)) + gradient
        size = np.sqrt((momentum[name] ** 2).mean()) + 1e-12
        new[name] = (weights[name] + rate * weights[name].std() * momentum[name] / size).astype(np.float32)
    return new


def wandered(weights: Weights, rng: np.random.Generator, size: float, names: tuple[str, ...]) -> Weights:
    """The weights after a random update of this relative size, of these tensors."""
    return weights | {
        name: (value + size * value.std() * rng.standard_normal(value.shape)).astype(np.float32)
        for name, value in weights.items()
        if name in names
    }


def quantised(
    weights: Weights, levels: int, names: tuple[str, ...] = ("state", "update", "up", "down", "head")
) -> Weights:
    """The weights on a grid of so many levels to each side, a grid for each column."""
    out = dict(weights)
    for name in names:
        step = np.abs(weights[name]).max(-2, keepdims=True) / levels + 1e-12
        out[name] = (np.round(weights[name] / step) * step).astype(np.float32)
    return out
