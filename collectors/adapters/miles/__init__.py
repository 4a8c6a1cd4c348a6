"""miles (radixark/miles), the fork of slime: the same recorder, by the names that miles has moved things to.

What differs beside the names: shards of a rollout bring the versions of their sequences along but drop their places, which are
read as they arrive; the FSDP backend has an actor of its own; the separate old pass is skipped by --skip-actor-forward-only
alone; and --rollout-data-postprocess-path is called without the data, so that it is of no use here.
"""

from __future__ import annotations

from ...watching.recording import Recording
from ..slime.flags import Flags
from ..slime.names import MILES, hooks
from ..slime.recorder import SlimeRecorder

HOOKS = hooks(MILES)


def recorder(recording: Recording) -> SlimeRecorder:
    """The object whose methods HOOKS name."""
    return SlimeRecorder(recording, MILES)


_flags = Flags(MILES)
megatron_init = _flags.megatron_init
rollout_log = _flags.rollout_log
tis = _flags.tis
