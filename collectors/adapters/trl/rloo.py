"""RLOOTrainer: per-token log-probs of a batch, which the trainer reduces to a sum per sequence or drops.

Its old pass, and with `beta` its reference pass, use the same method as GRPOTrainer's passes; the loss gets only their sums. Its
vLLM returns log-probs of the sampled tokens, which the trainer drops, so RLOO itself does not measure the mismatch.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...foreign import Tensor, Trainer
from ...watching.hooks import marked
from ...watching.patches import Patches
from ...watching.recording import Recording

OLD, REFERENCE, ROLLOUT = "ratioscope_old", "ratioscope_reference", "ratioscope_rollout"
"""Keys that are added to the batch, each (B, T). TRL shuffles and splits them with its own keys, and never reads them."""


def is_rloo(trainer: Trainer) -> bool:
    """Whether the trainer is an RLOOTrainer, a subclass of it, or one that unsloth generated from it."""
    return any(base.__name__ in ("RLOOTrainer", "UnslothRLOOTrainer") for base in type(trainer).__mro__)


class RlooScores:
    """Per-token log-probs of the batch that the trainer is making."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._scored: list[Tensor] = []
        self._engines: Sequence[Sequence[Sequence[float | None]]] | None = None

    def put_on(self, patches: Patches, recording: Recording) -> None:
        """Watches the engine, if the trainer has one that returns log-probs."""
        engine = getattr(self._trainer, "vllm_generation", None)
        if engine is None or not hasattr(engine, "generate"):
            return

        def around(method: Callable[..., Any]) -> Callable[..., Any]:
            def generate(*arguments: Any, **named: Any) -> Any:
                result = method(*arguments, **named)
                recording.watch(lambda: self._sampled(result))
                return result

            marked(generate, method)
            return generate

        patches.put(engine, "generate", around)

    def begin(self) -> None:
        """The trainer is about to make a batch. Log-probs of an earlier batch that failed are dropped."""
        self._scored, self._engines = [], None

    def scored(self, logprobs: Tensor) -> None:
        """Keeps the log-probs of a pass. The old pass comes first, then the reference pass."""
        self._scored.append(logprobs.detach())

    def add_to(self, batch: dict[str, Any]) -> None:
        """Adds the kept log-probs to their batch."""
        scored, self._scored = self._scored, []
        engines, self._engines = self._engines, None
        if self._trainer.model.training:
            batch.update(zip((OLD, REFERENCE), scored, strict=False))
            if engines is not None:
                values = np.full(batch["completion_ids"].shape, np.nan, np.float32)  # NaN behind the end of a row
                for row, tokens in enumerate(engines):
                    values[row, : len(tokens)] = [np.nan if token[0] is None else token[0] for token in tokens]
                batch[ROLLOUT] = sys.modules["torch"].from_numpy(values)

    def _sampled(self, result: Any) -> None:
        self._engines = result[2]
