"""What a SkyRL trainer's configuration says of its records: what to keep of it, and what the values are not."""

from __future__ import annotations

import sys
from typing import Any

from ratioscope.kept_settings import kept

from . import messages as words

Trainer = Any
"""A RayPPOTrainer. `Any`, because SkyRL is no dependency."""


def described(trainer: Trainer) -> dict[str, Any]:
    """SkyRL's configuration in its own shape, so that `trainer.algorithm` is where its users look for it."""
    return {"trainer_class": f"{type(trainer).__module__}.{type(trainer).__qualname__}", **kept(trainer.cfg).settings}


def versions_of(trainer: Trainer) -> str:
    return words.ASYNC_VERSIONS if trainer.cfg.trainer.fully_async.enabled else words.SYNC_VERSIONS


def appends_ends(trainer: Trainer) -> bool:
    """Whether every end-of-sequence token at the end was put there, with log-prob 0, whether sampled before or not."""
    generator = trainer.cfg.generator
    return is_gym_generator(trainer.generator) and not generator.use_conversation_multi_turn and not generator.batched


def is_gym_generator(generator: Any) -> bool:
    return any(base.__name__ == "SkyRLGymGenerator" for base in type(generator).__mro__)


def is_out_of_order(trainer: Trainer) -> bool:
    """Whether current comes back in the order of packed micro-batches, as before 0.4.0."""
    if trainer.cfg.trainer.max_tokens_per_microbatch <= 0:
        return False
    workers = sys.modules.get("skyrl.backends.skyrl_train.workers.worker_utils")
    packed = getattr(workers, "TokenBasedBatchIterator", None)
    return packed is not None and not hasattr(packed, "reorder_and_combine_items")
