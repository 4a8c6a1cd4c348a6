"""The family `recurrent`: one response to each prompt by the small network, with a fault on either side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from . import input_faults as inputs
from . import record_faults as record
from . import sampling_faults as sampling
from . import weight_faults as weights
from .case import Case
from .simulation import Fault, Job
from .spec import Made, Rng, Spec, cases_of, still_or_moving, three

FAMILY = "recurrent"


def healthy(job: Job, p: None, rng: Rng) -> Made:
    return still_or_moving(job, rng, 0.01), Fault(), "nothing"


NAN, INF = float("nan"), float("-inf")
ENGINE, TRAINER = "engine", "trainer"
Open = partial(Spec, decides=False)
"""A fault whose record can be that of another one, too."""
Proof = partial(Spec, decides_weak=True)
"""A fault that the record shows at any strength."""
SPECS: tuple[Spec, ...] = (
    Open("none", "neither", healthy, {"none": None}, count=20),
    Spec("never_synced", ENGINE, weights.never_synced, three(0.003, 0.01, 0.03), count=5),
    Spec("sync_broke", ENGINE, weights.sync_broke, three(0.003, 0.01, 0.03), count=5),
    Spec("sync_every_k", ENGINE, weights.sync_every, three((0.004, 2), (0.01, 4), (0.03, 3))),
    Spec("version_lag", ENGINE, weights.version_lag, three((0.004, 1), (0.01, 3), (0.03, 4)), count=3),
    Open("lag_unrecorded", ENGINE, weights.lag_unrecorded, three((0.004, 1), (0.01, 3), (0.03, 4))),
    Spec("corrupted_load", ENGINE, weights.corrupted_load, three(0.05, 0.25, 0.8), count=4),
    Open("passing_load", ENGINE, weights.passing_load, three(0.1, 0.3, 0.8), count=1),
    Spec("adapter_missing", ENGINE, weights.adapter_missing, three(0.003, 0.01, 0.03)),
    Open("adapter_scaled", TRAINER, weights.adapter_scaled(TRAINER), three((0.001, 4), (0.002, 8), (0.005, 8)), label="t"),
    Open("adapter_scaled", ENGINE, weights.adapter_scaled(ENGINE), three((0.003, 2), (0.01, 2), (0.005, 8)), label="e"),
    Open("part_stale", ENGINE, weights.part_stale(ENGINE, "head"), three(0.004, 0.012, 0.03), label="head"),
    Open("part_stale", TRAINER, weights.part_stale(TRAINER, "head"), three(0.004, 0.012, 0.03), count=1, label="t_head"),
    Open("part_stale", ENGINE, weights.part_stale(ENGINE, "state"), three(0.004, 0.012, 0.03), count=1, label="body"),
    Open("rows_shifted", ENGINE, weights.rows_shifted(ENGINE, "embed"), three(0.01, 0.1, 1.0), count=1, label="embed"),
    Open("rows_shifted", ENGINE, weights.rows_shifted(ENGINE, "head"), three(0.02, 0.1, 1.0), count=1, label="head"),
    Open("rows_shifted", TRAINER, weights.rows_shifted(TRAINER, "head"), three(0.02, 0.1, 1.0), count=1, label="t_head"),
    Spec("token_bias", ENGINE, weights.token_bias, three((3, 0.1), (3, 0.5), (6, 1.5))),
    Open("aging_state", ENGINE, weights.aging, three(0.002, 0.01, 0.05), count=3),
    Open("setting_changed", ENGINE, weights.setting_changed, three(9, 7, 5)),
    Spec("stuck_replica", ENGINE, weights.stuck_replica(True), three(0.003, 0.01, 0.03)),
    Open("stuck_replica_unlabelled", ENGINE, weights.stuck_replica(False), three(0.003, 0.01, 0.03)),
    Spec("odd_rank", TRAINER, weights.odd_rank, three(0.03, 0.1, 0.5), count=1),
    Spec("switch_inside", ENGINE, weights.switch_inside(False), three((0.004, 1), (0.012, 3), (0.03, 5))),
    Spec("switch_recorded", ENGINE, weights.switch_inside(True), three((0.004, 1), (0.012, 3), (0.03, 5))),
    Spec("trainer_temperature", TRAINER, sampling.trainer_temperature(TRAINER), three(1.05, 1.2, 1.5), label="t"),
    Spec("trainer_temperature", ENGINE, sampling.trainer_temperature(ENGINE), three(0.95, 0.8, 0.6), label="e"),
    Spec("reported_raw", ENGINE, sampling.reported_raw, three(0.95, 0.8, 1.4)),
    Spec("silent_sampling", ENGINE, sampling.silent("temperature"), three(0.9, 0.7, 0.5), count=1, label="t"),
    Spec("silent_sampling", ENGINE, sampling.silent("top_p"), three(0.98, 0.9, 0.7), count=1, label="p"),
    Spec("silent_sampling", ENGINE, sampling.silent("top_k"), three(30, 8, 3), count=1, label="k"),
    Spec("truncation", ENGINE, sampling.truncation("top_p"), three(0.99, 0.9, 0.7), count=2, label="p"),
    Spec("truncation", ENGINE, sampling.truncation("top_k"), three(30, 10, 4), count=1, label="k"),
    Spec("truncation", ENGINE, sampling.truncation("min_p"), three(0.01, 0.05, 0.2), count=1, label="m"),
    Spec("penalty", ENGINE, sampling.penalty("repetition"), three(1.05, 1.2, 1.5), count=1, label="r"),
    Spec("penalty", ENGINE, sampling.penalty("presence"), three(0.1, 0.5, 1.5), count=1, label="p"),
    Spec("min_tokens", ENGINE, sampling.min_tokens, three(2.0, 4.0, 6.0)),
    Spec("banned_tokens", ENGINE, sampling.banned, three(1, 4, 12)),
    Spec("grammar", ENGINE, sampling.grammar, three((40, 2, 2), (20, 6, 2), (10, 5, 4)), count=1),
    Spec("different_prompt", TRAINER, inputs.different_prompt(TRAINER), three("begin", "message", "truncated"), label="t"),
    Spec("different_prompt", ENGINE, inputs.different_prompt(ENGINE), three("begin", "template", "other"), label="e"),
    Open("some_prompts", TRAINER, inputs.some_prompts, three(24, 18, 12), count=1),
    Open("padding_visible", ENGINE, inputs.padding_visible(ENGINE), three(2, 8, 24), count=1, label="e"),
    Open("padding_visible", TRAINER, inputs.padding_visible(TRAINER), three(2, 8, 24), count=1, label="t"),
    Open("position_ids", TRAINER, inputs.position_ids(TRAINER), three(1, 4, 20), count=1, label="t"),
    Open("position_ids", ENGINE, inputs.position_ids(ENGINE), three(1, 4, 20), count=1, label="e"),
    Spec("position_onset", TRAINER, inputs.position_onset("place"), three(50, 32, 16), count=1, label="place"),
    Spec("position_onset", TRAINER, inputs.position_onset("window"), three(50, 32, 16), count=1, label="window"),
    Spec("packing_leak", TRAINER, inputs.packing(True), three(2, 3, 4), count=1),
    Open("packing_unrecorded", TRAINER, inputs.packing(False), three(2, 3, 4), count=1),
    Open("stale_prefix", ENGINE, inputs.stale_prefix(False), three((0.01, 1), (0.03, 3), (0.08, 5))),
    Spec("cached_prefix", ENGINE, inputs.stale_prefix(True), three((0.01, 1), (0.03, 3), (0.08, 5))),
    Spec("retokenised", TRAINER, inputs.retokenised("other"), three(0.1, 0.4, 1.0)),
    Open("retokenised", TRAINER, inputs.retokenised("vanished"), three(0.1, 0.4, 1.0), count=1, label="vanished"),
    Spec("other_ids", TRAINER, inputs.retokenised("recorded"), three(0.1, 0.4, 1.0), count=1),
    Open("dropout", TRAINER, record.dropout, three(0.01, 0.05, 0.2)),
    Open("quantised", ENGINE, record.quantisation(ENGINE), three(127, 15, 7), label="e"),
    Open("quantised", TRAINER, record.quantisation(TRAINER), three(127, 15, 7), count=1, label="t"),
    Open("kv_precision", ENGINE, record.kv_precision, three(4, 3, 2), count=1),
    Open("router_flips", ENGINE, record.router_flips, three(0.003, 0.01, 0.03)),
    Open("sharpness", TRAINER, record.soft_cap, three(30.0, 15.0, 6.0), count=1),
    Spec("filler_values", ENGINE, record.filled(0.0), three(0.001, 0.01, 0.05), label="zero"),
    Spec("filler_values", ENGINE, record.tail_filled(-100.0), three(0.02, 0.04, 0.2), count=1, label="tail"),
    Spec("filler_values", TRAINER, record.filled(-1.0, "old"), three(0.01, 0.03, 0.1), count=1, label="t"),
    Proof("sentinels", ENGINE, record.filled(-9999.0), three(0.001, 0.01, 0.05), count=1),
    Proof("non_finite", ENGINE, record.filled(NAN), three(0.001, 0.01, 0.05), label="nan"),
    Proof("non_finite", ENGINE, record.filled(INF), three(0.001, 0.01, 0.05), count=1, label="inf"),
    Proof("non_finite", TRAINER, record.filled(NAN, "old"), three(0.001, 0.01, 0.05), count=1, label="t"),
    Proof("shifted", ENGINE, record.shifted(), three(1, -1, 2)),
    Proof("shifted", TRAINER, record.shifted("old"), three(1, -1, 2), count=1, label="t"),
    Spec("permuted_rows", ENGINE, record.permuted, three(0.2, 0.5, 1.0)),
    Spec("stored_precision", ENGINE, record.stored(), three(3, 2, 1)),
)  # fmt: skip


def cases(tokens: int = 1500) -> Iterator[Callable[[], Case]]:
    """Makers of all runs of the family."""
    yield from cases_of(FAMILY, SPECS, tokens)
