"""miles (radixark/miles), a fork of slime: slime's recorder with the module and function names of miles.

Further differences: A shard of a rollout has the versions of its sequences. It drops their places, so they are read when the
shard arrives. The FSDP backend has its own actor. Only --skip-actor-forward-only skips the separate old pass. miles calls
--rollout-data-postprocess-path without the data, so this flag cannot record.
"""

from types import SimpleNamespace

from ...watching.recording import Recording
from ..slime.flags import Flags
from ..slime.names import MILES, hooks
from ..slime.train import sides

HOOKS = hooks(MILES)


def recorder(recording: Recording) -> SimpleNamespace:
    """The methods that HOOKS name, as slime's."""
    return sides(recording, MILES)


_flags = Flags(MILES)
megatron_init = _flags.megatron_init
rollout_log = _flags.rollout_log
tis = _flags.tis
