"""Watches four methods of one GRPOTrainer and logs each micro-batch, complete, when its loss has been computed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..hooks import MARK
from ..recording import Recording
from .trl_rows import Completions, Row, sampled_rows

ROWS = "ratioscope_rows"
NO_ROLLOUT = (
    "the trainer holds no rollout log-probs, so neither mismatch nor total is recorded; they come with GRPOConfig(use_vllm=True) "
    "or a rollout_func that returns them"
)
OLD_IS_CURRENT = (
    "TRL computes no old log-probs with these settings and uses the detached current ones; old is recorded as that"
)


Tensor = Any
"""A torch.Tensor. `Any`, because torch is no dependency."""
Inputs = Mapping[str, Any]
Trainer = Any
Method = Callable[..., Any]


class GrpoRecorder:
    """Watches four methods of one trainer and logs each micro-batch. It reads results and changes none of them."""

    def __init__(self, trainer: Trainer, recording: Recording) -> None:
        self._trainer, self._recording = trainer, recording
        self._rollout_version = recording.rollout_version or _loaded_version
        self._completions: Completions | None = None
        self._scores: _Scores | None = None
        self._is_in_loss = False
        self._sampled: Counter[int] = Counter()
        self._passes: Counter[tuple[int, str]] = Counter()
        self._loaded = getattr(trainer, "_last_loaded_step", None)

    def around_generate(self, method: Method) -> Method:
        def _generate(*arguments: Any, **named: Any) -> Any:
            result = method(*arguments, **named)
            self._recording.watch(lambda: self._generated(result))
            return result

        return _marked(_generate, method)

    def around_batch(self, method: Method) -> Method:
        def _generate_and_score_completions(inputs: Any, *arguments: Any, **named: Any) -> Any:
            self._completions = None
            batch = method(inputs, *arguments, **named)
            self._recording.watch(lambda: self._add_rows(inputs, batch))
            return batch

        return _marked(_generate_and_score_completions, method)

    def around_scores(self, method: Method) -> Method:
        def _get_per_token_logps_and_entropies(*arguments: Any, **named: Any) -> Any:
            result = method(*arguments, **named)
            if self._is_in_loss:
                self._recording.watch(lambda: self._keep_scores(result))
            return result

        return _marked(_get_per_token_logps_and_entropies, method)

    def around_loss(self, method: Method) -> Method:
        def _compute_loss(model: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
            self._is_in_loss, self._scores = True, None
            try:
                loss = method(model, inputs, *arguments, **named)
            finally:
                self._is_in_loss = False
            self._recording.watch(lambda: self._record(inputs))
            return loss

        return _marked(_compute_loss, method)

    def _generated(self, result: Any) -> None:
        self._completions = Completions(ids=result[1], sampled=result[2])

    def _keep_scores(self, result: Any) -> None:
        self._scores = _Scores(result[0].detach(), None if result[1] is None else result[1].detach())

    def _add_rows(self, examples: Any, batch: dict[str, Any]) -> None:
        completions, self._completions = self._completions, None
        if self._trainer.model.training:
            self._note_sync()
            version = self._trainer.state.global_step
            first = self._sampled[version]  # more than one batch may be sampled before the weights change
            loaded = self._rollout_version(self._trainer)
            batch[ROWS] = sampled_rows(self._trainer, examples, completions, first=first, loaded=loaded)
            self._sampled = Counter({version: first + len(examples)})

    def _record(self, inputs: Inputs) -> None:
        scores, self._scores = self._scores, None
        rows: list[Row] | None = inputs.get(ROWS)
        if rows is None or scores is None:  # evaluation, or a batch made before attach
            return
        hidden = [index for index, row in enumerate(rows) if row.is_hidden]
        if not hidden:
            self._log(rows, inputs, scores)
            return
        visible = [index for index, row in enumerate(rows) if not row.is_hidden]
        if visible:
            entropies = None if scores.entropies is None else scores.entropies[visible]
            self._log(
                [rows[i] for i in visible], _chosen(inputs, visible), _Scores(scores.logprobs[visible], entropies)
            )
        self._log_hidden([rows[i] for i in hidden], _chosen(inputs, hidden))

    def _log(self, rows: list[Row], inputs: Inputs, scores: _Scores) -> None:
        step = self._trainer.state.global_step + 1
        rollout, old = inputs.get("sampling_per_token_logps"), inputs.get("old_per_token_logps")
        if rollout is None:
            self._recording.say_once("no_rollout_logprobs", step, NO_ROLLOUT, logging.WARNING)
        if old is None:
            self._recording.say_once("old_is_current", step, OLD_IS_CURRENT, logging.INFO)
        mask = (
            inputs["completion_mask"] if "tool_mask" not in inputs else inputs["completion_mask"] * inputs["tool_mask"]
        )
        mask = mask.bool()
        self._recording.log(
            step=step,
            minibatch=self._pass(step, rows),
            rollout_logprobs=rollout,
            old_logprobs=scores.logprobs if old is None else old,
            current_logprobs=scores.logprobs,
            reference_logprobs=inputs.get("ref_per_token_logps"),
            entropy=scores.entropies,
            mask=mask,
            loss_mask=mask,
            advantages=inputs["advantages"],
            trainer_version=[step - 1 if old is None else row.version for row in rows],
            **_facts(rows, inputs),
        )

    def _log_hidden(self, rows: list[Row], inputs: Inputs) -> None:
        rollout = inputs.get("sampling_per_token_logps")
        if rollout is None:
            return
        step = self._trainer.state.global_step + 1
        self._recording.log(
            step=step,
            minibatch=self._pass(step, rows),
            rollout_logprobs=rollout,
            mask=[row.sampled or [1] * (row.length or 0) for row in rows],
            loss_mask=inputs["completion_mask"].bool(),
            advantages=inputs["advantages"],
            **_facts(rows, inputs),
        )

    def _pass(self, step: int, rows: list[Row]) -> int:
        """How often these rows have come by in this step before."""
        if not any(key[0] == step for key in self._passes):
            self._passes.clear()
        key = (step, rows[0].sequence_id)
        self._passes[key] += 1
        return self._passes[key] - 1

    def _note_sync(self) -> None:
        loaded = self._rollout_version(self._trainer) if hasattr(self._trainer, "_last_loaded_step") else None
        if loaded != self._loaded:
            self._loaded = loaded
            step = self._trainer.state.global_step + 1
            self._recording.event("weight_sync", step, f"the engine samples with the weights after {loaded} updates")


@dataclass(frozen=True)
class _Scores:
    logprobs: Tensor
    entropies: Tensor | None


def _facts(rows: list[Row], inputs: Inputs) -> dict[str, Any]:
    lengths = [row.length for row in rows]
    return {
        "token_ids": inputs["completion_ids"],
        "lengths": None if None in lengths else lengths,
        "sequence_ids": [row.sequence_id for row in rows],
        "group_ids": [row.group_id for row in rows],
        "generation_step": [row.step for row in rows],
        "rollout_versions": [row.rollout_version for row in rows],
        "replica": None if all(row.replica is None for row in rows) else [row.replica for row in rows],
        "rewards": [row.reward for row in rows],
        "finish_reasons": [row.finish_reason for row in rows],
        "prompt_texts": [row.prompt for row in rows],
        "extra": None if all(row.extra is None for row in rows) else [row.extra for row in rows],
    }


def _chosen(inputs: Inputs, index: list[int]) -> dict[str, Any]:
    """The rows of a batch; what is not per row is left out."""
    rows = len(inputs["completion_ids"])
    tensors = {name: value for name, value in inputs.items() if getattr(value, "ndim", 0) > 0 and len(value) == rows}
    return {name: value[index] for name, value in tensors.items()}


def _loaded_version(trainer: Trainer) -> int:
    return int(trainer._last_loaded_step if trainer.use_vllm else trainer.state.global_step)


def _marked(wrapper: Method, original: Method) -> Method:
    setattr(wrapper, MARK, original)
    return wrapper
