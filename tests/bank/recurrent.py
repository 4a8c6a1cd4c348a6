"""The family `recurrent`: one response to each prompt by the small network, with a fault on either side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .case import Case
from .network import BEGIN, BREAK, WORDS, Ints, Reading, Sampling, Weights, quantised
from .simulation import Fault, Job, Past, Prompt, rng_of, simulated

FAMILY = "recurrent"
STRENGTHS = ("weak", "middle", "strong")
Log = dict[str, Any]
Made = tuple[Job, Fault, str]
"""(the run, what is wrong with it, the same in words)."""
Rng = np.random.Generator


@dataclass(frozen=True)
class Spec:
    """A fault at some strengths."""

    fault: str
    """A key of ACCEPTED."""
    side: str
    make: Callable[[Job, Any, Rng], Made]
    parameters: Mapping[str, Any]
    """Strength -> parameter of `make`."""
    decides: bool = True
    """True if a record of middle or strong strength decides the cause."""
    decides_weak: bool = False
    count: int = 2
    """Runs of each strength."""
    label: str = ""
    """Part of the name that tells specs of one fault apart."""


def three(weak: Any, middle: Any, strong: Any) -> dict[str, Any]:
    return dict(zip(STRENGTHS, (weak, middle, strong), strict=True))


# ---- weights over time


def moving(job: Job, rng: Rng, rate: float, steps: tuple[int, int] | None = (8, 20)) -> Job:
    """The run with updates: learning or a random walk. steps: from and to; None leaves them."""
    learns = bool(rng.random() < 0.5)
    count = job.steps if steps is None else int(rng.integers(*steps))
    return replace(job, update="learn" if learns else "wander", rate=rate * (0.25 if learns else 1.0), steps=count)


def stale(job: Job, rng: Rng) -> Job:
    """Syncs and versions are mostly not on record; where versions are, they are the trainer's own, logged as fresh."""
    return replace(job, record=job.record - {"versions"} if rng.random() < 0.75 else job.record)


def never_synced(job: Job, rate: float, rng: Rng) -> Made:
    job = stale(moving(job, rng, rate), rng)
    job = replace(job, record=job.record - {"syncs"})
    return job, Fault(engine=lambda past, step: past[0]), f"the engine keeps its first weights; {updates(job)}"


def updates(job: Job) -> str:
    kind = {"learn": "policy-gradient updates", "wander": "random updates", "fixed": "no updates"}[job.update]
    return f"{job.steps} steps, {kind} of relative size {job.rate:.3g}"


def sync_broke(job: Job, rate: float, rng: Rng) -> Made:
    job = stale(moving(job, rng, rate, (10, 24)), rng)
    last = int(rng.integers(3, job.steps // 2))
    job = replace(job, record=job.record - {"versions"} | ({"syncs"} if rng.random() < 0.4 else set()))

    def events(step: int) -> list[tuple[str, Log]]:
        return [("sync", {"version": step + 1, "step": step})] if step < last else []

    fault = Fault(engine=lambda past, step: past[min(step, last)], events=events)
    return job, fault, f"the engine gets no weights after step {last}; {updates(job)}"


def sync_every(job: Job, p: tuple[float, int], rng: Rng) -> Made:
    rate, k = p
    job = replace(moving(job, rng, rate, (12, 24)), record=job.record - {"versions", "syncs"})
    fault = Fault(engine=lambda past, step: past[step - step % k])
    return job, fault, f"the engine gets weights at every {k}th step; {updates(job)}"


def version_lag(job: Job, p: tuple[float, int], rng: Rng) -> Made:
    rate, most = p
    job = moving(job, rng, rate, (8, 16))
    job = replace(job, record=job.record | {"versions"})
    lags = [rng.integers(0, most + 1, job.groups * job.samples) for _ in range(job.steps)]
    lags = [np.minimum(lag, step) for step, lag in enumerate(lags)]
    fault = Fault(
        engine=lambda past, step: [past[step - lag] for lag in lags[step]],
        versions=lambda step, rows: [step - int(lag) for lag in lags[step - job.first_step]],
    )
    return (
        replace(job, first_step=0),
        fault,
        f"sequences of weights 0 to {most} versions old, on record; {updates(job)}",
    )


def lag_unrecorded(job: Job, p: tuple[float, int], rng: Rng) -> Made:
    rate, lag = p
    job = moving(job, rng, rate, (10, 20))
    job = replace(job, record=job.record - {"versions", "syncs"})
    fault = Fault(engine=lambda past, step: past[max(0, step - lag)])
    return job, fault, f"every token is of weights {lag} versions old, and no version is on record; {updates(job)}"


def still_or_moving(job: Job, rng: Rng, rate: float = 0.003) -> Job:
    """The run with or without updates, synced honestly."""
    return job if rng.random() < 0.4 else moving(job, rng, rate, None)


def broken(weights: Weights, how: str, size: float, seed: int) -> Weights:
    """Weights of which a load has spoiled a part of this size."""
    rng = np.random.default_rng(seed)
    out = dict(weights)
    if how == "swapped":
        out["up"] = ((1 - size) * weights["up"] + size * np.roll(weights["up"], 1, axis=-1)).astype(np.float32)
    elif how == "zeroed":
        out["down"] = (weights["down"] * (1 - size)).astype(np.float32)
    else:
        other = rng.standard_normal(weights["head"].shape)
        out["head"] = (weights["head"] * np.sqrt(1 - size**2) + size * other).astype(np.float32)
    return out


def corrupted_load(job: Job, p: float, rng: Rng) -> Made:
    job = still_or_moving(replace(job, steps=int(rng.integers(8, 16))), rng)
    at = int(rng.integers(3, job.steps - 3))
    how = str(rng.choice(["swapped", "zeroed", "head of another checkpoint"]))
    size = p * (0.5 if how.startswith("head") else 1)
    fault = Fault(engine=lambda past, step: broken(past[-1], how, size, 7) if step >= at else past[-1])
    return job, fault, f"from step {at} on the engine's weights are {how}, share {size:.2g}; {updates(job)}"


def passing_load(job: Job, p: float, rng: Rng) -> Made:
    job = still_or_moving(replace(job, steps=14), rng, 0.001)
    bad = {5, 6, 10}
    fault = Fault(engine=lambda past, step: broken(past[-1], "head", 0.5 * p, 7) if step in bad else past[-1])
    return job, fault, f"at steps {sorted(bad)} the engine has another head, share {0.5 * p:.2g}; {updates(job)}"


def scaled(past: Past, factor: float) -> Weights:
    """The first weights and so many times the change since then: an adapter that was counted as often."""
    first, last = past[0], past[-1]
    return {name: (first[name] + factor * (last[name] - first[name])).astype(np.float32) for name in last}


def adapter_missing(job: Job, rate: float, rng: Rng) -> Made:
    job = moving(job, rng, rate, (8, 16))
    config = job.config | {"lora_rank": 8, "target_modules": "all-linear"}
    job = replace(job, config=config, record=job.record - {"versions"})
    return (
        job,
        Fault(engine=lambda past, step: past[0]),
        f"the engine serves the base without the adapter; {updates(job)}",
    )


def adapter_scaled(side: str) -> Callable[[Job, tuple[float, float], Rng], Made]:
    def make(job: Job, p: tuple[float, float], rng: Rng) -> Made:
        rate, factor = p
        job = moving(job, rng, rate, (8, 16))
        config = job.config | {
            "lora_rank": 8,
            "target_modules": "all-linear",
            "tensor_model_parallel_size": int(factor),
        }
        job = replace(job, config=config, record=job.record | {"versions", "syncs"}, update="wander")
        wrong: Callable[[Past, int], Weights] = lambda past, step: scaled(past, factor)  # noqa: E731
        fault = Fault(engine=wrong) if side == "engine" else Fault(trainer=wrong)
        return job, fault, f"the {side} counts the adapter {factor:g} times; {updates(job)}"

    return make


def part_stale(side: str, part: str) -> Callable[[Job, float, Rng], Made]:
    def make(job: Job, rate: float, rng: Rng) -> Made:
        job = moving(job, rng, rate, (8, 16))
        job = replace(job, record=job.record - {"versions"}, shape=replace(job.shape, gated=True))
        wrong: Callable[[Past, int], Weights] = lambda past, step: past[-1] | {part: past[0][part]}  # noqa: E731
        fault = Fault(engine=wrong) if side == "engine" else Fault(trainer=wrong)
        return job, fault, f"the {side}'s {part} stays that of the first step, the rest is new; {updates(job)}"

    return make


def rows_shifted(side: str, part: str) -> Callable[[Job, float, Rng], Made]:
    def shifted(weights: Weights, share: float) -> Weights:
        out = weights[part].copy()
        rows = out if part == "embed" else out.T
        start = int(len(rows) * (1 - share))
        rows[start:] = np.roll(rows[start:], 1, axis=0)
        return weights | {part: out}

    def make(job: Job, share: float, rng: Rng) -> Made:
        job = still_or_moving(job, rng)
        wrong: Callable[[Past, int], Weights] = lambda past, step: shifted(past[-1], share)  # noqa: E731
        fault = Fault(engine=wrong) if side == "engine" else Fault(trainer=wrong)
        return job, fault, f"the last {share:.0%} of the rows of the {side}'s {part} are moved by one; {updates(job)}"

    return make


def token_bias(job: Job, p: tuple[int, float], rng: Rng) -> Made:
    count, size = p
    chosen = rng.choice(np.arange(WORDS, min(job.shape.vocab, 200)), count, replace=False)

    def biased(logps: np.ndarray, ids: np.ndarray) -> np.ndarray:
        return (logps + np.float32(size) * np.isin(ids, chosen)).astype(np.float32)

    def edit(log: Log, step: int, _: Rng) -> None:
        log["rollout_logprobs"] = [biased(v, i) for v, i in zip(log["rollout_logprobs"], log["token_ids"], strict=True)]

    job = replace(job, record=job.record | {"ids"}, shape=replace(job.shape, vocab=60))
    chosen = rng.choice(np.arange(WORDS, 60), count, replace=False)
    return job, Fault(edit=edit), f"the engine's log-probs of {count} of 60 ids are higher by {size:g}"


def aging(job: Job, p: float, rng: Rng) -> Made:
    job = replace(job, steps=int(rng.integers(8, 16)), update="fixed", record=job.record | {"versions"}, first_step=500)
    job = replace(job, config=job.config | {"learning_rate": 0.0})

    def engine(past: Past, step: int) -> Weights:
        own = past[0]
        return own | {"up": own["up"] * (1 + p * step), "down": own["down"] * (1 + p * step)}

    fault = Fault(
        engine=engine,
        versions=lambda step, rows: [500] * rows,
        edit=lambda log, step, _: log.update(trainer_version=500),
    )
    return (
        job,
        fault,
        f"two matrices of the engine grow by {p:.3g} each step; learning rate 0, version 500 at every step",
    )


def setting_changed(job: Job, bits: int, rng: Rng) -> Made:
    job = still_or_moving(replace(job, steps=12), rng, 0.001)
    at = int(rng.integers(4, 7))
    job = replace(job, engine=replace(job.engine, bits=11, noise=0))
    fault = Fault(engine_how=lambda how, step: replace(how, bits=bits) if step >= at else how)
    return (
        job,
        fault,
        f"from step {at} on the engine computes with {bits} bits of mantissa, before with 11; {updates(job)}",
    )


def stuck_replica(labelled: bool) -> Callable[[Job, float, Rng], Made]:
    def make(job: Job, rate: float, rng: Rng) -> Made:
        job = moving(replace(job, groups=4, samples=4), rng, rate, (8, 14))
        job = replace(job, record=job.record - {"versions"})

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


def odd_rank(job: Job, size: float, rng: Rng) -> Made:
    """Ranks take turns in the logs: rank 1 of four has another trainer."""
    job = still_or_moving(replace(job, steps=24, groups=2), rng, 0.0005)

    def edit(log: Log, step: int, _: Rng) -> None:
        log["rank"], log["step"] = step % 4, step // 4

    fault = Fault(
        trainer=lambda past, step: broken(past[-1], "head", size, 3) if step % 4 == 1 else past[-1], edit=edit
    )
    return (
        replace(job, record=job.record - {"versions", "syncs"}),
        fault,
        f"rank 1 of four has another head, share {size:g}",
    )


def switch_inside(recorded: bool) -> Callable[[Job, tuple[float, int], Rng], Made]:
    def make(job: Job, p: tuple[float, int], rng: Rng) -> Made:
        rate, lag = p
        job = moving(replace(job, response=40), rng, rate, (8, 12))
        job = replace(job, record=(job.record | {"versions"}) if recorded else job.record - {"versions"}, first_step=0)
        places = [
            [int(at) for at in rng.choice([-1, 8, 16, 24, 32], job.groups * job.samples)] for _ in range(job.steps)
        ]
        fault = Fault(
            older=lambda past, step: past[max(0, step - lag)],
            until=lambda step, _: np.array(places[step]),
            versions=lambda step, rows: [
                np.where(np.arange(40) < at, max(0, step - lag), step).astype(np.int32) for at in places[step]
            ],
            edit=(lambda log, step, _: _cut_versions(log)) if recorded else None,
        )
        words = "on record" if recorded else "not on record"
        return job, fault, f"weights change by {lag} versions inside most sequences, {words}; {updates(job)}"

    return make


def _cut_versions(log: Log) -> None:
    log["rollout_versions"] = [
        v[: len(x)] for v, x in zip(log["rollout_versions"], log["rollout_logprobs"], strict=True)
    ]


# ---- sampling


def trainer_temperature(side: str) -> Callable[[Job, float, Rng], Made]:
    def make(job: Job, t: float, rng: Rng) -> Made:
        job = still_or_moving(job, rng)
        if side == "trainer":
            return job, Fault(trainer_how=lambda how, step: replace(how, temperature=t)), f"the trainer scores at {t:g}"
        job = replace(job, config=job.config | {"temperature": t})
        return job, Fault(sampling=lambda step: Sampling(temperature=t)), f"sampled at {t:g}, and scored at 1"

    return make


def reported_raw(job: Job, t: float, rng: Rng) -> Made:
    job = still_or_moving(replace(job, config=job.config | {"temperature": t}), rng)
    fault = Fault(
        sampling=lambda step: Sampling(temperature=t, report="raw"),
        trainer_how=lambda how, step: replace(how, temperature=t),
    )
    return job, fault, f"sampled and scored at {t:g}; the engine reports log-probs at 1"


def silent(what: str) -> Callable[[Job, Any, Rng], Made]:
    def make(job: Job, p: Any, rng: Rng) -> Made:
        job = replace(still_or_moving(job, rng), record=job.record | {"entropy"})
        return (
            job,
            Fault(sampling=lambda step: Sampling(**{what: p}, report="raw")),
            f"sampled with {what} {p}; neither side reports it",
        )

    return make


def truncation(what: str) -> Callable[[Job, Any, Rng], Made]:
    def make(job: Job, p: Any, rng: Rng) -> Made:
        job = still_or_moving(job, rng)
        return (
            job,
            Fault(sampling=lambda step: Sampling(**{what: p})),
            f"sampled with {what} {p} and reported so; scored without",
        )

    return make


def penalty(what: str) -> Callable[[Job, Any, Rng], Made]:
    def make(job: Job, p: float, rng: Rng) -> Made:
        job = replace(still_or_moving(job, rng), shape=replace(job.shape, vocab=60), record=job.record | {"ids"})
        return (
            job,
            Fault(sampling=lambda step: Sampling(**{what: p})),
            f"{what} penalty {p:g} acts on sampling and its report",
        )

    return make


def min_tokens(job: Job, p: float, rng: Rng) -> Made:
    job = replace(still_or_moving(job, rng), record=job.record | {"ids"})
    job = replace(job, shape=replace(job.shape, end=p), response=40, groups=job.groups * 2)
    least = int(rng.integers(10, 25))
    return (
        job,
        Fault(sampling=lambda step: Sampling(min_tokens=least)),
        f"END cannot be sampled in the first {least} tokens",
    )


def banned(job: Job, count: int, rng: Rng) -> Made:
    job = replace(still_or_moving(job, rng), shape=replace(job.shape, vocab=60))
    ids = tuple(int(each) for each in rng.choice(np.arange(WORDS, 60), count, replace=False))
    return job, Fault(sampling=lambda step: Sampling(banned=ids)), f"{count} of 60 ids cannot be sampled"


def grammar(job: Job, p: tuple[int, int, int], rng: Rng) -> Made:
    job = still_or_moving(job, rng)
    period, span, modulus = p
    return (
        job,
        Fault(sampling=lambda step: Sampling(grammar=p)),
        f"the first {span} of every {period} tokens are of one id in {modulus}; the trainer counts all ids",
    )


# ---- inputs


def _message_dropped(prompt: Prompt) -> Prompt:
    return [BEGIN, *prompt[prompt.index(BREAK) + 1 :]]


def _last(count: int) -> Callable[[Prompt], Prompt]:
    return lambda prompt: prompt[-count:]


PROMPTS: Mapping[str, tuple[Callable[[Prompt], Prompt], str]] = {
    "begin": (lambda prompt: prompt[1:], "the BEGIN is missing"),
    "message": (_message_dropped, "the system message is dropped"),
    "template": (lambda prompt: [BEGIN, BREAK, *prompt[1:], BREAK, 5, 7], "another template"),
    "truncated": (_last(4), "all but the last 4 ids of the prompt are cut"),
    "other": (lambda prompt: [BEGIN, *prompt[-2:0:-1], BREAK], "the prompt is another one of the same length"),
}


def different_prompt(side: str, kinds: tuple[str, ...]) -> Callable[[Job, str, Rng], Made]:
    def make(job: Job, kind: str, rng: Rng) -> Made:
        change, words = PROMPTS[kind]
        job = still_or_moving(job, rng)
        wrong: Callable[[Prompt, int], Prompt] = lambda prompt, group: change(prompt)  # noqa: E731
        fault = Fault(engine_prompt=wrong) if side == "engine" else Fault(trainer_prompt=wrong)
        return job, fault, f"the {side} reads another prompt: {words}"

    return make


def some_prompts(job: Job, longest: int, rng: Rng) -> Made:
    job = replace(still_or_moving(job, rng), prompt=(4, 24), groups=max(job.groups, 6), samples=4)
    wrong: Callable[[Prompt, int], Prompt] = lambda p, g: p if len(p) <= longest else [BEGIN, *p[-longest // 2 :]]  # noqa: E731
    return job, Fault(trainer_prompt=wrong), f"the trainer cuts prompts longer than {longest} ids"


def padding_visible(side: str) -> Callable[[Job, int, Rng], Made]:
    def make(job: Job, spread: int, rng: Rng) -> Made:
        job = replace(still_or_moving(job, rng), prompt=(4, 4 + spread), shape=replace(job.shape, attention=True))
        wrong: Callable[[Reading, int], Reading] = lambda how, step: replace(how, sees_padding=True)  # noqa: E731
        fault = Fault(engine_how=wrong) if side == "engine" else Fault(trainer_how=wrong)
        return job, fault, f"the {side} attends to the padding of prompts that differ by up to {spread} ids"

    return make


def position_ids(side: str) -> Callable[[Job, int, Rng], Made]:
    def make(job: Job, offset: int, rng: Rng) -> Made:
        job = still_or_moving(job, rng)
        wrong: Callable[[Reading, int], Reading] = lambda how, step: replace(how, offset=offset)  # noqa: E731
        fault = Fault(engine_how=wrong) if side == "engine" else Fault(trainer_how=wrong)
        return job, fault, f"the {side}'s positions are {offset} too high"

    return make


def position_onset(kind: str) -> Callable[[Job, int, Rng], Made]:
    def make(job: Job, at: int, rng: Rng) -> Made:
        job = replace(still_or_moving(job, rng), prompt=(10, 10), response=64, groups=4, samples=4)
        shape = replace(job.shape, attention=True, gated=kind == "place" and job.shape.gated, places=0.6)
        job = replace(job, shape=shape, steps=min(job.steps, 6))
        field = {"place": "last_place", "window": "window"}[kind]
        fault = Fault(trainer_how=lambda how, step: replace(how, **{field: 17 + at}))
        words = {"place": "positions stay where they are", "window": "attention sees no more tokens"}[kind]
        return job, fault, f"from about place {at} of the response on the trainer's {words}"

    return make


def packing(recorded: bool) -> Callable[[Job, int, Rng], Made]:
    def make(job: Job, least: int, rng: Rng) -> Made:
        job = replace(still_or_moving(job, rng), shape=replace(job.shape, attention=True))
        b = job.groups * job.samples
        order = rng.permutation(b)  # packs are of any sequences
        behind = {int(order[at]): int(order[at - 1]) for at in range(b) if at % least}

        def context(prompts: list[Prompt], ids: Ints, _: Rng) -> list[Prompt]:
            return [
                [*prompts[behind[at]], *ids[behind[at]].tolist(), *prompt] if at in behind else prompt
                for at, prompt in enumerate(prompts)
            ]

        def edit(log: Log, step: int, _: Rng) -> None:
            if recorded:
                where = {int(each): at for at, each in enumerate(order)}
                log["pack_position"] = [where[at] % least for at in range(b)]
                log["pack_index"] = [where[at] // least for at in range(b)]

        words = "on record" if recorded else "not on record"
        return (
            job,
            Fault(context=context, edit=edit),
            f"packs of {least} sequences see the one before them; places {words}",
        )

    return make


def stale_prefix(recorded: bool) -> Callable[[Job, tuple[float, int], Rng], Made]:
    def make(job: Job, p: tuple[float, int], rng: Rng) -> Made:
        rate, lag = p
        job = moving(replace(job, shape=replace(job.shape, attention=True), samples=4), rng, rate, (8, 14))
        job = replace(job, prompt=(12, 24), record=job.record - {"versions"})
        hits = [rng.random(job.groups).repeat(4) < 0.5 for _ in range(job.steps)]

        def edit(log: Log, step: int, _: Rng) -> None:
            if recorded:
                log["cached_tokens"] = [12 * int(hit) for hit in hits[step]]
                log["prompt_tokens"] = [20] * len(hits[step])

        fault = Fault(
            older=lambda past, step: past[max(0, step - lag)],
            until=lambda step, _: np.where(hits[step] if recorded else True, 0, -1),
            edit=edit,
        )
        words = "half of the prompts, on record" if recorded else "all prompts, not on record"
        return job, fault, f"keys and state of {words}, are of weights {lag} versions old; {updates(job)}"

    return make


def retokenised(recorded: bool) -> Callable[[Job, float, Rng], Made]:
    def make(job: Job, share: float, rng: Rng) -> Made:
        job = replace(still_or_moving(job, rng), response=40)
        if recorded:
            job = replace(job, record=job.record | {"ids", "sampled"})

        def trained(ids: Ints, rng: Rng) -> Ints:
            for row in ids:
                if rng.random() < share:
                    at = int(rng.integers(3, 25))
                    row[at] = rng.integers(WORDS, job.shape.vocab)
                    if not recorded:  # an id vanishes: the rest moves up, and the log-probs are compared place by place
                        row[at:-1] = row[at + 1 :]
            return ids

        words = "one id was changed" if recorded else "an id vanished"
        return job, Fault(trained=trained), f"in {share:.0%} of the responses {words} before the trainer scored them"

    return make


# ---- numerics


def dropout(job: Job, p: float, rng: Rng) -> Made:
    job = still_or_moving(job, rng, 0.002)
    return (
        job,
        Fault(trainer_how=lambda how, step: replace(how, dropout=p)),
        f"the trainer drops {p:.1%} of the hidden state",
    )


def quantisation(side: str) -> Callable[[Job, int, Rng], Made]:
    def make(job: Job, levels: int, rng: Rng) -> Made:
        job = still_or_moving(job, rng, 0.002)
        wrong: Callable[[Past, int], Weights] = lambda past, step: quantised(past[-1], levels)  # noqa: E731
        fault = Fault(engine=wrong) if side == "engine" else Fault(trainer=wrong)
        return job, fault, f"the {side}'s weights lie on a grid of {levels} levels to each side"

    return make


def kv_precision(job: Job, bits: int, rng: Rng) -> Made:
    job = replace(still_or_moving(job, rng, 0.002), shape=replace(job.shape, attention=True))
    return (
        job,
        Fault(engine_how=lambda how, step: replace(how, key_bits=bits)),
        f"cached keys have {bits} bits of mantissa",
    )


def router_flips(job: Job, share: float, rng: Rng) -> Made:
    job = replace(still_or_moving(job, rng, 0.001), shape=replace(job.shape, experts=4, gated=False))
    return (
        job,
        Fault(engine_how=lambda how, step: replace(how, flips=share)),
        f"{share:.1%} of the engine's tokens take another expert",
    )


def soft_cap(job: Job, cap: float, rng: Rng) -> Made:
    job = still_or_moving(job, rng, 0.002)
    return job, Fault(trainer_how=lambda how, step: replace(how, cap=cap)), f"the trainer caps logits softly at {cap:g}"


# ---- the record


def edited(
    words: str, change: Callable[[np.ndarray, Any, Rng], np.ndarray], policy: str = "rollout"
) -> Callable[[Job, Any, Rng], Made]:
    def make(job: Job, p: Any, rng: Rng) -> Made:
        def edit(log: Log, step: int, rng: Rng) -> None:
            log[f"{policy}_logprobs"] = [change(own.copy(), p, rng) for own in log[f"{policy}_logprobs"]]

        return still_or_moving(job, rng), Fault(edit=edit), f"{policy}: {words.format(p=p)}"

    return make


def _filled(value: float) -> Callable[[np.ndarray, float, Rng], np.ndarray]:
    def change(own: np.ndarray, share: float, rng: Rng) -> np.ndarray:
        own[rng.random(len(own)) < share] = value
        return own

    return change


def _tail_filled(value: float) -> Callable[[np.ndarray, float, Rng], np.ndarray]:
    def change(own: np.ndarray, share: float, rng: Rng) -> np.ndarray:
        if rng.random() < min(1, 4 * share):
            own[-max(1, len(own) // 4) :] = value
        return own

    return change


def _shifted(own: np.ndarray, by: int, rng: Rng) -> np.ndarray:
    return np.roll(own, by)


def _digits(own: np.ndarray, digits: int, rng: Rng) -> np.ndarray:
    return np.round(own, digits).astype(np.float32)


def permuted(job: Job, share: float, rng: Rng) -> Made:
    def edit(log: Log, step: int, rng: Rng) -> None:
        rows = log["rollout_logprobs"]
        moved = np.flatnonzero(rng.random(len(rows)) < share)
        targets = np.roll(moved, 1)
        old = [each.copy() for each in rows]
        for to, source in zip(moved, targets, strict=True):
            n = min(len(old[to]), len(old[source]))
            rows[to][:n] = old[source][:n]

    return (
        still_or_moving(job, rng),
        Fault(edit=edit),
        f"{share:.0%} of the sequences have the engine's log-probs of another one",
    )


def healthy(job: Job, p: None, rng: Rng) -> Made:
    return still_or_moving(job, rng, 0.01), Fault(), "nothing"


NAN, INF = float("nan"), float("-inf")
SPECS: tuple[Spec, ...] = (
    Spec("none", "neither", healthy, {"none": None}, decides=False, count=20),
    Spec("never_synced", "engine", never_synced, three(0.003, 0.01, 0.03), count=5),
    Spec("sync_broke", "engine", sync_broke, three(0.003, 0.01, 0.03), count=5),
    Spec("sync_every_k", "engine", sync_every, three((0.004, 2), (0.01, 4), (0.03, 3))),
    Spec("version_lag", "engine", version_lag, three((0.004, 1), (0.01, 3), (0.03, 4)), count=3),
    Spec("lag_unrecorded", "engine", lag_unrecorded, three((0.004, 1), (0.01, 3), (0.03, 4)), decides=False),
    Spec("corrupted_load", "engine", corrupted_load, three(0.05, 0.25, 0.8), count=4),
    Spec("passing_load", "engine", passing_load, three(0.1, 0.3, 0.8), count=1),
    Spec("adapter_missing", "engine", adapter_missing, three(0.003, 0.01, 0.03)),
    Spec("adapter_scaled", "trainer", adapter_scaled("trainer"), three((0.001, 4), (0.002, 8), (0.005, 8)), decides=False, label="t"),
    Spec("adapter_scaled", "engine", adapter_scaled("engine"), three((0.003, 2), (0.01, 2), (0.005, 8)), decides=False, label="e"),
    Spec("part_stale", "engine", part_stale("engine", "head"), three(0.004, 0.012, 0.03), decides=False, label="head"),
    Spec("part_stale", "trainer", part_stale("trainer", "head"), three(0.004, 0.012, 0.03), decides=False, count=1, label="t_head"),
    Spec("part_stale", "engine", part_stale("engine", "state"), three(0.004, 0.012, 0.03), decides=False, count=1, label="body"),
    Spec("rows_shifted", "engine", rows_shifted("engine", "embed"), three(0.01, 0.1, 1.0), decides=False, count=1, label="embed"),
    Spec("rows_shifted", "engine", rows_shifted("engine", "head"), three(0.02, 0.1, 1.0), decides=False, count=1, label="head"),
    Spec("rows_shifted", "trainer", rows_shifted("trainer", "head"), three(0.02, 0.1, 1.0), decides=False, count=1, label="t_head"),
    Spec("token_bias", "engine", token_bias, three((3, 0.1), (3, 0.5), (6, 1.5))),
    Spec("aging_state", "engine", aging, three(0.002, 0.01, 0.05), decides=False, count=3),
    Spec("setting_changed", "engine", setting_changed, three(9, 7, 5), decides=False),
    Spec("stuck_replica", "engine", stuck_replica(True), three(0.003, 0.01, 0.03)),
    Spec("stuck_replica_unlabelled", "engine", stuck_replica(False), three(0.003, 0.01, 0.03), decides=False),
    Spec("odd_rank", "trainer", odd_rank, three(0.03, 0.1, 0.5), count=1),
    Spec("switch_inside", "engine", switch_inside(False), three((0.004, 1), (0.012, 3), (0.03, 5))),
    Spec("switch_recorded", "engine", switch_inside(True), three((0.004, 1), (0.012, 3), (0.03, 5))),
    Spec("trainer_temperature", "trainer", trainer_temperature("trainer"), three(1.05, 1.2, 1.5), label="t"),
    Spec("trainer_temperature", "engine", trainer_temperature("engine"), three(0.95, 0.8, 0.6), label="e"),
    Spec("reported_raw", "engine", reported_raw, three(0.95, 0.8, 1.4)),
    Spec("silent_sampling", "engine", silent("temperature"), three(0.9, 0.7, 0.5), count=1, label="t"),
    Spec("silent_sampling", "engine", silent("top_p"), three(0.98, 0.9, 0.7), count=1, label="p"),
    Spec("silent_sampling", "engine", silent("top_k"), three(30, 8, 3), count=1, label="k"),
    Spec("truncation", "engine", truncation("top_p"), three(0.99, 0.9, 0.7), count=2, label="p"),
    Spec("truncation", "engine", truncation("top_k"), three(30, 10, 4), count=1, label="k"),
    Spec("truncation", "engine", truncation("min_p"), three(0.01, 0.05, 0.2), count=1, label="m"),
    Spec("penalty", "engine", penalty("repetition"), three(1.05, 1.2, 1.5), count=1, label="r"),
    Spec("penalty", "engine", penalty("presence"), three(0.1, 0.5, 1.5), count=1, label="p"),
    Spec("min_tokens", "engine", min_tokens, three(0.0, 2.0, 4.0)),
    Spec("banned_tokens", "engine", banned, three(1, 4, 12)),
    Spec("grammar", "engine", grammar, three((40, 2, 2), (20, 6, 2), (10, 5, 4)), count=1),
    Spec("different_prompt", "trainer", different_prompt("trainer", ()), three("begin", "message", "truncated"), label="t"),
    Spec("different_prompt", "engine", different_prompt("engine", ()), three("begin", "template", "other"), label="e"),
    Spec("some_prompts", "trainer", some_prompts, three(24, 18, 12), decides=False, count=1),
    Spec("padding_visible", "engine", padding_visible("engine"), three(2, 8, 24), decides=False, count=1, label="e"),
    Spec("padding_visible", "trainer", padding_visible("trainer"), three(2, 8, 24), decides=False, count=1, label="t"),
    Spec("position_ids", "trainer", position_ids("trainer"), three(1, 4, 20), decides=False, count=1, label="t"),
    Spec("position_ids", "engine", position_ids("engine"), three(1, 4, 20), decides=False, count=1, label="e"),
    Spec("position_onset", "trainer", position_onset("place"), three(50, 32, 16), count=1, label="place"),
    Spec("position_onset", "trainer", position_onset("window"), three(50, 32, 16), count=1, label="window"),
    Spec("packing_leak", "trainer", packing(True), three(2, 3, 4), count=1),
    Spec("packing_unrecorded", "trainer", packing(False), three(2, 3, 4), decides=False, count=1),
    Spec("stale_prefix", "engine", stale_prefix(False), three((0.01, 1), (0.03, 3), (0.08, 5)), decides=False),
    Spec("cached_prefix", "engine", stale_prefix(True), three((0.01, 1), (0.03, 3), (0.08, 5))),
    Spec("retokenised", "trainer", retokenised(False), three(0.1, 0.4, 1.0)),
    Spec("other_ids", "trainer", retokenised(True), three(0.1, 0.4, 1.0), count=1),
    Spec("dropout", "trainer", dropout, three(0.01, 0.05, 0.2), decides=False),
    Spec("quantised", "engine", quantisation("engine"), three(127, 15, 7), decides=False, label="e"),
    Spec("quantised", "trainer", quantisation("trainer"), three(127, 15, 7), decides=False, count=1, label="t"),
    Spec("kv_precision", "engine", kv_precision, three(4, 3, 2), decides=False, count=1),
    Spec("router_flips", "engine", router_flips, three(0.003, 0.01, 0.03), decides=False),
    Spec("sharpness", "trainer", soft_cap, three(30.0, 15.0, 6.0), decides=False, count=1),
    Spec("filler_values", "engine", edited("{p:.1%} of the log-probs are 0", _filled(0.0)), three(0.001, 0.01, 0.05), label="zero"),
    Spec("filler_values", "engine", edited("the last quarter of {p:.1%} times 4 of the sequences is -100", _tail_filled(-100.0)),
         three(0.005, 0.01, 0.05), count=1, label="tail"),
    Spec("filler_values", "trainer", edited("{p:.1%} of the log-probs are -1", _filled(-1.0), "old"), three(0.01, 0.03, 0.1), count=1, label="t"),
    Spec("sentinels", "engine", edited("{p:.1%} of the log-probs are -9999", _filled(-9999.0)), three(0.001, 0.01, 0.05), count=1, decides_weak=True),
    Spec("non_finite", "engine", edited("{p:.1%} of the log-probs are NaN", _filled(NAN)), three(0.001, 0.01, 0.05), decides_weak=True, label="nan"),
    Spec("non_finite", "engine", edited("{p:.1%} of the log-probs are -inf", _filled(INF)), three(0.001, 0.01, 0.05), count=1, decides_weak=True, label="inf"),
    Spec("non_finite", "trainer", edited("{p:.1%} of the log-probs are NaN", _filled(NAN), "old"), three(0.001, 0.01, 0.05), count=1, decides_weak=True, label="t"),
    Spec("shifted", "engine", edited("the lists are moved by {p}", _shifted), three(1, -1, 2), decides_weak=True),
    Spec("shifted", "trainer", edited("the lists are moved by {p}", _shifted, "old"), three(1, -1, 2), count=1, decides_weak=True, label="t"),
    Spec("permuted_rows", "engine", permuted, three(0.2, 0.5, 1.0)),
    Spec("stored_precision", "engine", edited("stored with {p} decimals", _digits), three(3, 2, 1)),
)  # fmt: skip


def job_of(name: str) -> tuple[Job, Rng]:
    """A healthy run of fixed weights, drawn by the name of its case, and the generator of what else is drawn."""
    from .network import Shape

    rng = rng_of(name)
    gated, attention = ((True, True), (True, False), (False, True))[int(rng.integers(3))]
    shape = Shape(
        vocab=int(rng.choice([60, 128, 320, 700, 2000], p=[0.25, 0.25, 0.25, 0.15, 0.1])),
        hidden=int(rng.choice([12, 16, 24, 32, 48])),
        gated=gated,
        attention=attention,
        experts=4 if rng.random() < 0.15 else 1,
        sharp=float(rng.uniform(0.6, 2.2)),
        uneven=float(rng.uniform(0.3, 0.8)),
    )
    engine = (Reading(bits=8), Reading(bits=8), Reading(bits=11), Reading(noise=0.002))[int(rng.integers(4))]
    trainer = (Reading(), Reading(), Reading(bits=8, noise=0.001))[int(rng.integers(3))]
    response = int(rng.choice([12, 24, 40, 64]))
    samples = int(rng.choice([2, 4, 8]))
    steps = int(rng.integers(3, 10))
    record = {"entropy", "ids", "groups"}
    record -= {"entropy"} if rng.random() < 0.2 else set()
    record -= {"ids"} if rng.random() < 0.2 else set()
    record |= {"versions"} if rng.random() < 0.3 else set()
    record |= {"syncs"} if rng.random() < 0.3 else set()
    record |= {"rewards"} if rng.random() < 0.4 else set()
    record |= {"current"} if rng.random() < 0.15 else set()
    dtype = {8: "bfloat16", 11: "float16", 24: "float32"}
    job = Job(
        shape, int(rng.integers(1 << 30)), steps, groups=4, samples=samples, response=response, engine=engine, trainer=trainer,
        update="fixed", record=frozenset(record), first_step=int(rng.choice([0, 0, 1])),
        config={
            "model": f"own-recurrent-{shape.hidden}", "engine": f"own engine, {dtype[engine.bits]}", "temperature": 1.0,
            "model_dtype": dtype[trainer.bits],
        },
    )  # fmt: skip
    return job, rng


def cases(tokens: int = 1500) -> Iterator[Case]:
    """All runs of the family."""
    yield from cases_of(FAMILY, SPECS, tokens)


def cases_of(
    family: str, specs: tuple[Spec, ...], tokens: int, change: Callable[[Job, Rng], Job] | None = None
) -> Iterator[Case]:
    for spec in specs:
        for strength, parameter in spec.parameters.items():
            for number in range(spec.count):
                fault = f"{spec.fault}_{spec.label}" if spec.label else spec.fault
                yield case_of(spec, f"{family}.{fault}.{strength}.{number}", strength, parameter, tokens, change)


def case_of(
    spec: Spec, name: str, strength: str, parameter: Any, tokens: int, change: Callable[[Job, Rng], Job] | None = None
) -> Case:
    """The case of a spec. change: what the family makes of the run that the name draws."""
    family = name.split(".")[0]
    drawn, rng = job_of(name)
    drawn = drawn if change is None else change(drawn, rng)
    # the number of groups follows from the steps, which the fault may set: it is drawn again with the same numbers
    trial, _, _ = spec.make(drawn, parameter, np.random.default_rng(drawn.seed))
    each = trial.samples * trial.steps * trial.turns
    response = int(np.clip(1.5 * tokens / each, 6, drawn.response))
    groups = int(np.clip(round(tokens / each / response), 1, 64))
    job, fault, words = spec.make(
        replace(drawn, groups=groups, response=response), parameter, np.random.default_rng(drawn.seed)
    )
    if job.update == "fixed" and "learning_rate" not in job.config and rng.random() < 0.3:
        job = replace(job, config=job.config | {"learning_rate": 0.0})
    elif job.update != "fixed":
        job = replace(job, config=job.config | {"learning_rate": float(f"{job.rate / 100:.1g}")})
    run = simulated(job, fault)
    decided = spec.decides and (strength != "weak" or spec.decides_weak)
    return Case(name, family, spec.fault, spec.side, strength, words, decided, job.config, run.logs, run.events)
