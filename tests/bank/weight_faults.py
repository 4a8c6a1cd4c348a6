"""Faults of weights over time, on either side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .network import WORDS, Sampling, Weights
from .simulation import Fault, Job, Past
from .spec import Log, Made, Rng, moving, still_or_moving, updates


def stale(job: Job, rng: Rng) -> Job:
    """Syncs and versions are mostly not on record; where versions are, they are the trainer's own, logged as fresh."""
    return replace(job, record=job.record - {"versions"} if rng.random() < 0.75 else job.record)


def never_synced(job: Job, rate: float, rng: Rng) -> Made:
    job = stale(moving(job, rng, rate), rng)
    job = replace(job, record=job.record - {"syncs"})
    return job, Fault(engine=lambda past, step: past[0]), f"the engine keeps its first weights; {updates(job)}"


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
    job = replace(job, record=job.record | {"versions"}, first_step=0)  # so that a step is the number of its version
    lags = [rng.integers(0, most + 1, job.groups * job.samples) for _ in range(job.steps)]
    lags = [np.minimum(lag, step) for step, lag in enumerate(lags)]
    fault = Fault(
        engine=lambda past, step: [past[step - lag] for lag in lags[step]],
        versions=lambda step, rows: [step - int(lag) for lag in lags[step]],
    )
    return job, fault, f"sequences of weights 0 to {most} versions old, on record; {updates(job)}"


def lag_unrecorded(job: Job, p: tuple[float, int], rng: Rng) -> Made:
    rate, lag = p
    job = moving(job, rng, rate, (10, 20))
    job = replace(job, record=job.record - {"versions", "syncs"})
    fault = Fault(engine=lambda past, step: past[max(0, step - lag)])
    return job, fault, f"every token is of weights {lag} versions old, and no version is on record; {updates(job)}"


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
    fault = Fault(by_step=True, engine=lambda past, step: broken(past[-1], how, size, 7) if step >= at else past[-1])
    return job, fault, f"from step {at} on the engine's weights are {how}, share {size:.2g}; {updates(job)}"


def passing_load(job: Job, p: float, rng: Rng) -> Made:
    job = still_or_moving(replace(job, steps=14), rng, 0.001)
    bad = {5, 6, 10}
    fault = Fault(
        by_step=True, engine=lambda past, step: broken(past[-1], "head", 0.5 * p, 7) if step in bad else past[-1]
    )
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
    ids = tuple(int(each) for each in rng.choice(np.arange(WORDS, 60), count, replace=False))
    job = replace(job, record=job.record | {"ids"}, shape=replace(job.shape, vocab=60))
    fault = Fault(sampling=lambda step: Sampling(favoured=ids, bias=size))
    return job, fault, f"the engine's logits of {count} of 60 ids are higher by {size:g}"


def aging(job: Job, p: float, rng: Rng) -> Made:
    job = replace(job, steps=int(rng.integers(8, 16)), update="fixed", record=job.record | {"versions"}, first_step=500)
    job = replace(job, config=job.config | {"learning_rate": 0.0})

    def engine(past: Past, step: int) -> Weights:
        own = past[0]
        return own | {"up": own["up"] * (1 + p * step), "down": own["down"] * (1 + p * step)}

    fault = Fault(
        by_step=True,
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
    fault = Fault(by_step=True, engine_how=lambda how, step: replace(how, bits=bits) if step >= at else how)
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
        by_step=True,
        trainer=lambda past, step: broken(past[-1], "head", size, 3) if step % 4 == 1 else past[-1],
        edit=edit,
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
