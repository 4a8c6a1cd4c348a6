"""A labelled run of the small network: a fault, its strengths, and the healthy run that its name draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .case import Case
from .network import Reading, Shape
from .simulation import Fault, Job, Run, rng_of, simulated

STALE = ("never_synced", "sync_broke", "sync_every_k", "adapter_missing", "stuck_replica")
"""Faults of weights that are old; their versions, where they are on record, are told as fresh."""
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


def moving(job: Job, rng: Rng, rate: float, steps: tuple[int, int] | None = (8, 20)) -> Job:
    """The run with updates: learning or a random walk. steps: from and to; None leaves them."""
    learns = bool(rng.random() < 0.5)
    count = job.steps if steps is None else int(rng.integers(*steps))
    return replace(job, update="learn" if learns else "wander", rate=rate * (0.25 if learns else 1.0), steps=count)


def updates(job: Job) -> str:
    kind = {"learn": "policy-gradient updates", "wander": "random updates", "fixed": "no updates"}[job.update]
    return f"{job.steps} steps, {kind} of relative size {job.rate:.3g}"


def still_or_moving(job: Job, rng: Rng, rate: float = 0.003) -> Job:
    """The run with or without updates, synced honestly."""
    return job if rng.random() < 0.4 else moving(job, rng, rate, None)


def job_of(name: str) -> tuple[Job, Rng]:
    """A healthy run of fixed weights, drawn by the name of its case, and the generator of what else is drawn."""

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
    response = int(rng.choice([8, 12, 24, 48], p=[0.25, 0.3, 0.3, 0.15]))
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


def cases_of(
    family: str, specs: tuple[Spec, ...], tokens: int, change: Callable[[Job, Rng], Job] | None = None
) -> Iterator[Callable[[], Case]]:
    """Makers of all cases of these specs."""
    for spec in specs:
        for strength, parameter in spec.parameters.items():
            for number in range(spec.count):
                fault = f"{spec.fault}_{spec.label}" if spec.label else spec.fault
                yield partial(
                    case_of, spec, f"{family}.{fault}.{strength}.{number}", strength, parameter, tokens, change
                )


def fades(run: Run) -> bool:
    """True if the first four tokens of the responses differ at least twice as much as those of their second halves."""
    first, later = [], []
    for log in run.logs:
        for old, rollout in zip(log["old_logprobs"], log["rollout_logprobs"], strict=True):
            gap = np.abs(old - rollout)
            first += gap[:4].tolist()
            later += gap[max(4, len(gap) // 2) :].tolist()
    return bool(later) and float(np.mean(first)) >= 2 * float(np.mean(later))


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
    contradicts = spec.fault in STALE and "versions" in job.record  # by the record the weights are fresh
    unmarked = spec.fault == "different_prompt" and not fades(run)
    decided = spec.decides and not contradicts and not unmarked and (strength != "weak" or spec.decides_weak)
    return Case(name, family, spec.fault, spec.side, strength, words, decided, job.config, run.logs, run.events)
