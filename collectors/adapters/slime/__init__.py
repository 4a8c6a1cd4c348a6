"""slime (THUDM/slime): all policies from inside the loss, and facts of the rollout manager, joined by sequence.

There are two ways to record. Import hooks need only the environment: `ratioscope run`, or RATIOSCOPE_RUN. slime's own flags work
if no process can be prepared; their functions are in flags.py and have names here.

    rollout manager     log_rollout_data: rollout log-probs, masks, versions, groups, rewards   rollout.py
    training ranks      the loss of each micro-batch: rollout, old, current, reference, ...       train.py
                        update_weights: the version of the weights in training

Only the last pipeline stage has log-probs. All its tensor-parallel ranks have the same, and the first of them writes. With
context parallelism each rank logs its slice with positions. No call here is collective.
"""

from types import SimpleNamespace

from ...watching.recording import Recording
from .flags import Flags
from .names import SLIME, hooks
from .train import sides

HOOKS = hooks(SLIME)


def recorder(recording: Recording) -> SimpleNamespace:
    """The methods that HOOKS name. A process is the rollout manager or a training rank; each has its own side."""
    return sides(recording, SLIME)


_flags = Flags(SLIME)
megatron_init = _flags.megatron_init
rollout_log = _flags.rollout_log
rollout_data_postprocess = _flags.rollout_data_postprocess
tis = _flags.tis
