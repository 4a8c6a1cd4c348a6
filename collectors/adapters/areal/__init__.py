"""AReaL (written from the areal 1.0.4 package; its loss and data modules are those of inclusionAI/AReaL at 4aef98d8).

All that is needed passes through the worker that trains, in this order:

    PPOActor._compute_advantages    overwrites the rollout log-probs where `recompute_logprob` is on without the decoupled loss;
                                    they are kept from before
    concat_batch                    one dict per prompt group becomes one batch: here the groups are known
    PPOActor._ppo_update            the padded batch, right before its rewards are taken out
    split_padded_tensor_dict_into_mb_list
                                    the batch is divided into minibatches (one optimizer update each) by the actor, and each of
                                    them into micro-batches by the engine; build_packed_tree_batch in tree training
    grpo_loss_fn                    one micro-batch, packed, with current log-probs: this is where it is recorded
    set_version, StatsLogger.commit the engines have been given new weights; the step's scalars

Each sequence is in one minibatch of its step, so there is one row per sequence, with `minibatch` and all columns. Traps:

* `versions` is not shifted by the token that log-probs and mask are shifted by; AReaL's own staleness reads it one off.
* `step` is the engine's version, which is the global step that StatsLogger logs; both are set by the training loop.
* All engines gather sequence and context parallel slices before the loss, so every rank of a model-parallel group holds
  copies; with pipeline stages the loss is on the last one, which is not AReaL's data-parallel head.
* The loss is not called for a micro-batch without a token to train on.
* In single-controller mode (the default) this runs in worker processes that start with the trainer object: attaching to the
  object is too late, the environment variable is the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...watching.hooks import Hook, Refused
from ...watching.recording import Recording
from .recorder import ArealRecorder

ACTOR = "areal.trainer.ppo.actor"
DATA = "areal.utils.data"
_ENGINES = (
    ("areal.engine.fsdp_engine", "FSDPEngine"),
    ("areal.engine.megatron_engine", "MegatronEngine"),
    ("areal.experimental.engine.archon_engine", "ArchonEngine"),
)
_CONTROLLERS = ("PPOActorController", "PPOActorControllerV2")
ELSEWHERE = (
    "AReaL is in single-controller mode: it trains in worker processes, which were started with this object and which attach() "
    "in this one does not reach, so that nothing is recorded; training goes on. Start the job with `ratioscope run`, or with "
    "RATIOSCOPE_RUN set, and the workers record themselves; or set AREAL_SPMD_MODE=1 and attach in every rank"
)

HOOKS = (
    Hook(ACTOR, "PPOActor._compute_advantages", before="advantages_begin"),
    Hook(ACTOR, "PPOActor._ppo_update", before="update_begins", after="update_ended"),
    Hook(ACTOR, "grpo_loss_fn", before="loss_begins", after="loss_computed"),
    Hook(DATA, "split_padded_tensor_dict_into_mb_list", after="divided"),
    Hook(DATA, "concat_batch", after="concatenated", needed=False),
    Hook("areal.models.tree_attn.tree", "build_packed_tree_batch", after="divided_into_trees", needed=False),
    Hook(ACTOR, "_apply_m2po_masking", after="filtered", needed=False),
    Hook("areal.utils.functional.functional", "apply_rejection_sampling", after="filtered", needed=False),
    *(Hook(module, f"{engine}.set_version", after="weights_synced", needed=False) for module, engine in _ENGINES),
    *(Hook(module, f"{engine}.export_stats", replace="with_scalars", needed=False) for module, engine in _ENGINES),
    Hook("areal.trainer.rl_trainer", "PPOTrainer.train", before="training_begins", needed=False),
    Hook("areal.utils.stats_logger", "StatsLogger.commit", swap="commit_with_scalars", needed=False),
)

recorder = ArealRecorder

Trainer = Any


def start(trainer: Trainer, recording: Recording) -> Callable[[], None]:
    """Puts the hooks on, which are the process's and not the object's; Refused where the training is in other processes."""
    from ...attach import start as start_here
    from ...trainers import adapter_named

    if type(trainer).__name__ in _CONTROLLERS or getattr(trainer, "scheduler", None) is not None:
        raise Refused(ELSEWHERE)
    adapter = adapter_named("areal")
    assert adapter is not None
    return start_here(adapter, recording, None)
