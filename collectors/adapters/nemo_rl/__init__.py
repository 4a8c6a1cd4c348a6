"""NeMo-RL (NVIDIA-NeMo/RL at 7ea279ab, 2026-08-22): GRPO and PPO, synchronous and asynchronous, with and without its data plane.

    driver     Policy.train            the whole batch: rollout, old, reference, masks, advantages; see driver.py
               compute_advantage       rewards and prompt groups of the same rows
               log_batched_dict_as_jsonl    the step's end; also the batch, if Policy.train was not called with it
    workers    ClippedPGLossFn         current log-probs, per micro-batch or packed sequence; see worker.py
               TQWorkerMixin._fetch    the batch, if the driver never has it (data plane, SingleController)
    buffer     ReplayBufferImpl.add    the weight version of each prompt group

A step is recorded from `Policy.train`, which has tensors, or else from the JSONL dump, which has lists. There is no dump with
env.should_log_nemo_gym_responses or with SingleController. Rows of driver and workers are joined by a hash of their tokens and
rollout log-probs, because they have no common id; see rows.py. Column 0 of every array is a pad.

It follows nemo_rl/algorithms/{grpo,grpo_sync,ppo,single_controller,advantage_estimator}.py, algorithms/loss/{loss_functions,
wrapper}.py, algorithms/async_utils/{replay_buffer,staleness_sampler}.py, models/policy/{lm_policy,tq_policy}.py and its workers,
data_plane/{interfaces,preshard,worker_mixin}.py, distributed/batched_data_dict.py and utils/logger.py.
"""

from types import SimpleNamespace

from ...watching.hooks import recorder_of
from ...watching.recording import Recording
from . import driver, second_forward, worker

HOOKS = (*driver.HOOKS, *worker.HOOKS, *second_forward.HOOKS)


def recorder(recording: Recording) -> SimpleNamespace:
    """The methods that HOOKS name, for all kinds of processes."""
    return recorder_of(HOOKS, driver.NemoDriver(recording), worker.NemoWorker(recording), second_forward.WorkerAgain())
