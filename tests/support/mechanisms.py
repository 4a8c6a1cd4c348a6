"""Runs of a tiny recurrent language model with one fault each, to see what the diagnosis says of its mechanism.

Both sides read the same weights unless the fault says otherwise, and each adds rounding noise of its own to the logits. The
sampler's log-probs are those that it sampled from.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ratioscope.arrays import Floats, Integers
from ratioscope.metrics.diagnosis.evidence import Evidence

VOCABULARY, WIDTH, EOS = 160, 20, 0
Weights = Mapping[str, Floats]


@dataclass(frozen=True)
class Shape:
    """The size of a run."""

    steps: int = 6
    rows: int = 32
    length: int = 64
    seed: int = 0


@dataclass(frozen=True)
class Reader:
    """One side: its weights, and what it does with a sequence."""

    weights: Weights
    noise: float = 0.02
    """Standard deviation of the rounding of a logit."""
    temperature: float = 1.0
    dropout: float = 0.0
    cap: float = 0.0
    """Logits z become cap tanh(z / cap); 0: they stay."""
    places: int = 0
    """Added to every position id of the response."""
    pads: bool = False
    """True if it reads the padding before a short prompt as tokens."""
    banned: int = 0
    """The end token cannot be sampled at so many first positions."""
    ends: float = 0.0
    """Added to the logit of the end token."""
    bf16: bool = False
    routes: float = 0.0
    """Noise of the router of two experts; 0: no experts."""


def first_weights(draws: np.random.Generator) -> Weights:
    def normal(*shape: int, size: float = 1.0) -> Floats:
        return draws.normal(size=shape) * size

    d = WIDTH
    return {
        "embed": normal(VOCABULARY, d, size=1.4 / np.sqrt(d) * 1.5),
        "mix": normal(d, d, size=0.9 / np.sqrt(d)),
        "mlp": normal(d, d, size=1 / np.sqrt(d)),
        "other": normal(d, d, size=1 / np.sqrt(d)),
        "router": normal(d),
        "places": normal(512, d, size=0.5 / np.sqrt(d)),
        "head": normal(d, VOCABULARY),
        "scale": draws.lognormal(1.6, 0.6, 32),
    }


def updated(
    weights: Weights, draws: np.random.Generator, size: float, names: tuple[str, ...] = ("mix", "mlp", "head")
) -> Weights:
    """The weights after an update of this relative size."""
    return {k: v + (size * v.std() * draws.normal(size=v.shape) if k in names else 0.0) for k, v in weights.items()}


def _step(of: Reader, state: Floats, token: Integers, place: int, draws: np.random.Generator) -> tuple[Floats, Floats]:
    w = of.weights
    state = np.tanh(state @ w["mix"] + w["embed"][token] + w["places"][place])
    out = np.tanh(state @ w["mlp"])
    if of.routes:
        first = state @ w["router"] + of.routes * draws.normal(size=len(state)) > 0
        out = np.where(first[:, None], out, np.tanh(state @ w["other"]))
    state = state + 0.5 * out
    hidden = state / np.linalg.norm(state, axis=1, keepdims=True)
    if of.dropout:
        hidden = hidden * (draws.random(hidden.shape) >= of.dropout) / (1 - of.dropout)
        state = state * (draws.random(state.shape) >= of.dropout) / (1 - of.dropout)
    logits = hidden @ w["head"] * w["scale"][token % 32][:, None]
    if of.bf16:
        logits = (logits.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    else:
        logits = logits + of.noise * draws.normal(size=logits.shape)
    logits[:, EOS] += of.ends
    if of.cap:
        logits = of.cap * np.tanh(logits / of.cap)
    return state, logits / of.temperature


def _switched(at: int, before: Weights, after: Weights) -> Callable[[int], Weights]:
    """The weights at each place of a response: others from one place on."""
    return lambda place: after if place >= at else before


def _log_softmax(logits: Floats) -> Floats:
    top = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(top - np.log(np.exp(top).sum(axis=1, keepdims=True)))


@dataclass
class Texts:
    """Prompts, left-padded, and the responses to them."""

    prompts: Integers
    """Shape (rows, longest prompt)."""
    pads: Integers
    """Padding before each prompt."""
    tokens: Integers
    """Shape (rows, length)."""
    lengths: Integers


def prefilled(of: Reader, texts: Texts, draws: np.random.Generator, start: Floats | None = None) -> Floats:
    """The state after all of the prompt but its last token. start: the state before it."""
    rows, longest = texts.prompts.shape
    state = np.zeros((rows, WIDTH)) if start is None else start
    for place in range(longest - 1):
        following, _ = _step(of, state, texts.prompts[:, place], place + of.places, draws)
        read = (place >= texts.pads) | of.pads
        state = np.where(read[:, None], following, state)
    return state


def read(
    of: Reader,
    texts: Texts,
    draws: np.random.Generator,
    *,
    sampling: bool = False,
    state: Floats | None = None,
    later: Callable[[int], Weights] | None = None,
) -> tuple[Floats, Floats]:
    """(log-probs, entropies) of the responses, shape (rows, length). sampling: the responses are drawn first.

    later: position -> weights from there on.
    """  # fmt: skip
    state = prefilled(of, texts, draws) if state is None else state
    rows, longest = texts.prompts.shape
    own, entropies, token = [], [], texts.prompts[:, -1]
    for place in range(texts.tokens.shape[1]):
        at = of if later is None else replace(of, weights=later(place))
        state, logits = _step(at, state, token, longest - 1 + place + of.places, draws)
        if place < of.banned:
            logits[:, EOS] = -60.0
        logps = _log_softmax(logits)
        if sampling:
            texts.tokens[:, place] = (logps + draws.gumbel(size=logps.shape)).argmax(axis=1)
        token = texts.tokens[:, place]
        own.append(logps[np.arange(rows), token])
        entropies.append(-(np.exp(logps) * logps).sum(axis=1))
    return np.stack(own, 1), np.stack(entropies, 1)


def blank(shape: Shape, draws: np.random.Generator, longest: int = 12) -> Texts:
    prompts = np.repeat(draws.integers(1, VOCABULARY, (shape.rows // 4, longest)), 4, axis=0)
    pads = np.repeat(draws.choice([0, 0, 4, 8], shape.rows // 4), 4)
    prompts[np.arange(longest) < pads[:, None]] = 1
    none = np.zeros((shape.rows, shape.length), np.int64)
    return Texts(prompts, pads, none, np.full(shape.rows, shape.length))


def ended(texts: Texts) -> None:
    """Cuts each response after its first end token."""
    ends = texts.tokens == EOS
    texts.lengths = np.where(ends.any(axis=1), ends.argmax(axis=1) + 1, texts.tokens.shape[1])


Sides = tuple[Floats, Floats, Floats]
"""(the sampler's log-probs, the trainer's, the trainer's entropies), shape (rows, length)."""


def evidence(steps: list[tuple[Texts, Sides]]) -> Evidence:
    """The evidence of these steps, without labels."""
    parts: dict[str, list[np.ndarray]] = {
        name: [] for name in ("earlier", "later", "entropy", "token", "group", "step", "row", "position", "length")
    }
    row = 0
    for step, (texts, (earlier, later, entropy)) in enumerate(steps):
        inside = np.arange(texts.tokens.shape[1]) < texts.lengths[:, None]
        rows, places = np.nonzero(inside)
        for name, values in (("earlier", earlier), ("later", later), ("entropy", entropy)):
            parts[name].append(values[inside].astype(np.float32).astype(np.float64))
        parts["token"].append(texts.tokens[inside])
        parts["group"].append((row + rows) // 4)
        parts["step"].append(np.full(len(rows), step))
        parts["row"].append(row + rows)
        parts["position"].append(places)
        parts["length"].append(texts.lengths[rows])
        row += len(texts.tokens)
    columns = {name: np.concatenate(values) for name, values in parts.items()}
    facts = {name: columns[name] for name in ("entropy", "token", "group", "step", "length")}
    names = {"group": tuple(map(str, range(row // 4)))}
    return Evidence(columns["earlier"], columns["later"], columns["row"], columns["position"], facts, names)


Change = Callable[[Weights, Weights, int, np.random.Generator], tuple[Reader, Reader]]
"""(weights of the step, of the first step, index of the step, draws) -> (sampler, trainer)."""


def run(change: Change, shape: Shape = Shape(), learns: float = 0.02, ends: bool = False) -> Evidence:
    """A run whose two sides differ as `change` says. learns: relative size of an update. ends: responses end at EOS."""
    draws = np.random.default_rng(shape.seed)
    weights = first = first_weights(draws)
    steps = []
    for step in range(shape.steps):
        sampler, trainer = change(weights, first, step, draws)
        texts = blank(shape, draws)
        earlier, _ = read(sampler, texts, draws, sampling=True)
        if ends:
            ended(texts)
        steps.append((texts, (earlier, *read(trainer, texts, draws))))
        weights = updated(weights, draws, learns)
    return evidence(steps)


def two(sampler: Mapping[str, object] | None = None, trainer: Mapping[str, object] | None = None) -> Change:
    """Equal weights, and these settings of each side."""
    return lambda w, *_: (replace(Reader(w), **(sampler or {})), replace(Reader(w), **(trainer or {})))  # type: ignore[arg-type]


def sharper(factor: float) -> Change:
    """Both sides sharpen by this factor with every step: the entropy collapses."""

    def change(w: Weights, first: Weights, step: int, draws: np.random.Generator) -> tuple[Reader, Reader]:
        both = Reader({**w, "scale": w["scale"] * factor**step})
        return both, both

    return change


def stale(names: tuple[str, ...] | None = None) -> Change:
    """The sampler keeps the first values of these tensors; None: of all."""
    return lambda w, first, *_: (Reader(first if names is None else {**w, **{n: first[n] for n in names}}), Reader(w))


def other_rows(name: str, ids: int, axis: int) -> Change:
    """The sampler has the rows of so many ids moved by one: a vocabulary that was resized or sharded in another way."""

    def change(w: Weights, *_: object) -> tuple[Reader, Reader]:
        moved = np.moveaxis(w[name].copy(), axis, 0)
        moved[40 : 40 + ids] = np.roll(moved[40 : 40 + ids], 1, axis=0)
        return Reader({**w, name: np.moveaxis(moved, 0, axis)}), Reader(w)

    return change


def adapter(scale: float, grows: bool, side: int = 0) -> Change:
    """One side lacks an adapter of this size (relative to the weights); grows: it is 0 at first."""

    def change(w: Weights, first: Weights, step: int, draws: np.random.Generator) -> tuple[Reader, Reader]:
        own = np.random.default_rng(77)
        delta = {
            n: scale * w[n].std() * own.normal(size=(WIDTH, 2)) @ own.normal(size=(2, WIDTH)) for n in ("mix", "mlp")
        }
        full = Reader({**w, **{n: w[n] + (step / 5 if grows else 1.0) * d for n, d in delta.items()}})
        return (Reader(w), full) if side == 0 else (full, Reader(w))

    return change


def by_rows(shape: Shape, bad: Callable[[int], np.ndarray]) -> Evidence:
    """Some sequences of each step are sampled by the weights of the start, and no label says which. bad: step -> (rows,)."""
    draws = np.random.default_rng(shape.seed)
    weights = first = first_weights(draws)
    steps = []
    for step in range(shape.steps):
        texts, other = blank(shape, draws), blank(shape, draws)
        other.prompts, other.pads = texts.prompts, texts.pads
        own, _ = read(Reader(weights), texts, draws, sampling=True)
        old, _ = read(Reader(first), other, draws, sampling=True)
        where = bad(step)[:, None]
        texts.tokens = np.where(where, other.tokens, texts.tokens)
        steps.append((texts, (np.where(where, old, own), *read(Reader(weights), texts, draws))))
        weights = updated(weights, draws, 0.04)
    return evidence(steps)


def switched(shape: Shape, each: bool) -> Evidence:
    """The sampler's weights change inside the sequences, at one token of the step; each: at a token of each sequence."""
    draws = np.random.default_rng(shape.seed)
    weights = first_weights(draws)
    steps = []
    for _ in range(shape.steps):
        newer = updated(weights, draws, 0.08)
        texts = blank(shape, draws)
        if not each:
            at = int(draws.integers(10, shape.length - 10))
            earlier, _ = read(
                Reader(weights),
                texts,
                draws,
                sampling=True,
                later=_switched(at, weights, newer),
            )
        else:
            parts = []
            for row in range(0, shape.rows, 4):
                at = int(draws.integers(10, shape.length - 10))
                own = Texts(
                    texts.prompts[row : row + 4], texts.pads[row : row + 4], texts.tokens[row : row + 4], texts.lengths
                )
                parts.append(
                    read(
                        Reader(weights),
                        own,
                        draws,
                        sampling=True,
                        later=_switched(at, weights, newer),
                    )[0]
                )
            earlier = np.concatenate(parts)
        steps.append((texts, (earlier, *read(Reader(newer), texts, draws))))
        weights = newer
    return evidence(steps)


def from_state(
    shape: Shape,
    start: Callable[[Weights, Weights, Texts, np.random.Generator], Floats],
    trainer: bool,
    learns: float = 0.05,
) -> Evidence:
    """One side begins the responses with another state than the prompt gives. start: (weights, first ones, texts, draws)."""
    draws = np.random.default_rng(shape.seed)
    weights = first = first_weights(draws)
    steps = []
    for _ in range(shape.steps):
        texts = blank(shape, draws)
        own = None if trainer else start(weights, first, texts, draws)
        earlier, _ = read(Reader(weights), texts, draws, sampling=True, state=own)
        other = start(weights, first, texts, draws) if trainer else None
        steps.append((texts, (earlier, *read(Reader(weights), texts, draws, state=other))))
        weights = updated(weights, draws, learns)
    return evidence(steps)


def stale_prefix(w: Weights, first: Weights, texts: Texts, draws: np.random.Generator) -> Floats:
    return prefilled(Reader(first), texts, draws)


def packed(w: Weights, first: Weights, texts: Texts, draws: np.random.Generator) -> Floats:
    """Behind another sequence of its row, its state goes on; every second sequence is the first of its row."""
    before = np.tanh(draws.normal(size=(len(texts.prompts), WIDTH)) * 1.5)
    before[::2] = 0.0
    return prefilled(Reader(w), texts, draws, before)


def other_prompt(w: Weights, first: Weights, texts: Texts, draws: np.random.Generator) -> Floats:
    """A system prompt that the other side lacks."""
    more = np.broadcast_to(np.arange(90, 96), (len(texts.prompts), 6))
    longer = Texts(
        np.concatenate([texts.prompts[:, :-1], more, texts.prompts[:, -1:]], 1), texts.pads, texts.tokens, texts.lengths
    )
    return prefilled(Reader(w), longer, draws)


def near_uniform(w: Weights) -> Reader:
    return Reader({**w, "scale": w["scale"] * 0.03})


HEALTHY: Mapping[str, Callable[[Shape], Evidence]] = {
    "plain": lambda s: run(two(), s),
    "bf16": lambda s: run(two({"bf16": True}), s),
    "both bf16, temperature 0.05": lambda s: run(
        two({"bf16": True, "temperature": 0.05}, {"noise": 0.03, "temperature": 0.05}), s
    ),
    "both bf16, temperature 0.2": lambda s: run(
        two({"bf16": True, "temperature": 0.2}, {"noise": 0.01, "temperature": 0.2}), s
    ),
    "greedy": lambda s: run(two({"temperature": 1e-3, "noise": 1e-5}, {"temperature": 1e-3, "noise": 1e-5}), s),
    "sharper": lambda s: run(sharper(1.5), s),
    "near uniform": lambda s: run(lambda w, *_: (near_uniform(w), near_uniform(w)), s),
}
FAULTS: Mapping[str, Callable[[Shape], Evidence]] = {
    "dropout of the trainer": lambda s: run(two(None, {"dropout": 0.01}), s),
    "dropout of the engine": lambda s: run(two({"dropout": 0.01}), s),
    "never synced": lambda s: run(stale(), s, 0.04),
    "head stale, body new": lambda s: run(stale(("head",)), s, 0.05),
    "body stale, head new": lambda s: run(stale(("mix", "mlp")), s, 0.05),
    "switch at a token of the step": lambda s: switched(s, each=False),
    "switch at a token of each prompt": lambda s: switched(s, each=True),
    "stale prefix": lambda s: from_state(s, stale_prefix, trainer=False, learns=0.1),
    "packing leak": lambda s: from_state(s, packed, trainer=True),
    "other prompt": lambda s: from_state(s, other_prompt, trainer=True),
    "head rows": lambda s: run(other_rows("head", 3, 1), s),
    "embedding rows": lambda s: run(other_rows("embed", 3, 0), s),
    "padding read": lambda s: run(two(None, {"pads": True}), s),
    "router flips": lambda s: run(two({"routes": 0.02}, {"routes": 0.02}), s),
    "position ids": lambda s: run(two(None, {"places": 1}), s),
    "adapter grows": lambda s: run(adapter(0.05, grows=True), s, 0.0),
    "adapter missing": lambda s: run(adapter(0.05, grows=False), s),
    "replica without a label": lambda s: by_rows(s, lambda step: np.random.default_rng(step).random(s.rows) < 0.25),
    "min tokens": lambda s: run(two({"banned": 24, "ends": 6.0}, {"ends": 6.0}), s, ends=True),
    "soft cap": lambda s: run(two({"cap": 30.0}), s),
    "temperature": lambda s: run(two({"temperature": 1.2}), s),
}
