"""AReaL (written from the areal 1.0.4 package; its loss and data modules are those of inclusionAI/AReaL at 4aef98d8).

The training worker calls these functions, in this order:

    PPOActor._compute_advantages    overwrites the rollout log-probs if `recompute_logprob` is on without the decoupled loss;
                                    the adapter copies them before
    concat_batch                    makes one batch of the dicts of all prompt groups; here the groups are known
    PPOActor._ppo_update            gets the padded batch, right before AReaL takes the rewards out
    split_padded_tensor_dict_into_mb_list
                                    divides the batch into minibatches (one optimizer update each) for the actor, and each of
                                    them into micro-batches for the engine; tree training uses build_packed_tree_batch
    grpo_loss_fn                    gets one packed micro-batch with current log-probs, which the adapter records
    set_version, StatsLogger.commit give the engines new weights; log the step's scalars

Each sequence is in one minibatch of its step, so there is one row per sequence, with `minibatch` and all columns. Traps:

* Log-probs and mask are shifted by one token; `versions` is not. AReaL's own staleness reads `versions` one position off.
* `step` is the engine's version, which equals the global step of StatsLogger; the training loop sets both.
* All engines gather sequence and context parallel slices before the loss, so every rank of a model-parallel group has
  copies. With pipeline stages the last stage computes the loss; it is not AReaL's data-parallel head.
* AReaL does not call the loss for a micro-batch without a token to train on.
* In single-controller mode (the default) training runs in worker processes, which start with the trainer object. `attach` to
  that object is too late; the environment variable works.
"""

from collections.abc import Callable

from ...foreign import Trainer
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
    "AReaL is in single-controller mode: it trains in worker processes, which attach() in this process does not reach, so "
    "nothing is recorded; training goes on. Start the job with `ratioscope run` or with RATIOSCOPE_RUN set, and the workers "
    "record; or set AREAL_SPMD_MODE=1 and attach in every rank"
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


def start(trainer: Trainer, recording: Recording) -> Callable[[], None]:
    """Installs the hooks in the whole process, not on the object alone; Refused if other processes do the training."""
    from ...attach import start as start_here
    from ...trainers import adapter_named

    if type(trainer).__name__ in _CONTROLLERS or getattr(trainer, "scheduler", None) is not None:
        raise Refused(ELSEWHERE)
    adapter = adapter_named("areal")
    assert adapter is not None
    return start_here(adapter, recording, None)
