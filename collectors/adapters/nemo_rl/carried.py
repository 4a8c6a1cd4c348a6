"""What NeMo-RL's processes are told by the one that knows: carried along by objects that travel anyway, copied before.

All of it is plain numbers and strings under names of our own, which nothing upstream reads: a process without ratioscope can
unpickle them. A key among a batch's tensors would be nearer at hand, and could end a run: batches with and without it, as
they come from a checkpoint, do not go together.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

VISIT = "ratioscope_visit"
"""Attribute of the loss function that workers are sent with each `train`: (step, updates of the step before this call)."""
FACTS = "ratioscope"
"""Key of a meta's extra_info: what workers record with the samples that they fetch from the data plane."""
VERSION = "ratioscope_weight_version"
"""Attribute of a prompt group's batch, from the replay buffer's process on: the weights that sampled it."""


def stamped(loss_fn: Any, step: int, earlier: int) -> Any:
    """A copy of the loss function that carries the step."""
    stamped = copy.copy(loss_fn)
    setattr(stamped, VISIT, (step, earlier))
    return stamped


def with_facts(meta: Any, told: Mapping[str, Any]) -> Any:
    """A copy of the meta; its shards inherit extra_info."""
    return replace(meta, extra_info={**meta.extra_info, FACTS: told})
