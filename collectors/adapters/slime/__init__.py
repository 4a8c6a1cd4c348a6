"""slime (THUDM/slime): all policies from inside the loss, and what only the rollout manager knows, joined by sequence.

Two ways in. By import hooks, with nothing but the environment: `ratioscope run`, or RATIOSCOPE_RUN. Or by slime's own flags,
where no process can be prepared: see flags.py for their functions, which are named here.

    rollout manager     log_rollout_data: rollout log-probs, masks, versions, groups, rewards   rollout.py
    training ranks      the loss of each micro-batch: rollout, old, current, reference, ...       train.py
                        update_weights: the version of the weights that are trained on

Only the last pipeline stage holds log-probs, and all tensor-parallel ranks hold the same: of those the first writes. Under
context parallelism each rank logs its slice with positions. No call here is a collective one.
"""

from __future__ import annotations

from ...watching.recording import Recording
from .flags import Flags
from .names import SLIME, hooks
from .recorder import SlimeRecorder

HOOKS = hooks(SLIME)


def recorder(recording: Recording) -> SlimeRecorder:
    """The object whose methods HOOKS name."""
    return SlimeRecorder(recording, SLIME)


_flags = Flags(SLIME)
megatron_init = _flags.megatron_init
rollout_log = _flags.rollout_log
rollout_data_postprocess = _flags.rollout_data_postprocess
tis = _flags.tis
