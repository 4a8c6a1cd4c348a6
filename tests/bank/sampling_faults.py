"""Faults of sampling and of what the engine reports of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .network import WORDS, Sampling
from .simulation import Fault, Job
from .spec import Made, Rng, still_or_moving


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
    def make(job: Job, p: Any, rng: Rng) -> Made:
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
