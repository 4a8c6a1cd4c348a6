"""The family `odd`: healthy runs of unusual but legitimate shapes, on which any named cause is a false alarm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from .accepted import HEALTHY
from .case import Case
from .network import Floats, Ints, Reading, Sampling, Weights, quantised
from .simulation import Fault, Job, Past, simulated
from .spec import Log, Rng, job_of, moving

FAMILY = "odd"
COUNT = 9
"""Runs of each shape."""
Made = tuple[Job, Fault]
Both = Callable[[Past, int], Weights]


def _both(weights: Both) -> Fault:
    """The same weights on either side."""
    return Fault(by_step=True, engine=weights, trainer=weights)


def _edited(change: Callable[[Log, int, Rng], None]) -> Fault:
    return Fault(edit=change)


def _few_tokens(job: Job, rng: Rng) -> Made:
    return replace(job, response=int(rng.integers(1, 4)), groups=12), Fault()


def _one_prompt(job: Job, rng: Rng) -> Made:
    return replace(job, groups=1, samples=8, steps=int(rng.integers(1, 5)), response=12), Fault()


def _greedy(job: Job, rng: Rng) -> Made:
    job = replace(job, record=job.record - {"entropy"}, config=job.config | {"temperature": 0.0})
    return job, Fault(sampling=lambda step: Sampling(greedy=True, report="raw"))


def _low_temperature(job: Job, rng: Rng) -> Made:
    t = float(rng.choice([0.02, 0.05, 0.1, 0.2, 0.3]))
    job = replace(job, config=job.config | {"temperature": t}, engine=Reading(bits=8))
    fault = Fault(
        sampling=lambda step: Sampling(temperature=t), trainer_how=lambda how, step: replace(how, temperature=t)
    )
    return job, fault


def _high_temperature(job: Job, rng: Rng) -> Made:
    t = float(rng.choice([1.2, 1.5, 2.0]))
    job = replace(job, config=job.config | {"temperature": t})
    fault = Fault(
        sampling=lambda step: Sampling(temperature=t), trainer_how=lambda how, step: replace(how, temperature=t)
    )
    return job, fault


def _sharpened(rate: float) -> Both:
    def weights(past: Past, step: int) -> Weights:
        return past[-1] | {"head": (past[-1]["head"] * np.exp(rate * step)).astype(np.float32)}

    return weights


def _collapse_of_head(job: Job, rng: Rng) -> Made:
    return replace(job, steps=12, engine=Reading(bits=8)), _both(_sharpened(float(rng.uniform(0.05, 0.2))))


def _opening_of_head(job: Job, rng: Rng) -> Made:
    return replace(job, steps=12), _both(_sharpened(-float(rng.uniform(0.05, 0.15))))


def _collapse_by_learning(job: Job, rng: Rng) -> Made:
    return replace(job, steps=20, update="learn", rate=float(rng.uniform(0.01, 0.05)), groups=2), Fault()


def _learning(job: Job, rng: Rng) -> Made:
    return moving(job, rng, 0.01), Fault()


def _filtered(job: Job, rng: Rng) -> Made:
    def best(rewards: Floats) -> Ints:
        return np.argsort(-rewards)[: max(2, len(rewards) // 3)]

    return replace(job, keep=best, groups=6, record=job.record | {"rewards"}), Fault()


def _masked(job: Job, rng: Rng) -> Made:
    kept = int(rng.integers(1, 4))

    def edit(log: Log, step: int, rng: Rng) -> None:
        masks = []
        for own in log["rollout_logprobs"]:
            mask = np.zeros(len(own), bool)
            mask[rng.permutation(len(own))[:kept]] = True
            masks.append(mask)
        log["mask"] = masks

    return replace(job, groups=6), _edited(edit)


def _last_masked(job: Job, rng: Rng) -> Made:
    def edit(log: Log, step: int, rng: Rng) -> None:
        log["mask"] = [np.arange(len(own)) >= len(own) - 2 for own in log["rollout_logprobs"]]

    return replace(job, groups=6), _edited(edit)


def _near_uniform(job: Job, rng: Rng) -> Made:
    return replace(job, shape=replace(job.shape, sharp=float(rng.uniform(-3, -1)), uneven=0.1)), Fault()


def _very_sharp(job: Job, rng: Rng) -> Made:
    return replace(job, shape=replace(job.shape, sharp=float(rng.uniform(2.6, 3.4))), engine=Reading(bits=8)), Fault()


def _coarse_logits(job: Job, rng: Rng) -> Made:
    return replace(job, engine=Reading(bits=8), trainer=Reading(bits=8, noise=0.002)), Fault()


def _experts(job: Job, rng: Rng) -> Made:
    shape = replace(job.shape, experts=8, gated=False)
    return replace(job, shape=shape, engine=Reading(bits=8), trainer=Reading(bits=8, noise=0.0005)), Fault()


def _many_steps(job: Job, rng: Rng) -> Made:
    job = moving(job, rng, 0.001, (200, 501))
    return replace(job, groups=1, samples=2, response=2, prompt=(2, 4)), Fault()


def _many_steps_still(job: Job, rng: Rng) -> Made:
    return replace(job, steps=int(rng.integers(80, 200)), groups=1, samples=2, response=3, prompt=(2, 4)), Fault()


def _growing(job: Job, rng: Rng) -> Made:
    return replace(moving(job, rng, 0.003, (8, 12)), response=4, response_growth=2.0), Fault()


def _shrinking(job: Job, rng: Rng) -> Made:
    return replace(moving(job, rng, 0.003, (8, 10)), response=24, response_growth=-2.0), Fault()


def _curriculum(job: Job, rng: Rng) -> Made:
    hard = float(rng.choice([-0.8, 0.8]))
    at = int(rng.integers(3, 7))

    def weights(past: Past, step: int) -> Weights:
        factor = np.exp(hard) if step >= at else 1.0
        return past[-1] | {"head": (past[-1]["head"] * factor).astype(np.float32)}

    return replace(job, steps=10), _both(weights)


def _adapter(job: Job, rng: Rng) -> Made:
    config = job.config | {"lora_rank": 16, "target_modules": "all-linear"}
    return replace(moving(job, rng, 0.01, (6, 12)), config=config, record=job.record | {"versions", "syncs"}), Fault()


def _asynchronous(job: Job, rng: Rng) -> Made:
    config = job.config | {"fully_async": {"max_staleness_steps": 4}}
    return replace(moving(job, rng, 0.005, (6, 12)), config=config, record=job.record | {"versions"}), Fault()


def _aligned(job: Job, rng: Rng) -> Made:
    return replace(job, engine=job.trainer, trainer=job.trainer), Fault()


def _tiny(job: Job, rng: Rng) -> Made:
    return replace(job, groups=1, samples=2, response=int(rng.integers(2, 8)), steps=int(rng.integers(1, 4))), Fault()


def _long(job: Job, rng: Rng) -> Made:
    shape = replace(job.shape, vocab=128, hidden=16, end=-9.0)
    return replace(job, groups=1, samples=1, response=4096, steps=1, shape=shape), Fault()


def _conversation(job: Job, rng: Rng) -> Made:
    record = job.record | ({"turns"} if rng.random() < 0.6 else set())
    shape = replace(job.shape, end=-9.0)
    return replace(job, turns=int(rng.integers(2, 5)), response=6, samples=2, record=record, shape=shape), Fault()


def _ends_early(job: Job, rng: Rng) -> Made:
    return replace(job, shape=replace(job.shape, end=float(rng.uniform(2, 6))), groups=12, response=40), Fault()


def _bare(job: Job, rng: Rng) -> Made:
    return replace(job, record=frozenset()), Fault()


def _everything(job: Job, rng: Rng) -> Made:
    def edit(log: Log, step: int, rng: Rng) -> None:
        rows = len(log["rollout_logprobs"])
        log |= {
            "replica": [f"engine-{at % 4}" for at in range(rows)],
            "cached_tokens": [int(each) for each in rng.integers(0, 8, rows)],
            "prompt_tokens": [12] * rows,
            "pack_index": [at // 3 for at in range(rows)],
            "pack_position": [at % 3 for at in range(rows)],
        }

    return replace(job, record=job.record | {"versions", "syncs", "rewards"}), _edited(edit)


def _ranks(job: Job, rng: Rng) -> Made:
    def edit(log: Log, step: int, rng: Rng) -> None:
        log["rank"], log["step"] = step % 4, step // 4

    return replace(job, steps=12, groups=2, record=job.record - {"versions", "syncs"}), _edited(edit)


def _drifting(job: Job, rng: Rng) -> Made:
    def edit(log: Log, step: int, rng: Rng) -> None:
        log["minibatch"] = 0
        log["current_logprobs"] = [
            (own + 0.02 * rng.standard_normal(len(own)) * np.minimum(1, -own)).astype(np.float32)
            for own in log["old_logprobs"]
        ]

    return moving(job, rng, 0.005, (4, 8)), _edited(edit)


def _same_quantisation(job: Job, rng: Rng) -> Made:
    levels = int(rng.choice([7, 31, 127]))
    return job, _both(lambda past, step: quantised(past[-1], levels))


def _repeated(job: Job, rng: Rng) -> Made:
    def edit(log: Log, step: int, rng: Rng) -> None:
        for name, value in log.items():
            if isinstance(value, list) and name != "group_ids":
                log[name] = [value[at - at % 2] for at in range(len(value))]

    return job, _edited(edit)


def _far_steps(job: Job, rng: Rng) -> Made:
    def edit(log: Log, step: int, rng: Rng) -> None:
        log["step"] = 50 * step + int(rng.integers(0, 20))

    return replace(moving(job, rng, 0.003, (4, 9)), record=job.record - {"versions", "syncs"}), _edited(edit)


def _no_learning_rate(job: Job, rng: Rng) -> Made:
    def edit(log: Log, step: int, rng: Rng) -> None:
        log["trainer_version"] = 0

    job = replace(job, config=job.config | {"learning_rate": 0.0}, record=job.record | {"versions"})
    return job, Fault(versions=lambda step, rows: [0] * rows, edit=edit)


def _half_precision(job: Job, rng: Rng) -> Made:
    return replace(job, engine=Reading(bits=11), trainer=Reading(bits=8)), Fault()


SHAPES: Mapping[str, Callable[[Job, Rng], Made]] = {
    name.strip("_"): cast("Callable[[Job, Rng], Made]", make)
    for name, make in list(globals().items())
    if name.startswith("_")
    and callable(make)
    and name not in ("_both", "_edited", "_sharpened")
    and not name.startswith("__")
}
"""Name of a shape -> what it makes of a run."""
FEWER = {"long": 2, "many_steps": 6, "collapse_by_learning": 8}


def cases(tokens: int = 1500) -> Iterator[Callable[[], Case]]:
    """Makers of all runs of the family, at about a third of the tokens of other families."""
    for shape, make in SHAPES.items():
        for number in range(FEWER.get(shape, COUNT)):
            yield partial(case_of, f"{FAMILY}.{HEALTHY}.{shape}.{number}", make, tokens // 3)


def case_of(name: str, make: Callable[[Job, Rng], Made], tokens: int) -> Case:
    shape = name.split(".")[2]
    drawn, rng = job_of(name)
    drawn = replace(drawn, groups=2, samples=min(drawn.samples, 4), response=min(drawn.response, 24))
    job, fault = make(drawn, np.random.default_rng(drawn.seed))
    run = simulated(job, fault)
    options: dict[str, Any] = {"computed_apart": True} if shape == "aligned" else {}
    return Case(
        name,
        FAMILY,
        HEALTHY,
        "neither",
        "none",
        f"nothing; {shape.replace('_', ' ')}",
        False,
        job.config,
        run.logs,
        run.events,
        options,
    )
