"""Facts that one NeMo-RL process sends to others, as attributes of copies of objects that NeMo-RL sends anyway.

The facts are plain numbers and strings under names of our own, which NeMo-RL never reads, so a process without ratioscope can
unpickle them. A key among a batch's tensors would be simpler, but could end a run: NeMo-RL cannot concatenate batches with and
without such a key, and a checkpoint may contain batches without it.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

VISIT = "ratioscope_visit"
"""Attribute of the loss function that each `train` sends to workers: (step, updates of the step before this call)."""
FACTS = "ratioscope"
"""Key of a meta's extra_info: the facts of the samples that workers fetch from the data plane."""
VERSION = "ratioscope_weight_version"
"""Attribute of a prompt group's batch, set in the replay buffer's process: the version of the weights that sampled it."""


def stamped(loss_fn: Any, step: int, earlier: int) -> Any:
    """A copy of the loss function with the attribute VISIT."""
    stamped = copy.copy(loss_fn)
    setattr(stamped, VISIT, (step, earlier))
    return stamped


def with_facts(meta: Any, facts: Mapping[str, Any]) -> Any:
    """A copy of the meta with facts in its extra_info, which its shards inherit."""
    return replace(meta, extra_info={**meta.extra_info, FACTS: facts})
