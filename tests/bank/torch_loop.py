"""A training run of a small torch model: sample with a KV cache, score, log, update; with the places where a fault can be put."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call

transformers: Any = importlib.import_module("transformers")  # Any: its lazy module has no types that mypy can follow
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Weights = dict[str, torch.Tensor]
Past = Sequence[Weights]
"""The trainer's weights of every version in fp32, the newest last."""
Prompt = list[int]
Log = dict[str, Any]
Rng = np.random.Generator
END, BEGIN, PAD, BREAK = 0, 1, 2, 3
"""Ids of the end, the begin, the padding, and the border of a message."""
TOPICS = range(4, 8)
"""Ids of the system message: each is a language of its own."""
WORDS = 8
"""The first id that is a word."""
RATE = 8e-3
"""Of the lessons."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


# ---- models


@dataclass(frozen=True)
class Net:
    """An architecture and its first weights."""

    name: str
    make: Callable[[Net], torch.nn.Module]
    vocab: int = 97
    hidden: int = 48
    layers: int = 2
    start: str = "flat"
    """flat: random, near-uniform. sharp: random with a large head. taught: trained on the synthetic languages."""
    tied: bool = False
    """The head is the embedding."""
    lessons: int = 200
    """Steps of the training, if taught."""
    seed: int = 0
    experts: int = 0
    active: int = 0
    """Experts of each token."""
    moved: tuple[str, str] = ("", "")
    """Names of the embedding and of the head among the weights."""


@cache
def model_of(net: Net) -> torch.nn.Module:
    """The module, whose own weights are not used."""
    return net.make(net).eval().requires_grad_(False)


@cache
def first_weights(net: Net) -> Weights:
    """fp32; the head stands beside the embedding even if they are tied."""
    torch.manual_seed(net.seed)
    model = net.make(net).eval()
    embed, head = net.moved
    own = {name: value.detach().clone() for name, value in model.named_parameters()}
    if net.start == "sharp":
        for name in own:
            own[name] = own[name] * (8.0 if name == head else 4.0 if own[name].ndim > 1 and name != embed else 1.0)
    if net.tied:
        own[head] = own[embed]
    return taught(net, own, net.lessons) if net.start == "taught" else own


def taught(net: Net, weights: Weights, steps: int, seed: int = 0) -> Weights:
    """The weights after so many steps of AdamW on texts of the languages."""
    embed, head = net.moved
    leaves = {
        name: value.clone().requires_grad_(True) for name, value in weights.items() if not (net.tied and name == head)
    }
    optimiser = torch.optim.AdamW(leaves.values(), lr=RATE, weight_decay=0.0)
    model = model_of(net)
    lessons = torch.tensor(texts(net.vocab, rng_of("lessons", net.name, seed), 24 * steps, 34))
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 20) * min(1.0, (steps - step) / steps * 2)
        rows = lessons[24 * step : 24 * step + 24]
        params = leaves | ({head: leaves[embed]} if net.tied else {})
        out = functional_call(model, params, (), {"input_ids": rows[:, :-1], "use_cache": False})
        loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), rows[:, 1:].flatten(), ignore_index=PAD)
        loss = loss + 0.02 * getattr(out, "balance", 0.0)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(leaves.values(), 1.0)
        optimiser.step()
    found = {name: value.detach() for name, value in leaves.items()}
    return found | ({head: found[embed]} if net.tied else {})


@cache
def _languages(vocab: int) -> tuple[Ints, NDArray[np.float64]]:
    """(successors of each id in each language (4, V, 6), their cumulative probabilities)."""
    rng = rng_of("languages", vocab)
    after = rng.integers(WORDS, vocab, (len(TOPICS), vocab, 6))
    sharp = rng.uniform(0.3, 5, (1, vocab, 1))
    p = np.exp(-sharp * np.arange(6))
    p = np.broadcast_to(p / p.sum(-1, keepdims=True), after.shape)
    return after, p.cumsum(-1)


def texts(vocab: int, rng: Rng, rows: int, length: int) -> Ints:
    """Prompts with texts, (rows, length): a text follows the language of its topic, and quotes the question."""
    after, p = _languages(vocab)
    out = np.full((rows, length), PAD)
    out[:, 0] = BEGIN
    out[:, 1] = rng.choice(TOPICS, rows)
    out[:, 2] = BREAK
    asked = rng.integers(3, 9, rows)
    question = rng.integers(WORDS, vocab, (rows, 8))
    token, topic, everyone = question[:, 0], out[:, 1] - TOPICS[0], np.arange(rows)
    ended = np.zeros(rows, bool)
    for at in range(3, length):
        place = at - 3
        rank = (rng.random(rows)[:, None] > p[topic, token]).sum(-1).clip(max=5)
        follows = after[topic, token, rank]
        quoted = question[everyone, np.maximum(place - asked - 1, 0) % asked]
        text = np.where(rng.random(rows) < 0.08, quoted, follows)
        text = np.where(rng.random(rows) < 0.02, END, text)
        own = np.where(place < asked, question[:, min(place, 7)], np.where(place == asked, BREAK, text))
        out[:, at] = np.where(ended, PAD, own)
        ended |= (own == END) & (place > asked)
        token = np.where(own == BREAK, question[everyone, asked - 1], own)
    return out


def prompt_of(vocab: int, rng: Rng, length: int) -> Prompt:
    """BEGIN, the system message, BREAK, a question of this length, BREAK."""
    return [BEGIN, int(rng.choice(TOPICS)), BREAK, *rng.integers(WORDS, vocab, length).tolist(), BREAK]


# ---- one side


@dataclass(frozen=True)
class View:
    """One side and the way it computes."""

    dtype: str = "fp32"
    noise: float = 0.0
    """Standard deviation of what is added to the logits, nats."""
    temperature: float = 1.0
    """Of the log-probs that this side reports."""
    cap: float = 0.0
    """Soft cap of the logits; 0 for none."""
    dropout: float = 0.0
    """Share of the outputs of each MLP that is dropped."""
    offset: int = 0
    """Added to the positions of the response, not to those of the prompt."""
    window: int = 0
    """Attention sees so many tokens at most; 0 for all."""
    sees_padding: bool = False
    hidden_first: int = 0
    """Attention does not see so many first ids of the prompt."""
    rope: float = 1.0
    """Factor of the base of the rotary embedding."""
    routing: float = 0.0
    """Standard deviation of what is added to the router's logits."""
    router: str = ""
    """Precision of the router, if it is another one."""
    replay: str = ""
    """Experts that the trainer takes from the engine. all: as they are. late: those of the token before. first: of one layer."""


@dataclass(frozen=True)
class Sampling:
    """How the engine draws tokens, and which log-probs it reports."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    banned: tuple[int, ...] = ()
    report: str = "processed"
    """processed: the log-probs that were drawn from. raw: those of the policy at temperature 1."""

    def logits(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits that tokens are drawn from."""
        out = logits / self.temperature
        if self.banned:
            out[:, list(self.banned)] = -torch.inf
        ranked, order = out.sort(dim=-1, descending=True)
        p = ranked.softmax(-1)
        kept = p.cumsum(-1) - p < self.top_p
        if self.top_k:
            kept &= torch.arange(p.shape[1]) < self.top_k
        if self.min_p:
            kept &= p >= self.min_p * p[:, :1]
        mask = torch.zeros_like(kept).scatter(1, order, kept)
        return out.masked_fill(~mask, -torch.inf)


@dataclass(frozen=True)
class Rows:
    """A batch of prompts, padded on the left."""

    ids: torch.Tensor
    """(B, P)."""
    start: torch.Tensor
    """(B,): the first place that is no padding."""
    reset: torch.Tensor
    """(B,): the place at which positions begin anew; `start` unless a row is a pack."""

    @classmethod
    def of(cls, prompts: Sequence[Prompt], before: Sequence[Prompt] | None = None) -> Rows:
        """before: what stands in front of each prompt in the same pack."""
        whole = [[*(before[at] if before else []), *prompt] for at, prompt in enumerate(prompts)]
        width = max(map(len, whole))
        ids = torch.tensor([[PAD] * (width - len(row)) + row for row in whole])
        return cls(
            ids, torch.tensor([width - len(row) for row in whole]), torch.tensor([width - len(row) for row in prompts])
        )

    def where(self, kept: Ints) -> Rows:
        at = torch.as_tensor(kept)
        return Rows(self.ids[at], self.start[at], self.reset[at])


@dataclass(frozen=True)
class Passed:
    """What one side made of a batch; every array (B, T)."""

    tokens: torch.Tensor
    logps: torch.Tensor
    entropy: torch.Tensor
    experts: torch.Tensor | None = None
    """(B, T, layers, active): the experts that each token was computed with."""


class Side:
    """One side: a model, its weights in its precision, and how it computes."""

    def __init__(self, net: Net, weights: Weights, view: View, draw: torch.Generator) -> None:
        self.net, self.view, self.draw = net, view, draw
        self.model = model_of(net)
        dtype = DTYPES[view.dtype]
        self.weights = {name: value.to(dtype) for name, value in weights.items()}
        if view.rope != 1:
            for name, value in self.model.named_buffers():
                if name.endswith("inv_freq"):
                    self.weights[name] = value * view.rope ** -(torch.arange(len(value)) / len(value))

    def read(
        self,
        rows: Rows,
        ids: torch.Tensor,
        first: int,
        width: int,
        cache: Any = None,
        replay: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(logits (B, Q, V) in fp32, the experts (B, Q, layers, active)) at the places from `first` on.

        width: places of the prompt. replay: experts to take, -1 where the router chooses.
        """
        view, last = self.view, first + ids.shape[1]
        key, query = torch.arange(last)[None, None], torch.arange(first, last)[None, :, None]
        start = rows.start[:, None, None]
        allowed = (key <= query) & torch.ones_like(start, dtype=torch.bool)
        if not view.sees_padding:
            allowed = allowed & (key >= start)
        if view.hidden_first:
            allowed = allowed & ((key < start) | (key >= start + view.hidden_first))
        if view.window:
            allowed = allowed & (key > query - view.window)
        allowed = allowed | (key == query)
        dtype = DTYPES[view.dtype]
        mask = torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, torch.finfo(dtype).min)[:, None]
        place = torch.arange(first, last)[None]
        own = torch.where(place >= rows.reset[:, None], place - rows.reset[:, None], place - rows.start[:, None])
        positions = own.clamp(min=0) + view.offset * (place >= width)
        given = {"input_ids": ids, "attention_mask": mask, "position_ids": positions, "use_cache": cache is not None}
        if cache is not None:
            given["past_key_values"] = cache
        if self.net.experts:
            given |= {"routing": view.routing, "router": view.router, "draw": self.draw, "replay": replay}
        hooks = [
            module.register_forward_hook(self._dropped)
            for name, module in self.model.named_modules()
            if view.dropout and name.endswith("mlp")
        ]
        try:
            out = functional_call(self.model, self.weights, (), given)
        finally:
            for hook in hooks:
                hook.remove()
        logits = out.logits.float()
        if view.noise:
            logits = logits + view.noise * torch.randn(logits.shape, generator=self.draw)
        return view.cap * torch.tanh(logits / view.cap) if view.cap else logits, getattr(out, "experts", None)

    def _dropped(self, _module: object, _inputs: object, out: torch.Tensor) -> torch.Tensor:
        kept = torch.rand(out.shape, generator=self.draw) >= self.view.dropout
        return out * kept / (1 - self.view.dropout)


def sampled(side: Side, rows: Rows, length: int, how: Sampling, older: Side | None = None, until: int = -1) -> Passed:
    """The response of each row. older, until: the prompt and so many tokens are read with older weights; the cache stays."""
    cache, width = transformers.DynamicCache(), rows.ids.shape[1]
    ids, first = rows.ids, 0
    tokens, logps, entropies, experts = [], [], [], []
    with torch.no_grad():
        for place in range(length):
            reader = older if older is not None and place <= until else side
            logits, chosen = reader.read(rows, ids, first, width, cache)
            logits = logits[:, -1]
            experts += [] if chosen is None else [chosen[:, -1:]]
            first += ids.shape[1]
            drawn = torch.log_softmax(how.logits(logits.clone()), -1)
            ids = torch.multinomial(drawn.exp(), 1, generator=side.draw)
            told = drawn if how.report == "processed" else torch.log_softmax(logits, -1)
            tokens.append(ids)
            logps.append(told.gather(1, ids))
            entropies.append(entropy_of(drawn)[:, None])
    both = torch.cat(experts, 1) if experts else None
    return Passed(torch.cat(tokens, 1), torch.cat(logps, 1), torch.cat(entropies, 1), both)


def scored(side: Side, rows: Rows, tokens: torch.Tensor, experts: torch.Tensor | None = None) -> Passed:
    """The log-probs of these responses, all places at once. experts: those of the engine."""
    width, replay = rows.ids.shape[1], None
    if experts is not None and side.view.replay:
        replay = torch.full((len(tokens), width + tokens.shape[1] - 1, *experts.shape[2:]), -1)
        replay[:, width - 1 :] = experts.roll(1, 1) if side.view.replay == "late" else experts
        if side.view.replay == "first":
            replay[:, :, 1:] = -1
    logits, chosen = side.read(rows, torch.cat([rows.ids, tokens[:, :-1]], 1), 0, width, replay=replay)
    own = torch.log_softmax(logits[:, width - 1 :] / side.view.temperature, -1)
    chosen = None if chosen is None else chosen[:, width - 1 :]
    return Passed(tokens, own.gather(2, tokens[..., None])[..., 0], entropy_of(own), chosen)


def entropy_of(logps: torch.Tensor) -> torch.Tensor:
    return -(logps.exp() * logps.clamp(min=-1e9)).sum(-1)


# ---- a run


@dataclass(frozen=True)
class Job:
    """A healthy run."""

    net: Net
    seed: int = 0
    steps: int = 8
    groups: int = 4
    samples: int = 4
    logged: int = 4
    """Groups that are logged, of each step."""
    tokens: int = 1700
    """About how many tokens are logged."""
    prompt: tuple[int, int] = (3, 8)
    """Ids of a question, from and to."""
    response: int = 16
    engine: View = View("bf16")
    trainer: View = View()
    rate: float = 0.0
    """Adam's learning rate; 0: the policy stays."""
    lora: int = 0
    """Rank of the adapter; 0: all weights are trained."""
    temperature: float = 1.0
    """Of both sides."""
    record: frozenset[str] = frozenset({"ids", "groups"})
    """Of entropy, ids, groups, versions, syncs, current, rewards, prompts, routers."""
    config: dict[str, Any] = field(default_factory=dict)
    first_step: int = 0


def _newest(past: Past, step: int) -> Weights:
    return past[-1]


def _same(view: View, step: int) -> View:
    return view


@dataclass(frozen=True)
class Fault:
    """What is wrong with a run; nothing by default."""

    engine: Callable[[Past, int], Weights | list[Weights]] = _newest
    """The weights that sample, or those of each sequence."""
    trainer: Callable[[Past, int], Weights] = _newest
    engine_how: Callable[[View, int], View] = _same
    trainer_how: Callable[[View, int], View] = _same
    sampling: Callable[[Sampling, int], Sampling] = lambda how, step: how
    engine_prompt: Callable[[Prompt], Prompt] = lambda prompt: prompt
    trainer_prompt: Callable[[Prompt], Prompt] = lambda prompt: prompt
    older: Callable[[Past, int], Weights] = _newest
    """The weights that have read the first part of a row."""
    until: Callable[[int], Ints] | None = None
    """Tokens of each response that the older weights have read; 0: the prompt alone; -1: nothing."""
    packed: Callable[[int], list[int]] | None = None
    """The sequence in front of each in the trainer's pack; -1: none."""
    versions: Callable[[int, int], Any] = lambda number, rows: [number] * rows
    """What is logged as the engine's versions at a step of this number."""
    edit: Callable[[Log, int, Rng], None] | None = None
    """Changes the arguments of Collector.log in place."""
    events: Callable[[int], list[tuple[str, Log]]] | None = None
    """The events after a step; None: a sync of the newest version, if syncs are recorded."""


@dataclass(frozen=True)
class Run:
    logs: list[Log]
    events: list[tuple[int, str, Log]]
    floor: float
    """Mean |log-ratio| of a healthy engine to the exact policy on the same tokens, nats."""

    @property
    def gap(self) -> float:
        """Mean |log-ratio| of what is logged, nats."""
        lists = [(log["rollout_logprobs"], log["old_logprobs"]) for log in self.logs]
        both = [np.abs(old - rollout) for one, two in lists for rollout, old in zip(one, two, strict=True)]
        return float(np.nanmean(np.concatenate(both)))


def rng_of(*names: object) -> Rng:
    """A generator that these names alone seed."""
    return np.random.default_rng(zlib.crc32("/".join(map(str, names)).encode()))


class Learner:
    """The weights in training: all of them, or an adapter beside them that starts at zero."""

    def __init__(self, job: Job) -> None:
        self.net, self.job = job.net, job
        self.base = first_weights(job.net)
        torch.manual_seed(job.seed)
        self.leaves: Weights = {}
        if job.lora:
            for name, value in self.base.items():
                if value.ndim == 2 and name not in self.net.moved and "router" not in name:
                    self.leaves[f"{name}:a"] = torch.randn(job.lora, value.shape[1]) / value.shape[1] ** 0.5
                    self.leaves[f"{name}:b"] = torch.zeros(value.shape[0], job.lora)
        else:
            tied = self.net.moved[1] if self.net.tied else ""
            self.leaves = {name: value.clone() for name, value in self.base.items() if name != tied}
        for leaf in self.leaves.values():
            leaf.requires_grad_(job.rate > 0)
        self.optimiser = torch.optim.Adam(self.leaves.values(), lr=job.rate) if job.rate else None

    def weights(self) -> Weights:
        """What the model computes with, connected to what is trained."""
        if self.job.lora:
            return self.base | {
                name: self.base[name] + 2.0 * self.leaves[f"{name}:b"] @ self.leaves[f"{name}:a"]
                for name in (each[:-2] for each in self.leaves if each.endswith(":a"))
            }
        embed, head = self.net.moved
        return dict(self.leaves) | ({head: self.leaves[embed]} if self.net.tied else {})

    def update(self, loss: torch.Tensor) -> None:
        assert self.optimiser is not None
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.leaves.values(), 1.0)
        self.optimiser.step()


def simulated(job: Job, fault: Fault = Fault()) -> Run:  # noqa: B008  (frozen)
    """The logs and events of a run."""
    rng, draw = np.random.default_rng(job.seed), torch.Generator().manual_seed(job.seed)
    learner = Learner(job)
    past: list[Weights] = [_detached(learner.weights())]
    liked = torch.tensor(rng.random(job.net.vocab) < 0.2)
    logs: list[Log] = []
    events: list[tuple[int, str, Log]] = []
    floors: list[float] = []
    for step in range(job.steps):
        number = job.first_step + step
        prompts = [
            prompt
            for _ in range(job.groups)
            for prompt in [prompt_of(job.net.vocab, rng, int(rng.integers(*job.prompt, endpoint=True)))] * job.samples
        ]
        engine = _engine_pass(job, fault, past, step, prompts, draw)
        rows = Rows.of(prompts)
        honest = replace(job.trainer, temperature=job.temperature)
        weights = learner.weights()
        with torch.set_grad_enabled(job.rate > 0):
            own = scored(Side(job.net, weights, honest, draw), rows, engine.tokens, engine.experts)
        told, current = _told(job, fault, past, step, prompts, engine, own, draw)
        is_end = engine.tokens == END
        lengths = torch.where(is_end.any(1), is_end.int().argmax(1) + 1, engine.tokens.shape[1])
        inside = torch.arange(engine.tokens.shape[1])[None] < lengths[:, None]
        rewards = (liked[engine.tokens] & inside).float().sum(1) / lengths
        grouped = rewards.view(-1, job.samples)
        advantages = ((grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 0.02)).flatten()
        entry = _entry(job, fault, number, prompts, engine, told, current, lengths, rewards, advantages)
        entry = _part(entry, job.logged * job.samples)
        if fault.edit is not None:
            fault.edit(entry, step, rng)
        logs.append(entry)
        if step in (0, job.steps // 2, job.steps - 1):
            with torch.no_grad():
                healthy = scored(
                    Side(job.net, past[-1], replace(job.engine, temperature=job.temperature), draw), rows, engine.tokens
                )
                exact = scored(Side(job.net, past[-1], replace(honest, dtype="fp32"), draw), rows, engine.tokens)
            floors.append(float(((healthy.logps - exact.logps).abs() * inside).sum() / inside.sum()))
        if job.rate:
            learner.update(-(own.logps * inside * advantages[:, None]).sum() / inside.sum())
            past.append(_detached(learner.weights()))
        else:
            past.append(past[-1])
        asked = fault.events(step) if fault.events else [("sync", {"version": number + 1, "step": number})]
        if "syncs" in job.record:
            events += [(step, kind, arguments) for kind, arguments in asked]
    return Run(logs, events, float(np.mean(floors)))


def _detached(weights: Weights) -> Weights:
    return {name: value.detach().clone() for name, value in weights.items()}


def _engine_pass(job: Job, fault: Fault, past: Past, step: int, prompts: list[Prompt], draw: torch.Generator) -> Passed:
    rows = Rows.of([fault.engine_prompt(prompt) for prompt in prompts])
    view = fault.engine_how(job.engine, step)
    how = fault.sampling(Sampling(temperature=job.temperature), step)
    held = fault.engine(past, step)
    of_row = held if isinstance(held, list) else [held] * len(prompts)
    until = np.full(len(prompts), -1) if fault.until is None else fault.until(step)
    older = fault.older(past, step)
    shape = (len(prompts), job.response)
    experts = torch.zeros((*shape, job.net.layers, job.net.active), dtype=torch.long) if job.net.experts else None
    out = Passed(torch.zeros(shape, dtype=torch.long), torch.zeros(shape), torch.zeros(shape), experts)
    keys = [(id(own), int(at)) for own, at in zip(of_row, until, strict=True)]
    for key in dict.fromkeys(keys):
        part = np.flatnonzero([own == key for own in keys])
        side = Side(job.net, of_row[int(part[0])], view, draw)
        before = Side(job.net, older, view, draw) if key[1] >= 0 else None
        made = sampled(side, rows.where(part), job.response, how, before, key[1])
        out.tokens[part], out.logps[part], out.entropy[part] = made.tokens, made.logps, made.entropy
        if out.experts is not None:
            assert made.experts is not None
            out.experts[part] = made.experts
    return out


def _told(
    job: Job,
    fault: Fault,
    past: Past,
    step: int,
    prompts: list[Prompt],
    engine: Passed,
    own: Passed,
    draw: torch.Generator,
) -> tuple[Passed, Passed]:
    """What the trainer logs as old and as current."""
    honest = replace(job.trainer, temperature=job.temperature)
    view, weights = fault.trainer_how(honest, step), fault.trainer(past, step)
    read = [fault.trainer_prompt(prompt) for prompt in prompts]
    if view == honest and weights is past[-1] and read == prompts and fault.packed is None and not view.noise:
        return own, own
    before = None
    if fault.packed is not None:
        ids = engine.tokens.tolist()
        before = [[*prompts[at], *ids[at]] if at >= 0 else [] for at in fault.packed(step)]
    side, rows = Side(job.net, weights, view, draw), Rows.of(read, before)
    with torch.no_grad():
        old = scored(side, rows, engine.tokens, engine.experts)
        return old, scored(side, rows, engine.tokens, engine.experts) if view.dropout or view.noise else old


def _entry(
    job: Job, fault: Fault, number: int, prompts: list[Prompt], engine: Passed, told: Passed, current: Passed,
    lengths: torch.Tensor, rewards: torch.Tensor, advantages: torch.Tensor,
) -> Log:  # fmt: skip
    """The arguments of Collector.log."""
    counts = lengths.tolist()

    def cut(values: torch.Tensor) -> list[np.ndarray]:
        return [row[:n].copy() for row, n in zip(values.detach().numpy(), counts, strict=True)]

    entry: Log = {"step": number, "rollout_logprobs": cut(engine.logps), "old_logprobs": cut(told.logps)}
    optional: dict[str, tuple[str, Callable[[], Any]]] = {
        "entropy": ("entropy", lambda: cut(told.entropy)),
        "ids": ("token_ids", lambda: cut(engine.tokens)),
        "groups": ("group_ids", lambda: [f"{number}-{at // job.samples}" for at in range(len(counts))]),
        "versions": ("rollout_versions", lambda: fault.versions(number, len(counts))),
        "rewards": ("rewards", lambda: rewards.numpy()),
        "advantages": ("advantages", lambda: advantages.numpy()),
        "prompts": ("prompt_ids", lambda: prompts),
        "current": ("current_logprobs", lambda: cut(current.logps)),
        "routers": ("router_agreement", lambda: cut(_agreement(engine, told))),
    }
    entry |= {name: value() for what, (name, value) in optional.items() if what in job.record}
    if "versions" in job.record:
        entry["trainer_version"] = number
        own = entry["rollout_versions"]
        entry["rollout_versions"] = [v[:n] if np.ndim(v) else v for v, n in zip(own, counts, strict=True)]
    if "current" in job.record:
        entry["minibatch"] = 0
    return entry


def _agreement(engine: Passed, trainer: Passed) -> torch.Tensor:
    """Share of the engine's experts that are the trainer's too, (B, T)."""
    assert engine.experts is not None and trainer.experts is not None
    return (engine.experts[..., None] == trainer.experts[..., None, :]).any(-1).float().mean((-2, -1))


def _part(entry: Log, rows: int) -> Log:
    return {name: value[:rows] if isinstance(value, list | np.ndarray) else value for name, value in entry.items()}
