"""A training run of the small network: sample, score, log, update; with the places where a fault can be put."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .network import (
    BEGIN,
    BREAK,
    END,
    WORDS,
    Floats,
    Ints,
    Passed,
    Reading,
    Rows,
    Sampling,
    Shape,
    Weights,
    improved,
    passed,
    wandered,
    weights_of,
)  # fmt: skip

Past = Sequence[Weights]
"""The trainer's weights of every version, the newest last."""
Prompt = list[int]
LEARNT = ("state", "value", "up", "down", "head")
"""Tensors that a random update changes."""


@dataclass(frozen=True)
class Job:
    """A healthy run."""

    shape: Shape = Shape()
    seed: int = 0
    steps: int = 8
    groups: int = 4
    samples: int = 4
    prompt: tuple[int, int] = (3, 10)
    """Ids of a prompt, from and to."""
    response: int = 40
    """Most tokens of a response, or of a turn."""
    turns: int = 1
    """Responses of a conversation, with a text of a tool between them."""
    tool: tuple[int, int] = (3, 10)
    """Ids of the text of a tool."""
    engine: Reading = Reading(bits=8)
    trainer: Reading = Reading()
    update: str = "wander"
    """learn: policy gradient towards a set of ids. wander: random. fixed: none."""
    rate: float = 0.01
    """Relative size of an update."""
    record: frozenset[str] = frozenset({"entropy", "ids", "groups"})
    """Some of: entropy, ids, groups, versions, syncs, current, rewards, prompts, turns, sampled."""
    config: dict[str, Any] = field(default_factory=dict)
    first_step: int = 0
    response_growth: float = 0.0
    """Tokens by which the limit of a response grows each step."""
    keep: Callable[[Floats], Ints] | None = None
    """Rewards -> the sequences that are logged; None: all."""


def _newest(past: Past, step: int) -> Weights:
    return past[-1]


@dataclass(frozen=True)
class Fault:
    """The places where a run can be wrong; nothing is by default."""

    engine: Callable[[Past, int], Weights | list[Weights]] = _newest
    """The weights that sample, or those of each sequence."""
    trainer: Callable[[Past, int], Weights] = _newest
    engine_how: Callable[[Reading, int], Reading] = lambda how, step: how
    trainer_how: Callable[[Reading, int], Reading] = lambda how, step: how
    sampling: Callable[[int], Sampling] = lambda step: Sampling()
    engine_prompt: Callable[[Prompt, int], Prompt] = lambda prompt, group: prompt
    trainer_prompt: Callable[[Prompt, int], Prompt] = lambda prompt, group: prompt
    older: Callable[[Past, int], Weights] = _newest
    """The weights that have read the first part of a row."""
    until: Callable[[int, np.random.Generator], Ints] | None = None
    """Tokens of each response that the older weights have read; -1: not even the prompt."""
    context: Callable[[list[Prompt], Ints, np.random.Generator], list[Prompt]] | None = None
    """The trainer's contexts made of all prompts and responses of a batch."""
    trained: Callable[[Ints, np.random.Generator], Ints] | None = None
    """The ids that the trainer scores, of those that were sampled."""
    rendered: Callable[[Ints, Ints, np.random.Generator], Ints] | None = None
    """(row, turn of each place; -1 the tool's) -> the row that the trainer reads for all turns but the first."""
    versions: Callable[[int, int], Any] = lambda step, rows: [step] * rows
    """The versions that are logged as the engine's."""
    edit: Callable[[dict[str, Any], int, np.random.Generator], None] | None = None
    """Changes the arguments of Collector.log in place."""
    by_step: bool = False
    """True if a hook other than `edit` and `versions` says another thing at another step, or of another number of rows."""
    events: Callable[[int], list[tuple[str, dict[str, Any]]]] | None = None
    """The events after a step; None: a sync of the newest version, if syncs are recorded."""


@dataclass(frozen=True)
class Run:
    logs: list[dict[str, Any]]
    events: list[tuple[int, str, dict[str, Any]]]


def rng_of(*names: object) -> np.random.Generator:
    """A generator that these names alone seed."""
    return np.random.default_rng(zlib.crc32("/".join(map(str, names)).encode()))


def simulated(job: Job, fault: Fault = Fault()) -> Run:  # noqa: B008  (frozen)
    """The logs and events of a run."""
    rng = np.random.default_rng(job.seed)
    past: list[Weights] = [weights_of(job.shape, rng)]
    momentum: Weights = {}
    liked = rng.random(job.shape.vocab) < 0.2
    logs: list[dict[str, Any]] = []
    events: list[tuple[int, str, dict[str, Any]]] = []
    # steps of the same weights are one batch: a loop over tokens costs as much for many rows as for few
    together = job.steps if job.update == "fixed" and not fault.by_step and not job.response_growth else 1
    rows = job.groups * job.samples
    for first in range(0, job.steps, together):
        prompts = [prompt for _ in range(together) for prompt in _prompts(job, rng)]
        whole = _sampled(job, fault, past, first, prompts, rng)
        own, batch = _scored(job, fault, past, first, prompts, whole, rng)
        for step in range(first, first + together):
            number = job.first_step + step
            log: dict[str, Any] = {
                name: None if v is None else v[(step - first) * rows :][:rows] for name, v in batch.items()
            }
            rewards = np.array([liked[tokens].mean() for tokens in log["tokens"]], np.float32)
            advantages = rewards - rewards.reshape(job.groups, -1).mean(1).repeat(job.samples)
            entry = _entry(job, fault, log, number, rewards, advantages)
            if fault.edit is not None:
                fault.edit(entry, step, rng)
            logs.append(_kept(entry, job.keep(rewards)) if job.keep else entry)
            if job.update == "learn":
                counts = log["lengths"][:, None] > np.arange(own.tokens.shape[1])[None]
                scaled = advantages / (advantages.std() + 1e-6)
                past.append(improved(past[-1], job.shape, own, scaled, counts, momentum, job.rate))
            elif job.update == "wander":
                past.append(wandered(past[-1], rng, job.rate, LEARNT))
            else:
                past.append(past[-1])
            told = fault.events(step) if fault.events else [("sync", {"version": number + 1, "step": number})]
            if "syncs" in job.record:
                events += [(step, kind, arguments) for kind, arguments in told]
    return Run(logs, events)


def _prompts(job: Job, rng: np.random.Generator) -> list[Prompt]:
    """A prompt for each sequence: BEGIN, a system message, BREAK, a question, BREAK."""
    found = []
    system = rng_of("system", job.seed).integers(WORDS, job.shape.vocab, 4).tolist()
    for _ in range(job.groups):
        length = int(rng.integers(*job.prompt, endpoint=True))
        question = rng.integers(WORDS, job.shape.vocab, length).tolist()
        found += [[BEGIN, *system, BREAK, *question, BREAK]] * job.samples
    return found


def _sampled(
    job: Job, fault: Fault, past: Past, step: int, prompts: list[Prompt], rng: np.random.Generator
) -> tuple[Passed, Ints]:
    """(what the engine made of the batch, the turn of each place, -1 for the tool's)."""
    limit = job.response + int(job.response_growth * step)
    turn, forced = _places(job, limit, len(prompts), rng)
    read = [fault.engine_prompt(prompt, at // job.samples) for at, prompt in enumerate(prompts)]
    rows = Rows.of(read, forced)
    held = fault.engine(past, step)
    weights = held if isinstance(held, list) else [held] * len(prompts)
    older = fault.older(past, step)
    until = np.full(len(prompts), -1) if fault.until is None else fault.until(step, rng)
    keys = [(id(own), int(at)) for own, at in zip(weights, until, strict=True)]
    b, t = forced.shape
    shape = (b, t)
    out = Passed(
        np.empty(shape, np.int64),
        np.empty(shape, np.float32),
        np.empty(shape, np.float32),
        np.empty((b, 0, 0), np.float32),
    )
    for key in dict.fromkeys(keys):
        part = np.array([at for at, own in enumerate(keys) if own == key])
        first = int(part[0])
        made = passed(
            job.shape, weights[first], fault.engine_how(job.engine, step), rows.where(part), rng,
            sampling=fault.sampling(step), older=weights[first] if until[first] < 0 else older, until=max(int(until[first]), 0),
        )  # fmt: skip
        out.tokens[part], out.logps[part], out.entropy[part] = made.tokens, made.logps, made.entropy
    return out, turn


def _places(job: Job, limit: int, rows: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """(turn of each place or -1, ids that are not sampled or -1), each (B, T)."""
    if job.turns == 1:
        return np.zeros((rows, limit), int), np.full((rows, limit), -1)
    turns, forced = [], []
    for _ in range(rows):
        turn, ids = [], []
        for number in range(job.turns):
            own = int(rng.integers(max(2, limit // 3), limit, endpoint=True))
            turn += [number] * own
            ids += [-1] * own
            if number < job.turns - 1:
                tool = int(rng.integers(*job.tool, endpoint=True))
                turn += [-1] * (tool + 2)
                ids += [BREAK, *rng.integers(WORDS, job.shape.vocab, tool).tolist(), BREAK]
        turns.append(turn)
        forced.append(ids)
    width = max(map(len, turns))

    def padded(lists: list[list[int]], fill: int) -> Ints:
        return np.array([each + [fill] * (width - len(each)) for each in lists])

    return padded(turns, -2), padded(forced, END)


def _scored(
    job: Job,
    fault: Fault,
    past: Past,
    step: int,
    prompts: list[Prompt],
    whole: tuple[Passed, Ints],
    rng: np.random.Generator,
) -> tuple[Passed, dict[str, Any]]:
    """(what the trainer made of the batch, the lists of its log)."""
    engine, turn = whole
    tokens = engine.tokens
    ids = tokens if fault.trained is None else fault.trained(tokens.copy(), rng)
    context = [fault.trainer_prompt(prompt, at // job.samples) for at, prompt in enumerate(prompts)]
    if fault.context is not None:
        context = fault.context(context, ids, rng)
    read = ids if fault.rendered is None else fault.rendered(ids.copy(), turn, rng)
    weights, how = fault.trainer(past, step), fault.trainer_how(job.trainer, step)
    own = passed(job.shape, weights, how, Rows.of(context, ids), rng, keeps_p=job.update == "learn")
    if read is not ids:  # the first turn has no history; later ones are scored behind the other one
        behind = passed(job.shape, weights, how, Rows.of(context, read), rng)
        own = replace(own, logps=np.where(turn == 0, own.logps, behind.logps))
    if job.turns == 1:
        ended = (tokens == END) & (np.arange(tokens.shape[1]) >= 0)
        lengths = np.where(ended.any(1), ended.argmax(1) + 1, tokens.shape[1])
    else:
        lengths = (turn != -2).sum(1)
    current = None
    if "current" in job.record:  # of a forward of its own, whose sums are added up in another order
        again = replace(how, noise=max(how.noise, 1e-5))
        current = passed(job.shape, weights, again, Rows.of(context, read), rng)

    def cut(values: NDArray[Any]) -> list[NDArray[Any]]:
        return [row[:n].copy() for row, n in zip(values, lengths, strict=True)]

    return own, {
        "lengths": lengths,
        "tokens": cut(tokens),
        "ids": cut(ids),
        "rollout": cut(engine.logps),
        "old": cut(own.logps),
        "entropy": cut(own.entropy),
        "turn": cut(turn),
        "prompts": prompts,
        "current": None if current is None else cut(current.logps),
    }


def _entry(
    job: Job, fault: Fault, log: dict[str, Any], number: int, rewards: Floats, advantages: Floats
) -> dict[str, Any]:
    """The arguments of Collector.log."""
    rows, record = len(rewards), job.record
    entry: dict[str, Any] = {"step": number, "rollout_logprobs": log["rollout"], "old_logprobs": log["old"]}
    if job.turns > 1:
        entry["mask"] = [turn >= 0 for turn in log["turn"]]
        # the engine has no log-prob of what it did not sample; a trainer has those of all places
        own = zip(entry["rollout_logprobs"], entry["mask"], strict=True)
        entry["rollout_logprobs"] = [np.where(mask, logps, np.float32(0)) for logps, mask in own]
    optional = {
        "entropy": ("entropy", log["entropy"]),
        "ids": ("token_ids", log["ids"]),
        "sampled": ("sampled_ids", log["tokens"]),
        "groups": ("group_ids", [f"{number}-{at // job.samples}" for at in range(rows)]),
        "versions": ("rollout_versions", fault.versions(number, rows) if "versions" in record else None),
        "rewards": ("rewards", rewards),
        "advantages": ("advantages", advantages),
        "prompts": ("prompt_ids", log["prompts"]),
        "turns": ("turns", [np.maximum(turn, 0) for turn in log["turn"]]),
    }
    entry |= {name: value for what, (name, value) in optional.items() if what in record}
    if "versions" in record:
        entry["trainer_version"] = number
    if log["current"] is not None:
        entry |= {"current_logprobs": log["current"], "minibatch": 0}
    return entry


def _kept(entry: dict[str, Any], rows: Ints) -> dict[str, Any]:
    return {
        name: [value[int(at)] for at in rows] if isinstance(value, list | np.ndarray) else value
        for name, value in entry.items()
    }
