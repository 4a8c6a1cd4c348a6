"""GRPOTrainer and RLOOTrainer: the tensors that a trainer has when it computes a loss; its results do not change.

The recorder wraps methods of one trainer object, so methods of a user's subclass are included. Each original method is called
exactly once with exactly its arguments, and with `self_noise` the log-prob function once more for a few rows (again.py).

    _generate                             lengths and tool masks of the sampled completions, as plain lists
    _generate_and_score_completions       the wrapper adds a key with facts of each row to the batch; TRL shuffles and splits it
    _get_per_token_logps_and_entropies    current log-probs and entropies, during the loss
    get_off_policy_mask, get_high_entropy_mask    tokens and rows that the loss leaves out, by its settings
    _compute_loss                         one micro-batch with all columns, which is recorded here

The loss never reads the added key. Steps are those that TRL logs: global_step + 1 during the loss. minibatch is 0, because all
micro-batches of an optimizer step have the same weights; a row that comes a second time within a step gets 1. If TRL computes no
old log-probs, it uses the detached current ones as old, and so does the record. The trainer does not score rows that
`mask_truncated_completions` hides, so these rows have rollout log-probs only.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ratioscope.record import MASK_REASONS

from ...foreign import Tensor, Trainer
from ...watching.hooks import Call, Hook, install_on
from ...watching.patches import Patches
from ...watching.recording import Recording
from ..visits import Visits
from .columns import (
    OLD,
    REFERENCE,
    RlooScores,
    chosen,
    facts,
    hidden_turns,
    is_rloo,
    left,
    prompts,
    readings,
    reasons,
    rollout_of,
)
from .completion_forward import CompletionForward
from .foreign import other_sampler
from .rows import Completions, Row, sampled_rows

ROWS = "ratioscope_rows"
NO_ROLLOUT = (
    "the trainer has no rollout log-probs, so neither mismatch nor total is recorded; GRPOConfig(use_vllm=True) provides them, "
    "or a rollout_func that returns them"
)
NO_ROLLOUT_IN_RLOO = (
    "the trainer has no rollout log-probs, so neither mismatch nor total is recorded; RLOOConfig(use_vllm=True) provides them: "
    "its engine returns them, though RLOO itself drops them"
)
OLD_IS_CURRENT = (
    "the trainer computes no old log-probs with these settings and uses the detached current ones; the record has these "
    "as old"
)
USERS = "the rollout_version given to attach"
ENGINES = "the trainer's last weight sync to vLLM (_last_loaded_step)"
TRAINERS = "the trainer's step: it samples with its own weights"
ROWS_OWN = "rollout_version of each completion, where the rollout_func returns one; unknown elsewhere"
NO_VERSIONS = (
    "{} samples and does not tell with which weights, so lag is not recorded; a rollout_func can return rollout_version, a list "
    "with the number of updates of the weights for each completion, or attach(..., rollout_version=...) can supply it"
)

MAKING = (
    Hook("", "_generate", after="generated"),
    Hook("", "_generate_and_score_completions", before="batch_begins", after="batch_made"),
)
HOOKS = (
    *MAKING,
    Hook("", "_get_per_token_logps_and_entropies", after="scored"),
    Hook("", "_compute_loss", before="loss_begins", after="loss_ends", failed="loss_fails"),
    Hook("", "get_off_policy_mask", after="off_policy_masked", needed=False),
    Hook("", "get_high_entropy_mask", after="entropy_masked", needed=False),
)

Inputs = Mapping[str, Any]


@dataclass
class Scores:
    """The results of one call of the loss."""

    logprobs: Tensor = None
    """The policy's log-probs of the tokens, (B, T), nats."""
    entropies: Tensor = None
    """Its entropy at each token, (B, T), nats."""
    kept: dict[str, Tensor] = field(default_factory=dict)
    """Reason of a filter of the loss -> its mask, (B, 1) or (B, T), 0 for tokens or rows left out."""
    has_no_old: bool = False
    """True if the loss divides by the rollout policy, so that there is no old one."""

    def rows(self, index: list[int]) -> Scores:
        """The scores of these rows."""
        entropies = None if self.entropies is None else self.entropies[index]
        kept = {name: kept[index] for name, kept in self.kept.items()}
        return Scores(self.logprobs[index], entropies, kept, self.has_no_old)


class GrpoRecorder:
    """Watches methods of one trainer and logs each micro-batch. It reads results and changes none of them."""

    WRAPPED = tuple(hook.name for hook in HOOKS if hook.needed)

    def __init__(self, trainer: Trainer, recording: Recording) -> None:
        self._trainer, self._recording = trainer, recording
        self._others = None if recording.rollout_version else other_sampler(trainer)
        self._rollout_version = recording.rollout_version or (_unknown if self._others else _loaded_version)
        self._rloo = RlooScores(trainer) if is_rloo(trainer) else None
        self._again: CompletionForward | None = None
        self._completions: Completions | None = None
        self._scores: Scores | None = None
        self._sampled: Counter[int] = Counter()
        self._visits = Visits()
        self._loaded = getattr(trainer, "_last_loaded_step", None)
        own = ROWS_OWN if self._others else ENGINES if trainer.use_vllm else TRAINERS
        source = USERS if recording.rollout_version else own
        recording.describe(versions=source)

    def put_on(self, patches: Patches) -> None:
        """Wraps the trainer's methods."""
        if self._recording.options.get("self_noise"):
            method = self._trainer._get_per_token_logps_and_entropies
            self._again = CompletionForward(self._trainer, self._recording, method)
        install_on(self._trainer, HOOKS, self, self._recording, patches)
        if self._rloo is not None:
            self._rloo.put_on(patches, self._recording)

    def generated(self, call: Call) -> None:
        result = call.result
        self._completions = Completions(ids=result[1], sampled=None if self._rloo is not None else result[2])

    def batch_begins(self, call: Call) -> None:
        self._completions = None
        if self._rloo is not None:
            self._rloo.begin()

    def batch_made(self, call: Call) -> None:
        """Adds the facts of each row to the batch."""
        examples, batch = call.given[0], call.result
        completions, self._completions = self._completions, None
        if self._trainer.model.training:
            self._note_sync()
            version = self._trainer.state.global_step
            first = self._sampled[version]  # the trainer may sample several batches before the weights change
            loaded = self._rollout_version(self._trainer)
            rows = sampled_rows(self._trainer, examples, completions, first=first, loaded=loaded)
            if any(row.rollout_version is None for row in rows):
                self._recording.say_once("no_rollout_versions", version + 1, NO_VERSIONS.format(self._others))
            if self._again is not None:
                self._again.add_to(rows, batch, version + 1)
            batch[ROWS] = rows
            self._sampled = Counter({version: first + len(examples)})
        if self._rloo is not None:
            self._rloo.add_to(batch)

    def scored(self, call: Call) -> None:
        logprobs, entropies = call.result[:2]
        if self._scores is not None:
            self._scores.logprobs = logprobs.detach()
            self._scores.entropies = None if entropies is None else entropies.detach()
        elif self._rloo is not None:
            self._rloo.scored(logprobs)

    def off_policy_masked(self, call: Call) -> None:
        if self._scores is not None:
            self._scores.kept["off_policy"] = call.result

    def entropy_masked(self, call: Call) -> None:
        if self._scores is not None:
            self._scores.kept["other"] = call.result

    def loss_begins(self, call: Call) -> None:
        self._scores = Scores()

    def loss_fails(self, call: Call) -> None:
        self._scores = None

    def loss_ends(self, call: Call) -> None:
        scores, self._scores = self._scores, None
        if scores is not None:
            self.record(call.given[1], scores)

    def record(self, inputs: Inputs, scores: Scores) -> None:
        """Logs a micro-batch whose loss has been computed."""
        rows: list[Row] | None = inputs.get(ROWS)
        if rows is None or scores.logprobs is None:  # an evaluation, or a batch from before attach
            return
        hidden = [index for index, row in enumerate(rows) if row.is_hidden]
        if not hidden:
            self._log(rows, inputs, scores)
            return
        visible = [index for index, row in enumerate(rows) if not row.is_hidden]
        if visible:
            self._log([rows[i] for i in visible], chosen(inputs, visible), scores.rows(visible))
        self._log_hidden([rows[i] for i in hidden], chosen(inputs, hidden))

    def _log(self, rows: list[Row], inputs: Inputs, scores: Scores) -> None:
        step = self._trainer.state.global_step + 1
        rollout, old = rollout_of(inputs), inputs.get("old_per_token_logps", inputs.get(OLD))
        is_scored = old is not None
        if rollout is None:
            without = NO_ROLLOUT if self._rloo is None else NO_ROLLOUT_IN_RLOO
            self._recording.say_once("no_rollout_logprobs", step, without, logging.WARNING)
        if old is None and not scores.has_no_old:
            old = scores.logprobs
            self._recording.say_once("old_is_current", step, OLD_IS_CURRENT, logging.INFO)
        mask = inputs["completion_mask"].bool()
        if "tool_mask" in inputs:
            mask = mask & inputs["tool_mask"].bool()
        visit = self._visits.earlier(step, rows[0].sequence_id)
        self._recording.log(
            step=step,
            minibatch=visit,
            rollout_logprobs=rollout,
            old_logprobs=old,
            current_logprobs=scores.logprobs,
            reference_logprobs=inputs.get("ref_per_token_logps", inputs.get(REFERENCE)),
            entropy=scores.entropies,
            mask=mask,
            loss_mask=left(mask, inputs, scores.kept.values(), self._trainer),
            mask_reasons=reasons(mask, inputs, scores.kept, self._trainer),
            advantages=inputs["advantages"],
            trainer_version=[row.version if is_scored else step - 1 for row in rows],
            **facts(rows, inputs),
            **prompts(inputs, visit),
            **readings(rows, visit),
        )

    def _log_hidden(self, rows: list[Row], inputs: Inputs) -> None:
        rollout = rollout_of(inputs)
        if rollout is None:
            return
        step = self._trainer.state.global_step + 1
        visit = self._visits.earlier(step, rows[0].sequence_id)
        cut = MASK_REASONS.index("length")
        self._recording.log(
            step=step,
            minibatch=visit,
            rollout_logprobs=rollout,
            mask=[row.sampled or [1] * (row.length or 0) for row in rows],
            mask_reasons=[[cut * bool(one) for one in row.sampled or [1] * (row.length or 0)] for row in rows],
            loss_mask=inputs["completion_mask"].bool(),
            advantages=inputs["advantages"],
            **(facts(rows, inputs) | {"turns": hidden_turns(rows)} | prompts(inputs, visit)),
        )

    def _note_sync(self) -> None:
        synced = self._recording.rollout_version or _loaded_version
        loaded = synced(self._trainer) if hasattr(self._trainer, "_last_loaded_step") else None
        if loaded != self._loaded:
            self._loaded = loaded
            step = self._trainer.state.global_step + 1
            self._recording.event("weight_sync", step, f"the engine samples with the weights after {loaded} updates")


def _unknown(trainer: Trainer) -> None:
    """Nobody knows with which weights a function of the user's own samples."""


def _loaded_version(trainer: Trainer) -> int:
    return int(trainer._last_loaded_step if trainer.use_vllm else trainer.state.global_step)
