"""The family `tiny_llama`: tiny models of transformers in policy-gradient training, or still, with a fault on either side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from . import torch_faults as f
from .accepted import HEALTHY
from .tiny_nets import NETS
from .torch_faults import Make, Spec, three
from .torch_loop import Job

FAMILY = "tiny_llama"
NAN, INF = float("nan"), float("-inf")
RATES = three(3e-4, 1e-3, 5e-3)


def _ragged(job: Job, spread: int) -> Job:
    return replace(job, prompt=(3, 3 + spread))


def _long(job: Job, p: Any) -> Job:
    """Few prompts, and responses that are long enough for a window."""
    return replace(
        job, response=40, prompt=(6, 6), samples=4, groups=max(2, job.groups // 2), logged=2, steps=min(job.steps, 6)
    )


SPECS: tuple[Spec, ...] = (
    Spec(HEALTHY, "neither", f.healthy, {"none": (0.0, 0, 1.0)}, count=8, label="still"),
    Spec(HEALTHY, "neither", f.healthy, {"none": (3e-4, 0, 1.0)}, count=5, label="slow"),
    Spec(HEALTHY, "neither", f.healthy, {"none": (1e-3, 0, 1.0)}, count=6, label="learns"),
    Spec(HEALTHY, "neither", f.healthy, {"none": (5e-3, 0, 1.0)}, count=8, label="sharpens"),
    Spec(HEALTHY, "neither", f.healthy, {"none": (4e-3, 4, 1.0)}, count=5, label="lora"),
    Spec(HEALTHY, "neither", f.healthy, {"none": (1e-3, 0, 0.7)}, count=3, label="cold"),
    Spec(HEALTHY, "neither", f.healthy, {"none": (0.0, 0, 1.3)}, count=3, label="hot"),
    Spec("never_synced", "engine", f.never_synced, RATES, count=5),
    Spec("sync_broke", "engine", f.sync_broke, RATES, count=4),
    Spec("stale_recorded", "engine", f.stale_recorded, RATES),
    Spec("sync_every_k", "engine", f.sync_every, three((3e-4, 2), (1e-3, 4), (5e-3, 3))),
    Spec("version_lag", "engine", f.version_lag, three((3e-4, 1), (1e-3, 3), (5e-3, 4)), count=2),
    Spec("lag_unrecorded", "engine", f.lag_unrecorded, three((3e-4, 1), (1e-3, 3), (5e-3, 4)), decides=False),
    Spec("corrupted_load", "engine", f.corrupted_load, three(0.2, 0.7, 1.0), count=4),
    Spec("part_stale", "engine", f.stale_head, RATES, decides=False, label="head"),
    Spec("other_tensor", "engine", f.other_tensor("engine", 1), three(0.1, 0.4, 1.0), decides=False, label="e_head"),
    Spec("other_tensor", "trainer", f.other_tensor("trainer", 1), three(0.1, 0.4, 1.0), decides=False, label="t_head"),
    Spec("other_tensor", "engine", f.other_tensor("engine", 0), three(0.1, 0.4, 1.0), decides=False, label="embed"),
    Spec("rows_shifted", "engine", f.rows_shifted("engine", 1), three(0.03, 0.2, 1.0), decides=False, label="e_head"),
    Spec("rows_shifted", "trainer", f.rows_shifted("trainer", 0), three(0.03, 0.2, 1.0), decides=False, label="t_embed"),
    Spec("adapter_missing", "engine", f.adapter_missing, RATES, count=2),
    Spec("adapter_scaled", "trainer", f.adapter_scaled("trainer"), three((3e-4, 2), (1e-3, 4), (2e-3, 8)), decides=False,
         label="t"),
    Spec("adapter_scaled", "engine", f.adapter_scaled("engine"), three((1e-3, 0.5), (2e-3, 2), (2e-3, 8)), decides=False,
         label="e"),
    Spec("aging_state", "engine", f.aging, three(0.01, 0.05, 0.3), decides=False),
    Spec("stuck_replica", "engine", f.stuck_replica(True), RATES),
    Spec("stuck_replica_unlabelled", "engine", f.stuck_replica(False), RATES, decides=False),
    Spec("switch_inside", "engine", f.switch_inside(False), three((1e-3, 2), (2e-3, 4), (5e-3, 8))),
    Spec("switch_recorded", "engine", f.switch_inside(True), three((1e-3, 2), (2e-3, 4), (5e-3, 8))),
    Spec("stale_prefix", "engine", f.stale_prefix(False), three((1e-3, 3), (3e-3, 6), (8e-3, 9)), decides=False),
    Spec("cached_prefix", "engine", f.stale_prefix(True), three((1e-3, 3), (3e-3, 6), (8e-3, 9))),
    Spec("trainer_temperature", "trainer",
         f.of_view("trainer", "the trainer scores at {p}", lambda v, p: replace(v, temperature=p)), three(1.05, 1.2, 0.7),
         count=2, label="t"),
    Spec("trainer_temperature", "engine", f.engine_temperature, three(0.95, 0.8, 1.4), count=2, label="e"),
    Spec("reported_raw", "engine", f.reported_raw, three(0.95, 0.8, 1.4)),
    Spec("truncation", "engine", f.truncation("top_p"), three(0.98, 0.9, 0.7), label="p"),
    Spec("truncation", "engine", f.truncation("top_k"), three(60, 30, 10), label="k"),
    Spec("truncation", "engine", f.truncation("min_p"), three(0.02, 0.1, 0.3), label="m"),
    Spec("banned_tokens", "engine", f.banned, three(1, 4, 16)),
    Spec("different_prompt", "trainer", f.different_prompt("trainer"), three("begin", "message", "topic"), count=2,
         decides=False, label="t"),
    Spec("different_prompt", "engine", f.different_prompt("engine"), three("begin twice", "template", "truncated"), count=2,
         decides=False,
         label="e"),
    Spec("padding_visible", "trainer", f.of_view("trainer", "the {side} attends to padding; questions differ by up to {p} ids",
         lambda v, p: replace(v, sees_padding=True), _ragged), three(2, 8, 24), decides=False, in_context=True, label="t"),
    Spec("padding_visible", "engine", f.of_view("engine", "the {side} attends to padding; questions differ by up to {p} ids",
         lambda v, p: replace(v, sees_padding=True), _ragged), three(2, 8, 24), decides=False, in_context=True, label="e"),
    Spec("attention_mask", "trainer", f.of_view("trainer", "the {side}'s attention mask hides the first {p} ids of the prompt",
         lambda v, p: replace(v, hidden_first=p)), three(1, 2, 4), decides=False, in_context=True),
    Spec("position_ids", "engine", f.of_view("engine", "the {side}'s positions of the response are {p} too high",
         lambda v, p: replace(v, offset=p)), three(1, 4, 20), decides=False, in_context=True, label="e"),
    Spec("position_ids", "trainer", f.of_view("trainer", "the {side}'s positions of the response are {p} too high",
         lambda v, p: replace(v, offset=p)), three(1, 4, 20), decides=False, in_context=True, label="t"),
    Spec("rope_base", "engine", f.of_view("engine", "the {side}'s base of RoPE is {p} times that of the other side",
         lambda v, p: replace(v, rope=p)), three(2.0, 10.0, 0.01), decides=False, in_context=True),
    Spec("position_onset", "engine", f.of_view("engine", "the {side}'s attention sees {p} tokens",
         lambda v, p: replace(v, window=p), _long), three(36, 24, 14), decides=False, in_context=True, label="window"),
    Spec("packing_leak", "trainer", f.packing(True), three(2, 3, 4)),
    Spec("packing_unrecorded", "trainer", f.packing(False), three(2, 3, 4), decides=False),
    Spec("dropout", "trainer", f.of_view("trainer", "the {side} drops {p:.0%} of the outputs of the MLPs",
         lambda v, p: replace(v, dropout=p)), three(0.02, 0.1, 0.3), decides=False, count=2),
    Spec("quantised", "engine", f.of_weights("engine", "the {side}'s weights are int{p}", f.quantised), three(8, 6, 4),
         decides=False, in_context=True, label="e"),
    Spec("quantised", "trainer", f.of_weights("trainer", "the {side}'s weights are int{p}", f.quantised), three(8, 6, 4),
         decides=False, in_context=True, label="t"),
    Spec("sharpness", "engine", f.of_view("engine", "the {side} caps logits softly at {p}", lambda v, p: replace(v, cap=p)),
         three(15.0, 6.0, 2.0), decides=False),
    Spec("mask_off_by_one", "trainer", f.mask_off_by_one, {"middle": 0.0, "strong": -1.0}, of_record=True),
    Spec("filler_values", "engine", f.edited("{p:.1%} of the log-probs are 0", f.filled(0.0)), three(0.003, 0.01, 0.05),
         of_record=True),
    Spec("sentinels", "engine", f.edited("{p:.1%} of the log-probs are -9999", f.filled(-9999.0)), three(0.003, 0.01, 0.05),
         of_record=True,
         decides_weak=True),
    Spec("non_finite", "engine", f.edited("{p:.1%} of the log-probs are NaN", f.filled(NAN)), three(0.003, 0.01, 0.05),
         of_record=True,
         decides_weak=True, label="nan"),
    Spec("non_finite", "trainer", f.edited("{p:.1%} of the log-probs are -inf", f.filled(INF), "old"), three(0.003, 0.01, 0.05),
         of_record=True, decides_weak=True, label="inf"),
    Spec("shifted", "engine", f.edited("the lists are moved by {p}", lambda own, p, rng: np.roll(own, p)), three(1, -1, 2),
         of_record=True),
    Spec("stored_precision", "engine", f.edited("stored with {p} decimals", lambda own, p, rng: np.round(own, p)), three(3,
         2, 1)),
)  # fmt: skip


def cases(tokens: int = 1700) -> list[Make]:
    """The maker of each run of the family."""
    return f.cases_of(FAMILY, SPECS, NETS, {}, tokens)
