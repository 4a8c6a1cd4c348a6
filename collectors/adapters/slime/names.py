"""The module and function names of slime and of its fork miles, one table each.

It follows THUDM/slime at 624b824a and radixark/miles at 31f1ca96, both of 2026-08-21. `heads` follows slime's
backends/megatron_utils/loss.py at 00c2d6db and utils/score_centering.py at 2e5cd7cd, single files of an index: not run.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from ...watching.hooks import Hook


@dataclass(frozen=True)
class Place:
    """The place of this process among the trainer's ranks."""

    cp_size: int
    """Ranks of context parallelism."""
    cp_rank: int
    """Rank within context parallelism."""
    writes: bool
    """Whether it writes rows: it is on the last pipeline stage, and the first tensor-parallel rank."""
    speaks: bool
    """Whether it writes messages and events: it is the first rank that writes rows."""


@dataclass(frozen=True)
class Names:
    """The watched functions of a trainer as `module:function` or `module:Class.method`; empty if the trainer has none."""

    adapter: str
    sampled: str
    """Gets all samples of a rollout."""
    call: str
    """Runs after each call of an engine, when a sample has its tokens."""
    shard: str
    """Makes one rank's part of a rollout."""
    box: str
    """Wraps a rank's part for sending."""
    arrival: str
    """Unwraps the part on the rank. Without a box its argument has the places of the samples."""
    rollout: tuple[str, ...]
    """Trains on a rollout."""
    step: tuple[str, ...]
    """Takes one optimizer step."""
    loss: str
    """Computes the loss of a micro-batch."""
    scores: str
    """Computes current log-probs of a micro-batch."""
    reducer: str
    """Makes the reducer of a micro-batch from its masks."""
    sync: tuple[str, ...]
    """Sends weights to the engines."""
    log: str
    """Sends scalars to the loggers."""
    tis: str
    """The trainer's own correction."""
    checks: str
    """Asks every engine for checksums of its weights."""
    load_function: str
    """Loads a user's function by its path."""
    old_pass: str
    """Computes log-probs without gradient, before training."""
    heads: tuple[str, str]
    """Computes the trainer's log-probs at the sampler's likeliest tokens of a sequence; compares them with the sampler's."""
    place: Callable[[], Place]
    old_is_current: str
    """Message if the loss uses current as old."""
    bypass: str
    """Message if the trainer computes no old log-probs."""


def hooks(names: Names) -> tuple[Hook, ...]:
    """The hooks of this trainer. If a needed function does not exist, nothing is recorded."""
    rows: tuple[tuple[tuple[str, ...], str | None, str | None, bool], ...] = (  # functions, before, after, needed
        ((names.sampled,), "sampled", None, True),
        ((names.call,), None, "call_ended", False),
        ((names.box,), None, "box_made", False),
        ((names.checks,), None, "weights_checked", False),
        ((names.shard,), "shard_made", None, False),
        ((names.arrival,), "shard_arrives", None, not names.box),
        (names.rollout, "rollout_begins", "rollout_ends", True),
        (names.step, "step_begins", None, True),
        ((names.loss,), "loss_begins", "loss_ends", True),
        ((names.scores,), None, "scored", True),
        ((names.reducer,), "mask_used", None, False),
        (names.sync, None, "synced", False),
        ((names.old_pass,), None, "old_scored", False),
        (names.heads[:1], None, "head_scored", False),
        (names.heads[1:], "heads_met", None, False),
    )
    watched = (
        Hook(*_at(name), before=before, after=after, needed=needed)
        for own, before, after, needed in rows
        for name in own
        if name
    )
    return *watched, Hook(*_at(names.log), swap="with_scalars", needed=False)


def _at(name: str) -> tuple[str, str]:
    module, _, function = name.partition(":")
    return module, function


def _slime_place() -> Place:
    mpu = sys.modules["megatron.core"].mpu
    writes = mpu.is_pipeline_last_stage(ignore_virtual=True) and mpu.get_tensor_model_parallel_rank() == 0
    first = mpu.get_data_parallel_rank(with_context_parallel=True) == 0
    return Place(
        mpu.get_context_parallel_world_size(), mpu.get_context_parallel_rank(), bool(writes), bool(writes and first)
    )


def _miles_place() -> Place:
    state = sys.modules["miles.backends.training_utils.parallel"].get_parallel_state()
    writes = state.pp.rank == state.pp.size - 1 and state.tp.rank == 0
    return Place(state.cp.size, state.cp.rank, writes, writes and state.effective_dp_cp.rank == 0)


_SLIME_MEGATRON = "slime.backends.megatron_utils"
_MILES_MEGATRON, _MILES_FSDP, _MILES_SHARED = (
    f"miles.backends.{part}" for part in ("megatron_utils", "fsdp_utils", "training_utils")
)

SLIME = Names(
    adapter="slime",
    sampled="slime.observability.rollout_metrics:log_rollout_data",
    call="slime.utils.types:Sample._apply_meta_info",
    shard="slime.observability.rollout_data_utils:tensorize_rollout_data_for_training",
    box="slime.utils.misc:Box.__init__",
    arrival="slime.utils.data:process_rollout_data",
    rollout=(f"{_SLIME_MEGATRON}.actor:MegatronTrainRayActor.train_actor",),
    step=(f"{_SLIME_MEGATRON}.model:train_one_step",),
    loss=f"{_SLIME_MEGATRON}.loss:loss_function",
    scores=f"{_SLIME_MEGATRON}.loss:get_log_probs_and_entropy",
    reducer=f"{_SLIME_MEGATRON}.cp_utils:get_sum_of_sample_mean",
    sync=(f"{_SLIME_MEGATRON}.actor:MegatronTrainRayActor.update_weights",),
    log="slime.observability.logging_utils:log",
    tis=f"{_SLIME_MEGATRON}.loss:vanilla_tis_function",
    checks="",
    load_function="slime.utils.misc:load_function",
    old_pass=f"{_SLIME_MEGATRON}.actor:MegatronTrainRayActor.compute_log_prob",
    heads=("slime.utils.ppo_utils:calculate_topk_log_probs", "slime.utils.score_centering:score_centering_correction"),
    place=_slime_place,
    old_is_current=(
        "slime skips the separate old pass with these settings (one optimizer step per rollout) and its loss uses the detached "
        "current log-probs as old; the record has these as old. --get-mismatch-metrics computes old"
    ),
    bypass=(
        "slime computes no old log-probs under --use-rollout-logprobs: its ratio is current over rollout, which is total. "
        "--get-mismatch-metrics computes old as well"
    ),
)

MILES = Names(
    adapter="miles",
    sampled="miles.ray.rollout.metrics:log_rollout_data",
    call="miles.utils.types:Sample.update_from_meta_info",
    shard="",
    box="",
    arrival="miles.ray.rollout.train_data_conversion:process_rollout_data_shard",
    rollout=(
        f"{_MILES_MEGATRON}.actor:MegatronTrainRayActor.train_actor",
        f"{_MILES_FSDP}.actor:FSDPTrainRayActor._train_core",
    ),
    step=(f"{_MILES_MEGATRON}.model:train_one_step", f"{_MILES_FSDP}.actor:FSDPTrainRayActor._train_step"),
    loss=f"{_MILES_SHARED}.loss:loss_function",
    scores=f"{_MILES_SHARED}.loss_hub.logit_processors:get_log_probs_and_entropy",
    reducer=f"{_MILES_SHARED}.cp_utils:get_sum_of_sample_mean",
    sync=(
        f"{_MILES_MEGATRON}.actor:MegatronTrainRayActor.update_weights",
        f"{_MILES_FSDP}.actor:FSDPTrainRayActor.update_weights",
    ),
    log="miles.utils.tracking_utils.tracking:log",
    tis=f"{_MILES_SHARED}.loss_hub.corrections:vanilla_tis_function",
    checks="miles.ray.rollout.rollout_server:RolloutServer.check_weights",
    load_function="miles.utils.misc:load_function",
    old_pass="",
    heads=("", ""),
    place=_miles_place,
    old_is_current=(
        "miles computes no old log-probs under --skip-actor-forward-only and its loss uses the detached current ones as old; "
        "the record has these as old. Without the flag miles computes old"
    ),
    bypass=(
        "miles computes no old log-probs under --use-rollout-logprobs: its ratio is current over rollout, which is total. "
        "--get-mismatch-metrics computes old as well"
    ),
)
