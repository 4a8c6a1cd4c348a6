"""Where slime and its fork miles keep the same functions: the differences between the two as one table each.

Written from THUDM/slime at 624b824a and radixark/miles at 31f1ca96, both of 2026-08-21.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...watching.hooks import Hook


@dataclass(frozen=True)
class Place:
    """Where this process stands among the trainer's ranks.

    cp_size, cp_rank: of context parallelism. writes: on the last pipeline stage, and the first of those that hold copies
    (tensor parallelism). speaks: the first of all that write.
    """

    cp_size: int
    cp_rank: int
    writes: bool
    speaks: bool


@dataclass(frozen=True)
class Names:
    """`module:function` or `module:Class.method` of what is watched; an empty one does not exist in this trainer.

    sampled: is given a rollout's samples. call: a sample has got the tokens of one call of an engine. shard, box: make one
    rank's part of a rollout, and wrap it for its way there. arrival: takes it out; without a box it tells the places of its
    samples. rollout: trains on a rollout. step: one optimizer step. loss, scores, reducer: the loss of a micro-batch, its
    current log-probs, and its masks. sync: weights to the engines. log: scalars to the loggers. tis: the trainer's own
    correction.
    """

    adapter: str
    sampled: str
    call: str
    shard: str
    box: str
    arrival: str
    rollout: tuple[str, ...]
    step: tuple[str, ...]
    loss: str
    scores: str
    reducer: str
    sync: tuple[str, ...]
    log: str
    tis: str
    load_function: str
    place: Callable[[], Place]
    old_is_current: str
    bypass: str


def hooks(names: Names) -> tuple[Hook, ...]:
    """What is watched of this trainer. Nothing is recorded without what the table calls needed."""
    return tuple(_hooks(names))


def _hooks(names: Names) -> Iterator[Hook]:
    yield _hook(names.sampled, before="sampled")
    for name, method in ((names.call, "call_ended"), (names.box, "box_made")):
        if name:
            yield _hook(name, after=method, needed=False)
    if names.shard:
        yield _hook(names.shard, before="shard_made", needed=False)
    yield _hook(names.arrival, before="shard_arrives", needed=not names.box)
    for name in names.rollout:
        yield _hook(name, before="rollout_begins", after="rollout_ends")
    for name in names.step:
        yield _hook(name, before="step_begins")
    yield _hook(names.loss, before="loss_begins", after="loss_ends")
    yield _hook(names.scores, after="scored")
    yield _hook(names.reducer, before="mask_used", needed=False)
    for name in names.sync:
        yield _hook(name, after="synced", needed=False)
    yield _hook(names.log, swap="with_scalars", needed=False)


def _hook(
    name: str,
    *,
    before: str | None = None,
    after: str | None = None,
    swap: str | None = None,
    needed: bool = True,
) -> Hook:
    module, _, function = name.partition(":")
    return Hook(module, function, before=before, after=after, swap=swap, needed=needed)


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
    load_function="slime.utils.misc:load_function",
    place=_slime_place,
    old_is_current=(
        "slime skips the separate old pass with these settings (one optimizer step per rollout) and its loss uses the detached "
        "current log-probs as old; old is recorded as that. --get-mismatch-metrics computes it"
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
    load_function="miles.utils.misc:load_function",
    place=_miles_place,
    old_is_current=(
        "miles computes no old log-probs under --skip-actor-forward-only and its loss uses the detached current ones as old; "
        "old is recorded as that. Without the flag they are computed"
    ),
    bypass=(
        "miles computes no old log-probs under --use-rollout-logprobs: its ratio is current over rollout, which is total. "
        "--get-mismatch-metrics computes old as well"
    ),
)
