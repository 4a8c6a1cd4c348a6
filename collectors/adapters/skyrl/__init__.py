"""SkyRL (written for 0.4.0): the sync trainer and the fully async one, both recorded in the driver process.

The driver has rollout, old, masks, uids and raw advantages. The workers send it current of every sample with the result of
forward_backward, which the trainer ignores. One process thus records one row per sequence and optimizer update, and the Ray
workers need no hooks. The hooks watch methods of the classes, because the fully async trainer accepts no training callbacks, and
a callback of the sync trainer runs after the advantages are scaled.

Layout: SkyRL 0.4.0 aligns responses to the right of (B, T). Rows that fill up the data-parallel ranks come last, once for the
batch (metadata `pad_size`) and once for each mini-batch (more outputs than rows); they are not recorded. Versions are finished
steps. The engine's version is that of the last weight sync, so a fresh sequence has lag 0. The fully async trainer's own
staleness is one step too large for a group that was scheduled after the sync, while generation resumed or a checkpoint was
written.

It follows skyrl/train/trainer.py, skyrl/train/fully_async_trainer.py, skyrl/train/generators/skyrl_gym_generator.py,
skyrl/train/utils/tracking.py and skyrl/backends/skyrl_train/workers/worker_dispatch.py of skyrl 0.4.0.
"""

from ...watching.hooks import Hook
from . import second_forward
from .recorder import SkyrlRecorder

_TRAINER = "skyrl.train.trainer"
_ASYNC = "skyrl.train.fully_async_trainer"
_DISPATCH = "skyrl.backends.skyrl_train.workers.worker_dispatch"

HOOKS = (
    Hook(_TRAINER, "RayPPOTrainer.convert_to_training_input", after="converted"),
    Hook(_TRAINER, "RayPPOTrainer._execute_training_step", before="training", after="trained"),
    Hook(_DISPATCH, "WorkerDispatch.forward_backward_from_staged", after="visited"),
    Hook(_TRAINER, "RayPPOTrainer.init_weight_sync_state", before="trainer_begins", needed=False),
    Hook(_TRAINER, "RayPPOTrainer.load_checkpoints", after="resumed", needed=False),
    Hook(_TRAINER, "RayPPOTrainer.generate", before="sampling", needed=False),
    Hook(_TRAINER, "RayPPOTrainer.postprocess_generator_output", before="sampled", needed=False),
    Hook(_DISPATCH, "WorkerDispatch._broadcast_to_inference_engines", after="synced", needed=False),
    Hook(_DISPATCH, "WorkerDispatch.save_weights_for_sampler", after="synced", needed=False),
    Hook(_ASYNC, "GeneratedOutputGroup.__init__", after="group_sampled", needed=False),
    Hook(
        _ASYNC,
        "FullyAsyncRayPPOTrainer.convert_generation_group_mini_batch_to_training_input",
        before="groups_taken",
        needed=False,
    ),
    Hook("skyrl.train.generators.utils", "apply_overlong_filtering", after="filtered", needed=False),
    Hook("skyrl.train.utils.tracking", "Tracking.log", swap="with_scalars", needed=False),
    *second_forward.HOOKS,
)

recorder = SkyrlRecorder
