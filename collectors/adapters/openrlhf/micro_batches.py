"""The micro-batches of an actor of OpenRLHF or MOLT: their samples, known in the replay buffer, and what their loss is given."""

from dataclasses import dataclass, field
from typing import Any

from ...watching.hooks import Call
from ...watching.recording import Recording
from ..visits import FirstVisits
from .rows import Experience, Sample


@dataclass
class Step:
    """One call of the method that trains on the replay buffer."""

    number: int
    """The step."""
    samples: dict[int, Sample]
    """The samples of the replay buffer, by identity of the buffer's item."""
    first_micro_step: int = 0
    """Micro-steps before this call."""
    updates: int = 0
    """Updates of the weights in this call so far."""
    batches: dict[int, tuple[Experience, list[Sample]]] = field(default_factory=dict)
    """Micro-batches that are not trained on yet and their samples, by identity of the micro-batch."""


@dataclass
class Batch:
    """The micro-batch in training."""

    experience: Experience
    samples: list[Sample] | None
    """None if not known."""
    given: dict[str, Any] = field(default_factory=dict)
    """Arguments of the loss; empty before its call."""
    entropy: Any = None


class MicroBatches:
    """Follows the samples of `step` to the loss of their micro-batch. step: None on ranks that do not record."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._visits = FirstVisits()
        self.step: Step | None = None
        self.batch: Batch | None = None

    def batch_made(self, call: Call) -> None:
        if self.step is not None:
            found = [self.step.samples.get(id(item)) for item in call.arguments["items"]]
            known = [sample for sample in found if sample is not None]
            if len(known) == len(found):  # the reference keeps the id from being reused
                self.step.batches[id(call.result)] = (call.result, known)

    def batch_begins(self, call: Call) -> None:
        if self.step is not None:
            experience = call.arguments["experience"]
            _, samples = self.step.batches.pop(id(experience), (None, None))
            self.batch = Batch(experience, samples)

    def loss_begins(self, call: Call) -> None:
        if self.batch is not None:
            self.batch.given = dict(call.arguments)

    def taken(self) -> tuple[Step, Batch] | None:
        """The step, and its micro-batch whose training has ended; None on ranks that do not record."""
        batch, self.batch = self.batch, None
        return None if batch is None or self.step is None else (self.step, batch)

    def is_first_visit(self, step: Step, batch: Batch) -> bool:
        """True if the step has not trained on these samples before, or if they are not known."""
        ids = None if batch.samples is None else [sample.sequence_id for sample in batch.samples]
        return self._visits.is_one(step.number, ids)

    def with_scalars(self, call: Call) -> dict[str, Any] | None:
        """The status of the step with our scalars added; the driver logs the status."""
        step, self.step = self.step, None
        if step is None or not self._recording.has_collector:
            return None
        self._recording.collector.flush(0)
        added = self._recording.scalars(step.number, call.result)
        return {**call.result, **added} if added else None
