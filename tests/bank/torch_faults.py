"""Faults of the families that torch makes: each changes a healthy run, and tells in words what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .accepted import HEALTHY
from .case import Case
from .torch_loop import (
    BEGIN,
    BREAK,
    WORDS,
    Fault,
    Floats,
    Job,
    Log,
    Net,
    Past,
    Prompt,
    Rng,
    View,
    Weights,
    first_weights,
    rng_of,
    simulated,
    taught,
)  # fmt: skip

STRENGTHS = ("weak", "middle", "strong")
Made = tuple[Job, Fault, str]
"""(the run, what is wrong with it, the same in words)."""
Make = Callable[[], Case | None]
Maker = Callable[[Job, Any, Rng], Made]
VISIBLE = 1.3
"""A fault that makes the gap less than so many times that of a healthy engine is left out."""
PLACES = 130
"""About as many places are decoded in a run, one after the other: wide batches cost less than long ones."""
CLEAR = 2.0
"""A gap that is less than so many times that of a healthy engine decides nothing."""


@dataclass(frozen=True)
class Spec:
    """A fault at some strengths."""

    fault: str
    """A key of ACCEPTED."""
    side: str
    make: Maker
    parameters: Mapping[str, Any]
    """Strength -> parameter of `make`."""
    decides: bool = True
    """True if a record of middle or strong strength decides the cause."""
    decides_weak: bool = False
    count: int = 1
    """Runs of each strength."""
    label: str = ""
    """Part of the name that tells specs of one fault apart."""
    in_context: bool = False
    """Runs where the policy depends on its context alone: a near-uniform one would not show the fault."""
    of_record: bool = False
    """The log is edited: every strength is visible."""

    @property
    def stem(self) -> str:
        return f"{self.fault}_{self.label}" if self.label else self.fault


def three(weak: Any, middle: Any, strong: Any) -> dict[str, Any]:
    return dict(zip(STRENGTHS, (weak, middle, strong), strict=True))


def learning(job: Job, rng: Rng, rate: float, steps: tuple[int, ...] = (6, 10, 16)) -> Job:
    """The run with Adam at this learning rate; a third of it where the policy is sharp."""
    sharp = 1.0 if job.net.start == "flat" else 0.3
    return _sized(replace(job, rate=float(f"{rate * sharp:.1g}"), steps=int(rng.choice(steps))))


def maybe_learning(job: Job, rng: Rng, rate: float = 5e-4) -> Job:
    """The run with or without updates, synced honestly."""
    return job if rng.random() < 0.5 else learning(job, rng, rate, (6, 10))


def _sized(job: Job) -> Job:
    """Logs as many groups as give about job.tokens tokens; the batch of a run that learns has 16 sequences or more."""
    length = job.response if job.response > 24 else int(np.clip(PLACES // job.steps, 6, job.response))
    logged = int(np.clip(round(job.tokens / (length * job.samples * job.steps)), 1, 32))
    batch = max(logged, -(-16 // job.samples)) if job.rate else logged
    return replace(job, response=length, logged=logged, groups=batch)


def updates(job: Job) -> str:
    adapter = f", LoRA of rank {job.lora}" if job.lora else ""
    kind = f"Adam at {job.rate:g}{adapter}" if job.rate else "no updates"
    return f"{job.steps} steps, {kind}; {job.net.name}"


def _fresh_or_none(job: Job, rng: Rng, *, syncs: float = 0.3) -> Job:
    """Versions are not on record, or the trainer's own are logged as the engine's."""
    record = job.record - {"versions", "syncs"}
    record |= {"versions"} if rng.random() < 0.3 else set()
    return replace(job, record=record | ({"syncs"} if rng.random() < syncs else set()))


# ---- weights over time


def never_synced(job: Job, rate: float, rng: Rng) -> Made:
    job = _fresh_or_none(learning(job, rng, rate, (6, 12, 24)), rng, syncs=0)
    return job, Fault(engine=lambda past, step: past[0]), f"the engine keeps its first weights; {updates(job)}"


def sync_broke(job: Job, rate: float, rng: Rng) -> Made:
    job = learning(job, rng, rate, (12, 20))
    last = int(rng.integers(3, max(4, job.steps // 2)))
    job = _fresh_or_none(job, rng)
    if "syncs" in job.record:
        job = replace(job, record=job.record - {"versions"})

    def events(step: int) -> list[tuple[str, Log]]:
        return [("sync", {"version": step + 1, "step": step})] if step < last else []

    fault = Fault(engine=lambda past, step: past[min(step, last)], events=events)
    return job, fault, f"the engine gets no weights after step {last}; {updates(job)}"


def stale_recorded(job: Job, rate: float, rng: Rng) -> Made:
    job = learning(job, rng, rate, (10, 20))
    last, first = int(rng.integers(0, 5)), job.first_step
    job = replace(job, record=job.record | {"versions"} - {"syncs"})
    fault = Fault(
        engine=lambda past, step: past[min(step, last)],
        versions=lambda number, rows: [min(number, first + last)] * rows,
    )
    return job, fault, f"the engine stays at version {last}, which is on record; {updates(job)}"


def sync_every(job: Job, p: tuple[float, int], rng: Rng) -> Made:
    rate, k = p
    job = learning(job, rng, rate, (12, 16))
    job = replace(job, record=job.record - {"versions", "syncs"})
    return (
        job,
        Fault(engine=lambda past, step: past[step - step % k]),
        f"weights arrive at every {k}th step; {updates(job)}",
    )


def version_lag(job: Job, p: tuple[float, int], rng: Rng) -> Made:
    rate, most = p
    job = replace(learning(job, rng, rate, (8, 16)), first_step=0)
    job = replace(job, record=job.record | {"versions"})
    of_group = [
        np.minimum(rng.integers(0, most + 1, job.groups), step).repeat(job.samples) for step in range(job.steps)
    ]
    fault = Fault(
        engine=lambda past, step: [past[step - int(lag)] for lag in of_group[step]],
        versions=lambda number, rows: [number - int(lag) for lag in of_group[number]],
    )
    return job, fault, f"groups of weights 0 to {most} versions old, on record; {updates(job)}"


def lag_unrecorded(job: Job, p: tuple[float, int], rng: Rng) -> Made:
    rate, lag = p
    job = learning(job, rng, rate, (10, 20))
    job = replace(job, record=job.record - {"versions", "syncs"})
    return (
        job,
        Fault(engine=lambda past, step: past[max(0, step - lag)]),
        f"weights {lag} versions old, not on record; {updates(job)}",
    )


# ---- a load, a part, an adapter


def _matrices(weights: Weights, net: Net) -> list[str]:
    """Names of the linear layers inside the blocks, in their order."""
    return [
        name for name, value in weights.items() if value.ndim == 2 and name not in net.moved and "router" not in name
    ]


def broken(weights: Weights, net: Net, how: str, size: float) -> Weights:
    """Weights of which a load has spoiled a share of this size: of the rows of one matrix; from 1 on, of all of a layer."""
    names = _matrices(weights, net)
    last = names[len(names) // 2 :]
    chosen = last if size >= 1 else last[-1:]
    out = dict(weights)
    for name in chosen:
        value = weights[name]
        rows = max(1, int(min(size, 1.0) * len(value)))
        new = value.clone()
        if how == "zeroed":
            new[:rows] = 0
        elif how == "swapped":  # the rows of another shard
            new[:rows] = value[:rows].roll(max(1, rows // 2), 0)
        else:
            square = min(value.shape)
            new[:rows, :square] = value[:square, :square].T[:rows, :square]
        out[name] = new
    return out


def corrupted_load(job: Job, size: float, rng: Rng) -> Made:
    job = replace(_sized(replace(job, steps=int(rng.integers(8, 14)))), first_step=job.first_step)
    job = job if rng.random() < 0.4 else _sized(replace(job, rate=3e-4 if job.net.start == "flat" else 1e-4))
    at = int(rng.integers(3, job.steps - 3))
    how = str(rng.choice(["zeroed", "swapped", "transposed"]))
    fault = Fault(engine=lambda past, step: broken(past[-1], job.net, how, size) if step >= at else past[-1])
    return job, fault, f"from step {at} on the engine has a matrix {how}, share {size:g}; {updates(job)}"


def stale_head(job: Job, rate: float, rng: Rng) -> Made:
    job = learning(job, rng, rate, (12, 20))
    job = replace(job, record=job.record - {"versions"})
    at, head = int(rng.integers(0, 5)), job.net.moved[1]
    fault = Fault(engine=lambda past, step: past[-1] | {head: past[min(step, at)][head]})
    return (
        job,
        fault,
        f"the engine's head stays that of step {at} (tied: {job.net.tied}), the rest is new; {updates(job)}",
    )


def other_tensor(side: str, part: int) -> Maker:
    def make(job: Job, size: float, rng: Rng) -> Made:
        job = maybe_learning(job, rng, 3e-4)
        name = job.net.moved[part]
        other = _other_checkpoint(job.net)[name]

        def mixed(past: Past, step: int) -> Weights:
            return past[-1] | {name: (1 - size) * past[-1][name] + size * other}

        fault = Fault(engine=mixed) if side == "engine" else Fault(trainer=mixed)
        what = ("embedding", "head")[part]
        return (
            job,
            fault,
            f"the {side}'s {what} lies {size:.0%} of the way to that of another checkpoint; {updates(job)}",
        )

    return make


def _other_checkpoint(net: Net) -> Weights:
    """The next checkpoint of the same training where there was one; else one of another seed."""
    if net.start == "taught":
        if net not in _NEXT:
            _NEXT[net] = taught(net, first_weights(net), 25, seed=1)
        return _NEXT[net]
    return first_weights(replace(net, seed=net.seed + 100))


_NEXT: dict[Net, Weights] = {}


def rows_shifted(side: str, part: int) -> Maker:
    def make(job: Job, share: float, rng: Rng) -> Made:
        job = maybe_learning(job, rng, 3e-4)
        name = job.net.moved[part]

        def shifted(past: Past, step: int) -> Weights:
            new = past[-1][name].clone()
            start = int(len(new) * (1 - share))
            new[start:] = new[start:].roll(1, 0)
            return past[-1] | {name: new}

        fault = Fault(engine=shifted) if side == "engine" else Fault(trainer=shifted)
        return job, fault, f"the last {share:.0%} of the rows of the {side}'s {name} are moved by one; {updates(job)}"

    return make


def _with_adapter(job: Job, rng: Rng, rate: float, **config: object) -> Job:
    job = learning(replace(job, lora=4), rng, 4 * rate, (8, 16))
    told = {"lora_rank": 4, "lora_alpha": 8, "target_modules": "all-linear"}
    return replace(job, config=job.config | told | config)


def adapter_missing(job: Job, rate: float, rng: Rng) -> Made:
    job = _fresh_or_none(_with_adapter(job, rng, rate), rng)
    return (
        job,
        Fault(engine=lambda past, step: past[0]),
        f"the engine serves the base without the adapter; {updates(job)}",
    )


def adapter_scaled(side: str) -> Maker:
    def make(job: Job, p: tuple[float, float], rng: Rng) -> Made:
        rate, factor = p
        job = _with_adapter(job, rng, rate, tensor_model_parallel_size=max(1, int(factor)))
        job = replace(job, record=job.record | {"versions", "syncs"})

        def wrong(past: Past, step: int) -> Weights:
            return {name: past[0][name] + factor * (value - past[0][name]) for name, value in past[-1].items()}

        fault = Fault(engine=wrong) if side == "engine" else Fault(trainer=wrong)
        return job, fault, f"the {side} counts the adapter {factor:g} times; {updates(job)}"

    return make


def aging(job: Job, p: float, rng: Rng) -> Made:
    job = _sized(replace(job, rate=0.0, steps=int(rng.integers(8, 14)), first_step=500))
    job = replace(job, record=job.record | {"versions"}, config=job.config | {"learning_rate": 0.0})
    names = _matrices(first_weights(job.net), job.net)[-2:]

    def aged(past: Past, step: int) -> Weights:
        return past[0] | {name: past[0][name] * (1 + p * step) for name in names}

    def edit(log: Log, step: int, _: Rng) -> None:
        log["trainer_version"] = 500

    fault = Fault(engine=aged, versions=lambda number, rows: [500] * rows, edit=edit)
    return (
        job,
        fault,
        f"two matrices of the engine grow by {p:g} each step; learning rate 0, version 500 always; {updates(job)}",
    )


def stuck_replica(labelled: bool) -> Maker:
    def make(job: Job, rate: float, rng: Rng) -> Made:
        job = learning(replace(job, samples=4), rng, rate, (8, 12))
        job = replace(job, groups=4, logged=4, response=min(job.response, 12), record=job.record - {"versions"})

        def engine(past: Past, step: int) -> list[Weights]:
            return [past[0] if group == 2 else past[-1] for group in range(4) for _ in range(4)]

        def edit(log: Log, step: int, _: Rng) -> None:
            if labelled:
                log["replica"] = [f"engine-{group}" for group in range(4) for _ in range(4)]

        words = "" if labelled else "; the record does not name replicas"
        return (
            job,
            Fault(engine=engine, edit=edit),
            f"one of four replicas keeps its first weights{words}; {updates(job)}",
        )

    return make


def switch_inside(recorded: bool) -> Maker:
    def make(job: Job, p: tuple[float, int], rng: Rng) -> Made:
        rate, lag = p
        job = learning(replace(job, response=26), rng, rate, (6, 8))
        job = replace(job, first_step=0, record=(job.record | {"versions"}) if recorded else job.record - {"versions"})
        rows = job.groups * job.samples
        places = [rng.choice([-1, 7, 15], job.groups).repeat(job.samples) for _ in range(job.steps)]
        fault = Fault(
            older=lambda past, step: past[max(0, step - lag)],
            until=lambda step: places[step],
            versions=lambda number, _: [
                np.where(np.arange(26) <= places[number][row], max(0, number - lag), number).astype(np.int32)
                for row in range(rows)
            ],
        )
        words = "on record" if recorded else "not on record"
        return job, fault, f"weights change by {lag} versions inside most sequences, {words}; {updates(job)}"

    return make


def stale_prefix(recorded: bool) -> Maker:
    def make(job: Job, p: tuple[float, int], rng: Rng) -> Made:
        rate, lag = p
        job = learning(replace(job, prompt=(10, 20)), rng, rate, (8, 12))
        job = replace(job, record=job.record - {"versions"})
        hits = [(rng.random(job.groups) < (0.5 if recorded else 2)).repeat(job.samples) for _ in range(job.steps)]

        def edit(log: Log, step: int, _: Rng) -> None:
            if recorded:
                log["cached_tokens"] = [12 * int(hit) for hit in hits[step]][: len(log["rollout_logprobs"])]
                log["prompt_tokens"] = [16] * len(log["rollout_logprobs"])

        fault = Fault(
            older=lambda past, step: past[max(0, step - lag)],
            until=lambda step: np.where(hits[step], 0, -1),
            edit=edit,
        )
        words = "half of the prompts, on record" if recorded else "all prompts, not on record"
        return job, fault, f"keys and values of {words}, are of weights {lag} versions old; {updates(job)}"

    return make


# ---- sampling, inputs, numerics


def of_view(
    side: str, words: str, change: Callable[[View, Any], View], shape: Callable[[Job, Any], Job] = lambda job, p: job
) -> Maker:
    """One side computes in another way, from the first step on. words: with {p} and {side}."""

    def make(job: Job, p: Any, rng: Rng) -> Made:
        job = shape(maybe_learning(job, rng), p)
        wrong: Callable[[View, int], View] = lambda view, step: change(view, p)  # noqa: E731
        fault = Fault(engine_how=wrong) if side == "engine" else Fault(trainer_how=wrong)
        return job, fault, f"{words.format(p=p, side=side)}; {updates(job)}"

    return make


def of_weights(side: str, words: str, change: Callable[[Weights, Net, Any], Weights]) -> Maker:
    """One side computes with other weights, from the first step on."""

    def make(job: Job, p: Any, rng: Rng) -> Made:
        job = maybe_learning(job, rng)
        wrong: Callable[[Past, int], Weights] = lambda past, step: change(past[-1], job.net, p)  # noqa: E731
        fault = Fault(engine=wrong) if side == "engine" else Fault(trainer=wrong)
        return job, fault, f"{words.format(p=p, side=side)}; {updates(job)}"

    return make


def quantised(weights: Weights, net: Net, bits: int) -> Weights:
    """Linear layers rounded to symmetric integers, a scale for each output."""
    out = dict(weights)
    for name in (each for each in weights if weights[each].ndim > 1 and each not in net.moved and "router" not in each):
        scale = weights[name].abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1) + 1e-12
        out[name] = (weights[name] / scale).round() * scale
    return out


def engine_temperature(job: Job, t: float, rng: Rng) -> Made:
    job = maybe_learning(job, rng)
    job = replace(job, config=job.config | {"temperature": t})
    return (
        job,
        Fault(sampling=lambda how, step: replace(how, temperature=t)),
        f"sampled at {t:g}, and scored at 1; {updates(job)}",
    )


def reported_raw(job: Job, t: float, rng: Rng) -> Made:
    job = maybe_learning(replace(job, temperature=t, config=job.config | {"temperature": t}), rng)
    return (
        job,
        Fault(sampling=lambda how, step: replace(how, report="raw")),
        f"sampled and scored at {t:g}, reported at 1; {updates(job)}",
    )


def truncation(what: str) -> Maker:
    def make(job: Job, p: Any, rng: Rng) -> Made:
        job = maybe_learning(job, rng)
        given: Any = {what: p}
        told = "and reported so; scored without"
        return (
            job,
            Fault(sampling=lambda how, step: replace(how, **given)),
            f"sampled with {what} {p} {told}; {updates(job)}",
        )

    return make


def banned(job: Job, count: int, rng: Rng) -> Made:
    job = maybe_learning(job, rng)
    ids = tuple(int(each) for each in rng.choice(np.arange(WORDS, job.net.vocab), count, replace=False))
    return (
        job,
        Fault(sampling=lambda how, step: replace(how, banned=ids)),
        f"{count} ids cannot be sampled; {updates(job)}",
    )


PROMPTS: Mapping[str, tuple[Callable[[Prompt], Prompt], str]] = {
    "begin": (lambda prompt: prompt[1:], "BEGIN is missing"),
    "begin twice": (lambda prompt: [BEGIN, *prompt], "BEGIN stands twice"),
    "message": (lambda prompt: [BEGIN, *prompt[3:]], "the system message is dropped"),
    "template": (lambda prompt: [*prompt, 9, 11, BREAK], "another template"),
    "truncated": (lambda prompt: prompt[-3:], "all but the last 3 ids of the prompt are cut"),
    "topic": (lambda prompt: [BEGIN, 4 + (prompt[1] - 3) % 4, *prompt[2:]], "another system message"),
}


def different_prompt(side: str) -> Maker:
    def make(job: Job, kind: str, rng: Rng) -> Made:
        change, words = PROMPTS[kind]
        job = maybe_learning(job, rng)
        fault = Fault(engine_prompt=change) if side == "engine" else Fault(trainer_prompt=change)
        return job, fault, f"the {side} reads another prompt: {words}; {updates(job)}"

    return make


def packing(recorded: bool) -> Maker:
    def make(job: Job, size: int, rng: Rng) -> Made:
        job = maybe_learning(job, rng)
        rows = job.groups * job.samples
        orders = [rng.permutation(rows) for _ in range(job.steps)]
        places = [np.argsort(order) for order in orders]

        def packed(step: int) -> list[int]:
            order, place = orders[step], places[step]
            return [int(order[place[row] - 1]) if place[row] % size else -1 for row in range(rows)]

        def edit(log: Log, step: int, _: Rng) -> None:
            if recorded:
                count = len(log["rollout_logprobs"])
                log["pack_position"] = [int(places[step][row] % size) for row in range(count)]
                log["pack_index"] = [int(places[step][row] // size) for row in range(count)]

        words = "on record" if recorded else "not on record"
        return (
            job,
            Fault(packed=packed, edit=edit),
            f"packs of {size} see the one before them; places {words}; {updates(job)}",
        )

    return make


# ---- the record


def edited(words: str, change: Callable[[Floats, Any, Rng], Floats], policy: str = "rollout") -> Maker:
    def make(job: Job, p: Any, rng: Rng) -> Made:
        def edit(log: Log, step: int, rng: Rng) -> None:
            log[f"{policy}_logprobs"] = [change(own.copy(), p, rng) for own in log[f"{policy}_logprobs"]]

        job = maybe_learning(job, rng)
        return job, Fault(edit=edit), f"{policy}: {words.format(p=p)}; {updates(job)}"

    return make


def filled(value: float) -> Callable[[Floats, float, Rng], Floats]:
    def change(own: Floats, share: float, rng: Rng) -> Floats:
        own[rng.random(len(own)) < share] = value
        return own

    return change


def mask_off_by_one(job: Job, value: float, rng: Rng) -> Made:
    """The trainer's mask lies one place to the right: it lacks the first token, and has the padding behind the last one."""

    def edit(log: Log, step: int, rng: Rng) -> None:
        for name in ("rollout_logprobs", "old_logprobs", "current_logprobs", "entropy", "token_ids"):
            if name in log:
                behind = {"rollout_logprobs": value, "entropy": float(np.log(job.net.vocab)), "token_ids": 2}.get(name)
                log[name] = [
                    np.append(own[1:], own.dtype.type(-rng.uniform(3, 9) if behind is None else behind))
                    for own in log[name]
                ]
        if "versions" in job.record:
            del log["rollout_versions"]

    job = maybe_learning(replace(job, record=job.record - {"versions", "current"}), rng)
    told = f"the trainer's mask lies one place too far right; the engine's log-prob of the padding is {value:g}"
    return job, Fault(edit=edit), f"{told}; {updates(job)}"


# ---- cases


def healthy(job: Job, p: Any, rng: Rng) -> Made:
    """p: (learning rate, rank of LoRA, temperature)."""
    rate, rank, t = p
    job = replace(job, lora=rank, temperature=t, config=job.config | {"temperature": t})
    job = learning(job, rng, rate, (3, 8, 20, 40)) if rate else job
    if rank:
        job = replace(job, config=job.config | {"lora_rank": rank, "target_modules": "all-linear"})
    return job, Fault(), f"nothing; {updates(job)}"


def drawn(name: str, nets: tuple[Net, ...], extra: Mapping[str, Any]) -> tuple[Job, Rng]:
    """A healthy run without updates, drawn by the name of its case, and the generator of what else is drawn."""
    rng = rng_of(name)
    net = nets[int(rng.integers(len(nets)))]
    engine = (View("bf16"), View("bf16"), View("bf16", noise=0.02), View("fp16"), View("bf16", noise=0.005))[
        int(rng.integers(5))
    ]
    trainer = View("bf16") if rng.random() < 0.3 else View()
    response = int(rng.choice([8, 12, 16, 24]))
    record = {"ids", "groups"}
    for what, share in (
        ("entropy", 0.5),
        ("versions", 0.4),
        ("syncs", 0.4),
        ("rewards", 0.7),
        ("current", 0.35),
        ("prompts", 0.3),
    ):
        record |= {what} if rng.random() < share else set()
    record -= {"ids"} if rng.random() < 0.15 else set()
    dtype = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
    config = {
        "model": net.name.replace("_", "-"), "model_type": net.name.split("_")[0],
        "engine": f"transformers {dtype[engine.dtype]}",
        "engine_dtype": dtype[engine.dtype], "model_dtype": dtype[trainer.dtype], "temperature": 1.0, "optimizer": "adam",
        **extra,
    }  # fmt: skip
    job = Job(
        net, int(rng.integers(1 << 30)), int(rng.choice([3, 4, 6, 8])), samples=int(rng.choice([2, 4, 8])), response=response,
        engine=engine, trainer=trainer, record=frozenset(record), config=config, first_step=int(rng.choice([0, 1])),
    )  # fmt: skip
    return job, rng


def case_of(
    family: str,
    spec: Spec,
    name: str,
    strength: str,
    parameter: Any,
    nets: tuple[Net, ...],
    extra: Mapping[str, Any],
    tokens: int,
) -> Case | None:
    """The case; None if its fault leaves no trace."""
    fit = tuple(net for net in nets if net.start != "flat" or not spec.in_context)
    job, rng = drawn(name, fit, extra)
    job, fault, words = spec.make(_sized(replace(job, tokens=tokens)), parameter, rng)
    key = "lr" if rng.random() < 0.5 else "learning_rate"
    if job.rate or (rng.random() < 0.5 and "learning_rate" not in job.config):
        job = replace(job, config=job.config | {key: job.rate})
    run = simulated(job, fault)
    is_healthy = spec.fault == HEALTHY
    clear = spec.of_record or run.gap >= CLEAR * run.floor
    if not (is_healthy or spec.of_record) and run.gap < VISIBLE * run.floor:
        return None
    decided = not is_healthy and spec.decides and clear and (strength != "weak" or spec.decides_weak)
    return Case(name, family, spec.fault, spec.side, strength, words, decided, job.config, run.logs, run.events)


def cases_of(
    family: str, specs: Sequence[Spec], nets: tuple[Net, ...], extra: Mapping[str, Any], tokens: int
) -> list[Make]:
    """The maker of each run of a family; None if the fault of a run leaves no trace."""
    return [
        partial(
            case_of, family, spec, f"{family}.{spec.stem}.{strength}.{number}", strength, parameter, nets, extra, tokens
        )
        for spec in specs
        for strength, parameter in spec.parameters.items()
        for number in range(spec.count)
    ]
