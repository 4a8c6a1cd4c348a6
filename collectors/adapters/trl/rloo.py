"""RLOOTrainer: what it has of each token and keeps as a sum per sequence, or throws away, while a batch is being sampled.

Its old pass, and with `beta` its reference pass, go through the same method as GRPOTrainer's; only their sums reach the loss. Its
vLLM tells log-probs of the sampled tokens, which it ignores: RLOO never sees how far the engine is from the trainer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...watching.hooks import MARK, Patches
from ...watching.recording import Recording

OLD, REFERENCE, ROLLOUT = "ratioscope_old", "ratioscope_reference", "ratioscope_rollout"
"""Keys added to the batch, each (B, T): TRL shuffles and splits them along with its own, and reads none of them."""

Tensor = Any
Trainer = Any


def is_rloo(trainer: Trainer) -> bool:
    return any(base.__name__ == "RLOOTrainer" for base in type(trainer).__mro__)


class RlooScores:
    """Per-token log-probs of the batch that is being made."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._scored: list[Tensor] = []
        self._engines: Sequence[Sequence[Sequence[float | None]]] | None = None

    def put_on(self, patches: Patches, recording: Recording) -> None:
        """Watches the engine, where there is one that tells log-probs."""
        engine = getattr(self._trainer, "vllm_generation", None)
        if engine is None or not hasattr(engine, "generate"):
            return

        def around(method: Callable[..., Any]) -> Callable[..., Any]:
            def generate(*arguments: Any, **named: Any) -> Any:
                result = method(*arguments, **named)
                recording.watch(lambda: self._sampled(result))
                return result

            setattr(generate, MARK, method)
            return generate

        patches.put(engine, "generate", around)

    def begin(self) -> None:
        """A batch is about to be made: what is left of one that came to nothing is let go of."""
        self._scored, self._engines = [], None

    def scored(self, logprobs: Tensor) -> None:
        """The old pass comes first, then the reference pass."""
        self._scored.append(logprobs.detach())

    def add_to(self, batch: dict[str, Any]) -> None:
        """Puts what was collected into the batch it belongs to."""
        scored, self._scored = self._scored, []
        engines, self._engines = self._engines, None
        if self._trainer.model.training:
            batch.update(zip((OLD, REFERENCE), scored, strict=False))
            if engines is not None:
                batch[ROLLOUT] = _padded(engines, batch["completion_ids"].shape)

    def _sampled(self, result: Any) -> None:
        self._engines = result[2]


def _padded(engines: Sequence[Sequence[Sequence[float | None]]], shape: tuple[int, int]) -> Tensor:
    """(B, T) of the sampled tokens' log-probs, the first of each token's; NaN where the engine had none, and behind the end."""
    values = np.full(shape, np.nan, np.float32)
    for row, tokens in zip(values, engines, strict=True):
        row[: len(tokens)] = [np.nan if token[0] is None else token[0] for token in tokens]
    return sys.modules["torch"].from_numpy(values)
