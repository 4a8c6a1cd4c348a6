"""A SkyRL trainer's configuration: the part that run.json keeps, and facts about the records that follow from it."""

from __future__ import annotations

import sys
from typing import Any

from ratioscope.kept_settings import kept

from ...foreign import Trainer
from . import messages as words


def described(trainer: Trainer) -> dict[str, Any]:
    """SkyRL's configuration in its own shape, so that its users find `trainer.algorithm` in its usual place."""
    return {"trainer_class": f"{type(trainer).__module__}.{type(trainer).__qualname__}", **kept(trainer.cfg).settings}


def versions_of(trainer: Trainer) -> str:
    """The description of versions for run.json."""
    return words.ASYNC_VERSIONS if trainer.cfg.trainer.fully_async.enabled else words.SYNC_VERSIONS


def appends_ends(trainer: Trainer) -> bool:
    """True if SkyRL appends an end-of-sequence token with log-prob 0 to every sequence, even if the engine sampled one."""
    generator = trainer.cfg.generator
    return is_gym_generator(trainer.generator) and not generator.use_conversation_multi_turn and not generator.batched


def is_gym_generator(generator: Any) -> bool:
    """True if the generator is SkyRL's own or a subclass of it."""
    return any(base.__name__ == "SkyRLGymGenerator" for base in type(generator).__mro__)


def samples_with_the_engine(trainer: Trainer) -> bool:
    """True if the generator is SkyRL's own, or holds the engine that SkyRL syncs. Any other may sample with what it likes."""
    engine = getattr(trainer, "inference_engine_client", None)
    generator = getattr(trainer, "generator", None)
    held = getattr(generator, "__dict__", {}).values()
    return is_gym_generator(generator) or (engine is not None and any(value is engine for value in held))


def is_out_of_order(trainer: Trainer) -> bool:
    """True if workers return current in the order of packed micro-batches, as before 0.4.0, and not in the batch's order."""
    if trainer.cfg.trainer.max_tokens_per_microbatch <= 0:
        return False
    workers = sys.modules.get("skyrl.backends.skyrl_train.workers.worker_utils")
    packed = getattr(workers, "TokenBasedBatchIterator", None)
    return packed is not None and not hasattr(packed, "reorder_and_combine_items")
