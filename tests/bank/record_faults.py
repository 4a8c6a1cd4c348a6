"""Faults of numerics and of the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .network import Floats, Weights, quantised
from .simulation import Fault, Job, Past
from .spec import Log, Made, Rng, still_or_moving


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


Make = Callable[[Job, Any, Rng], Made]
TRIES = 10_000
"""Draws after which a run that chance leaves without its fault stays without it."""


def _edited(words: str, change: Callable[[Floats, Any, Rng], Floats], policy: str) -> Make:
    """The log-probs of one side, changed list by list; if chance has changed none of the run, one of its last step."""

    def make(job: Job, p: Any, rng: Rng) -> Made:
        job, name = still_or_moving(job, rng), f"{policy}_logprobs"
        hits: list[bool] = []

        def edit(log: Log, step: int, rng: Rng) -> None:
            before = log[name]
            log[name] = [change(own.copy(), p, rng) for own in before]
            hits.append(_is_hit(log, name, before))
            while step == job.steps - 1 and not any(hits) and len(hits) < TRIES:
                log[name] = [change(before[0].copy(), p, rng), *before[1:]]
                hits.append(_is_hit(log, name, before))

        return job, Fault(edit=edit), f"{policy}: {words.format(p=p)}"

    return make


def _is_hit(log: Log, name: str, before: list[Floats]) -> bool:
    """True if a sampled token has another log-prob than before."""
    masks = log.get("mask") or [True] * len(before)
    return any(((new != old) & mask).any() for new, old, mask in zip(log[name], before, masks, strict=True))


def filled(value: float, policy: str = "rollout") -> Make:
    def change(own: Floats, share: float, rng: Rng) -> Floats:
        own[rng.random(len(own)) < share] = value
        return own

    return _edited(f"{{p:.1%}} of the log-probs are {value:g}", change, policy)


def tail_filled(value: float, policy: str = "rollout") -> Make:
    def change(own: Floats, share: float, rng: Rng) -> Floats:
        if rng.random() < share:
            own[-max(1, len(own) // 4) :] = value
        return own

    return _edited(f"the last quarter of {{p:.0%}} of the sequences is {value:g}", change, policy)


def shifted(policy: str = "rollout") -> Make:
    return _edited("the lists are moved by {p}", lambda own, by, _: np.roll(own, by), policy)


def stored(policy: str = "rollout") -> Make:
    return _edited("stored with {p} decimals", lambda own, digits, _: np.round(own, digits).astype(np.float32), policy)


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
