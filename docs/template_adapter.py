"""Records my_trainer: the functions to watch, and what to do at their calls."""

from ratioscope.collectors.watching.hooks import Call, Hook
from ratioscope.collectors.watching.recording import Recording

HOOKS = (
    Hook("my_trainer.loop", "Trainer.update", before="begin_step", after="end_step"),
    Hook("my_trainer.loss", "policy_loss", after="log"),
)


class recorder:
    """Looks at the calls. A failure in here is counted and reported once; training never sees it."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def begin_step(self, call: Call) -> None:
        trainer = call.target  # the object of a method; by name, with defaults: call.arguments
        self.recording.describe(trainer="my_trainer 1.0", config=trainer.config)
        self.step, self.minibatch = trainer.step, 0

    def log(self, call: Call) -> None:
        given = call.arguments
        self.recording.log(
            step=self.step,
            minibatch=self.minibatch,
            rollout_logprobs=given["sampled_with"],  # padded (B, T), ragged or packed; any two of the policies
            old_logprobs=given["old"],
            current_logprobs=given["current"],
            mask=given["mask"],
            sequence_ids=given["ids"],
        )
        self.minibatch += 1

    def end_step(self, call: Call) -> None:
        self.recording.collector.flush(0)  # hands the step to the writer, without waiting
