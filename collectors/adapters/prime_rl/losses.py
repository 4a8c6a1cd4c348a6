"""A micro-batch of prime-rl as its loss is given it, for trainers without a token exporter.

The loss has no ids of tokens, no step and no entropy. The data loader has handed out the micro-batch before. The model's output
is the dictionary into which the trainer puts entropy and log-probs, moved to their tokens, before it calls the loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ...foreign import Tensor

MicroBatch = Any


@dataclass(frozen=True)
class Trained:
    """A micro-batch after its forward pass."""

    step: int
    micro_step: int
    """Its place in the step."""
    micro_batch: MicroBatch
    """On the host."""
    sequence_lengths: Sequence[int]
    """Tokens of each packed sequence."""
    output: Mapping[str, Tensor]
    """`logprobs` and, if known, `entropy`, one value per token."""


@dataclass
class Losses:
    """The facts that are known when the loss is called."""

    has_exporter: bool = False
    """Whether the trainer gives its micro-batches to a token exporter. They are recorded there."""
    dims: Any = None
    """The trainer's ranks and its world."""
    _step: int = 0
    _batches: Sequence[MicroBatch] = ()
    """The micro-batches of the step."""
    _done: int = 0
    """Number of micro-batches whose loss was called."""
    _output: dict[str, Tensor] = field(default_factory=dict)
    """The newest output of the model, until its loss is called."""

    def begin(self, step: int) -> None:
        """The step whose batch comes next."""
        self._step = step - 1

    def receive(self, batches: Sequence[MicroBatch]) -> None:
        """The micro-batches of the next step."""
        self._step, self._batches, self._done = self._step + 1, batches, 0

    def forwarded(self, output: dict[str, Tensor]) -> None:
        """Keeps the model's output until the loss is called, as the trainer does."""
        if not self.has_exporter and self._done < len(self._batches):
            self._output = output

    def computed(self, arguments: Mapping[str, Any]) -> Trained | None:
        """The micro-batch that the loss was called with; None where it is not known, or recorded elsewhere."""
        output, self._output = self._output, {}
        if self.has_exporter or self.dims is None or self._done >= len(self._batches):
            return None
        micro_step, self._done = self._done, self._done + 1
        logprobs = [part.detach() for part in arguments["trainer_logprobs"]]
        named = {"logprobs": import_module("torch").cat(logprobs), "entropy": output.get("entropy")}
        return Trained(self._step, micro_step, self._batches[micro_step], [len(part) for part in logprobs], named)
