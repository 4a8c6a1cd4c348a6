"""The recorder that slime's HOOKS call. A process is the rollout manager or a training rank; each has its own side."""

from ...watching.recording import Recording
from .names import Names
from .rollout import RolloutSide
from .train import TrainSide


class SlimeRecorder:
    """The methods that HOOKS name, from both sides."""

    def __init__(self, recording: Recording, names: Names) -> None:
        self.rollouts, self.training = RolloutSide(recording, names), TrainSide(recording, names)
        self.sampled, self.call_ended = self.rollouts.sampled, self.rollouts.call_ended
        self.weights_checked = self.rollouts.weights_checked
        self.shard_made, self.box_made = self.rollouts.shard_made, self.rollouts.box_made
        self.shard_arrives = self.training.shard_arrives
        self.rollout_begins, self.rollout_ends = self.training.rollout_begins, self.training.rollout_ends
        self.step_begins, self.synced = self.training.step_begins, self.training.synced
        self.loss_begins, self.loss_ends = self.training.loss_begins, self.training.loss_ends
        self.scored, self.mask_used = self.training.scored, self.training.mask_used
        self.with_scalars = self.training.with_scalars
        self.old_scored = self.training.again.old_scored
