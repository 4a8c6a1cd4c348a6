"""Faults of what a side reads: prompts, padding, positions, packs, caches, ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .network import BEGIN, BREAK, WORDS, Ints, Reading
from .simulation import Fault, Job, Prompt
from .spec import Log, Made, Rng, moving, still_or_moving, updates


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


def different_prompt(side: str) -> Callable[[Job, str, Rng], Made]:
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
        job = replace(still_or_moving(job, rng), prompt=(10, 10), response=64, groups=2, samples=4)
        shape = replace(job.shape, attention=True, gated=kind == "place" and job.shape.gated, places=0.6)
        job = replace(job, shape=shape, steps=min(job.steps, 4))
        field = {"place": "last_place", "window": "window"}[kind]
        changed: dict[str, Any] = {field: 17 + at}
        fault = Fault(trainer_how=lambda how, step: replace(how, **changed))
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
            Fault(by_step=True, context=context, edit=edit),
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
            until=lambda step, _: np.where(hits[step] | (not recorded), 0, -1),
            edit=edit,
        )
        words = "half of the prompts, on record" if recorded else "all prompts, not on record"
        return job, fault, f"keys and state of {words}, are of weights {lag} versions old; {updates(job)}"

    return make


def retokenised(kind: str) -> Callable[[Job, float, Rng], Made]:
    """kind: other, an id is another one; recorded, the same with both ids on record; vanished, one is missing."""

    def make(job: Job, share: float, rng: Rng) -> Made:
        job = replace(still_or_moving(job, rng), response=40)
        if kind == "recorded":
            job = replace(job, record=job.record | {"ids", "sampled"})

        def trained(ids: Ints, rng: Rng) -> Ints:
            for row in ids:
                if rng.random() < share:
                    at = int(rng.integers(3, 25))
                    row[at] = rng.integers(WORDS, job.shape.vocab)
                    if kind == "vanished":  # the rest moves up, and the log-probs are compared place by place
                        row[at:-1] = row[at + 1 :]
            return ids

        words = {"other": "is another one", "recorded": "is another one, on record,", "vanished": "vanished"}[kind]
        return (
            job,
            Fault(trained=trained),
            f"in {share:.0%} of the responses an id {words} before the trainer scored them",
        )

    return make
