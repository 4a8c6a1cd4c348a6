"""The family `agentic`: conversations of the small network in several turns, with texts of tools that are outside the mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from . import recurrent
from .case import Case
from .network import WORDS, Ints
from .simulation import Fault, Job
from .spec import Log, Made, Rng, Spec, cases_of, moving, still_or_moving, three, updates

FAMILY = "agentic"


def conversations(job: Job, rng: Rng) -> Job:
    """The same run in turns, whose numbers are on record or not."""
    record = job.record | ({"turns"} if rng.random() < 0.6 else set())
    tool = (2, 4) if rng.random() < 0.5 else (5, 20)
    return replace(
        job, turns=int(rng.integers(2, 6)), response=int(rng.integers(8, 20)), tool=tool, record=record,
        samples=min(job.samples, 4), shape=replace(job.shape, end=-9.0),
    )  # fmt: skip


def history(kind: str, recorded: bool) -> Callable[[Job, float, Rng], Made]:
    def make(job: Job, share: float, rng: Rng) -> Made:
        job = replace(
            still_or_moving(job, rng), shape=replace(job.shape, attention=True, end=-9.0), turns=max(job.turns, 3)
        )
        job = replace(job, record=job.record | {"turns"} if recorded else job.record - {"turns"})

        def rendered(ids: Ints, turn: Ints, rng: Rng) -> Ints:
            own = (turn == -1) if kind == "tool" else (turn == 0)
            other = own & (rng.random(ids.shape) < share)
            ids[other] = rng.integers(WORDS, job.shape.vocab, int(other.sum()))
            return ids

        what = {"tool": "the tools' text", "first": "the first answer, as history of the later turns,"}[kind]
        words = "" if recorded else "; turns are not on record"
        return job, Fault(rendered=rendered), f"{share:.0%} of {what} is other ids for the trainer{words}"

    return make


def unscored(job: Job, share: float, rng: Rng) -> Made:
    def edit(log: Log, step: int, rng: Rng) -> None:
        log["mask"] = [np.ones_like(mask) if rng.random() < share else mask for mask in log["mask"]]

    fault = Fault(edit=edit)
    return (
        still_or_moving(job, rng),
        fault,
        f"the tools' text of {share:.0%} of the sequences is in the mask; 0 stands as its log-probs",
    )


def switch_between_turns(job: Job, p: tuple[float, int], rng: Rng) -> Made:
    rate, lag = p
    job = moving(job, rng, rate, (8, 12))
    job = replace(job, record=job.record - {"versions"})
    rows = job.groups * job.samples
    places = [rng.choice([-1, job.response, 2 * job.response], rows) for _ in range(job.steps)]
    fault = Fault(older=lambda past, step: past[max(0, step - lag)], until=lambda step, _: places[step])
    return job, fault, f"weights change by {lag} versions inside most conversations, not on record; {updates(job)}"


KEPT = {
    "none", "never_synced", "sync_broke", "sync_every_k", "version_lag", "lag_unrecorded", "corrupted_load",
    "adapter_missing", "adapter_scaled", "part_stale", "aging_state", "setting_changed", "stuck_replica",
    "stuck_replica_unlabelled", "trainer_temperature", "reported_raw", "silent_sampling", "truncation",
    "banned_tokens", "different_prompt", "padding_visible", "position_ids", "packing_leak", "stale_prefix",
    "cached_prefix", "dropout", "quantised", "router_flips", "filler_values", "sentinels", "non_finite", "shifted",
    "permuted_rows", "stored_precision",
}  # fmt: skip
"""Faults of the family `recurrent` that conversations have, too."""
COUNTS = {"none": 20, "never_synced": 2, "sync_broke": 2, "corrupted_load": 2}
SPECS: tuple[Spec, ...] = (
    *(replace(spec, count=COUNTS.get(spec.fault, 1)) for spec in recurrent.SPECS if spec.fault in KEPT),
    Spec("worst_turn", "trainer", history("tool", True), three(0.2, 0.5, 1.0), count=2, label="tool"),
    Spec("worst_turn", "trainer", history("first", True), three(0.1, 0.3, 1.0), count=2, label="first"),
    Spec("turns_unrecorded", "trainer", history("tool", False), three(0.2, 0.5, 1.0), decides=False, count=2, label="tool"),
    Spec("unscored_filled", "trainer", unscored, three(0.05, 0.3, 1.0), count=2),
    Spec("switch_inside", "engine", switch_between_turns, three((0.004, 1), (0.012, 3), (0.03, 5)), decides=False),
)  # fmt: skip


def cases(tokens: int = 1500) -> Iterator[Callable[[], Case]]:
    """Makers of all runs of the family."""
    yield from cases_of(FAMILY, SPECS, tokens, conversations)
