"""tinker-cookbook's RL loop: the client has rollout and current log-probs of every datum after an iteration's training.

`compute_full_batch_metrics_and_get_sampling_client` gets the iteration's data and the log-probs that forward_backward returned,
all on the host. The other hooked calls, in their order:

    do_train_step...(config, i_batch)       the iteration, whose number is logged as the step
    compute_sampling_client_metrics         the weights that sampled each group, if sampling runs ahead of training
    assemble_training_data                  the group and trajectory of each datum, which tinker-cookbook drops afterwards
    prepare_minibatch                       the data of a minibatch (assemble_training_data also runs for examples to print)
    _training_logprobs_from_fwd_bwd         results: one per update; with streaming one per minibatch of an update

There is no old policy: the losses use the ratio of current to rollout, on the server. Versions count iterations, as
sampling_client_step does; updates within an iteration (num_substeps) are minibatches. All lists of a datum begin with its second
token. Observation tokens have log-prob 0.0 and mask 0. A turn with a parse error has mask 0 too, but its own log-probs: it was
sampled, and is not in the loss.

It follows tinker_cookbook/rl/{train,metrics,data_processing}.py of tinker-cookbook 0.6.1 and of 9dfcc3a2 (2026-08-19).
"""

import logging
from dataclasses import dataclass, field, replace
from typing import Any

from ...adapter import installed
from ...batch.token_texts import decoder
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from .rows import Source, datum_rows

_TRAIN, _LOGGER = "tinker_cookbook.rl.train", "tinker_cookbook.utils.ml_log"
HOOKS = (
    Hook(_TRAIN, "do_train_step_and_get_sampling_client", before="iteration_begins"),
    Hook(_TRAIN, "do_train_step_streaming_and_get_sampling_client", before="streaming_begins", needed=False),
    Hook("tinker_cookbook.rl.metrics", "compute_sampling_client_metrics", before="groups_sampled", needed=False),
    Hook("tinker_cookbook.rl.data_processing", "assemble_training_data", after="assembled"),
    Hook(_TRAIN, "prepare_minibatch", after="prepared"),
    Hook(_TRAIN, "_training_logprobs_from_fwd_bwd", after="results_arrived", needed=False),
    Hook(_TRAIN, "compute_full_batch_metrics_and_get_sampling_client", before="trained"),
    Hook(_TRAIN, "save_checkpoint_and_get_sampling_client", after="synced", needed=False),
    Hook("tinker_cookbook.checkpoint_utils", "get_last_checkpoint", after="checkpoint_found", needed=False),
    Hook(_LOGGER, "MultiplexLogger.log_metrics", swap="with_scalars", needed=False),
)
NO_OLD = (
    "tinker-cookbook has no old policy: its losses use the ratio of current to rollout, so total is recorded; with one update "
    "per iteration (num_substeps=1, the default) total equals the mismatch"
)
NO_ROLLOUT = (
    "every rollout log-prob of tinker-cookbook is 0.0, a placeholder, so total is not recorded; a custom TokenCompleter must "
    "return the log-probs of its tokens (TokensWithLogprobs.maybe_logprobs)"
)
_SETTINGS = (
    "model_name", "lora_rank", "learning_rate", "loss_fn", "loss_fn_config", "num_substeps", "temperature", "max_tokens",
    "kl_penalty_coef", "compute_post_kl",
)  # fmt: skip


@dataclass
class _Iteration:
    """The iteration in training, as far as its calls have come."""

    is_streaming: bool = False
    """True if it trains on groups as they are sampled."""
    sources: list[Source | None] = field(default_factory=list)
    """The source of each datum, in the order of training."""
    groups: int = 0
    """Groups in the minibatches so far."""
    updates: list[int] = field(default_factory=list)
    """The update of each result so far."""
    update: int = 0
    """The current update."""
    has_results: bool = False
    """Whether the current update has results. If so, the next minibatch belongs to the next update."""


class TinkerRecorder:
    """Watches one training loop."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._config: Any = None
        self._tokenizer: Any = None
        self._resumed: int | None = None
        self._assembled: tuple[Any, list[Source]] | None = None
        self._sampled_with: dict[int, Any] = {}
        self._now = _Iteration()

    def iteration_begins(self, call: Call) -> None:
        self._begin(call, _Iteration())

    def streaming_begins(self, call: Call) -> None:
        self._begin(call, _Iteration(is_streaming=True))

    def groups_sampled(self, call: Call) -> None:
        wrapped = call.arguments["wrapped_trajectory_groups"]
        # the references keep ids from being reused
        self._sampled_with = {id(one.trajectory_group): one for one in wrapped}

    def assembled(self, call: Call) -> None:
        groups = call.arguments["trajectory_groups_P"]
        data, metadata = call.result
        self._assembled = data, [Source(groups[m["group_idx"]], m["group_idx"], m["traj_idx"]) for m in metadata]

    def prepared(self, call: Call) -> None:
        now, data = self._now, call.result[0]
        if now.has_results:
            now.update, now.has_results = now.update + 1, False
        if self._assembled is not None and self._assembled[0] is data:
            now.sources += [
                replace(source, group_index=now.groups + source.group_index) for source in self._assembled[1]
            ]
        now.groups += len(call.arguments["trajectory_groups_P"])
        self._assembled = None

    def results_arrived(self, call: Call) -> None:
        now = self._now
        now.updates += [now.update] * len(call.result)
        if now.is_streaming:
            now.has_results = True
        else:
            now.update += 1

    def trained(self, call: Call) -> None:
        step = int(call.arguments["i_batch"]) - 1  # the argument is the next iteration's number, for the checkpoint
        data, logprobs, now = call.arguments["data_D"], call.arguments["training_logprobs_D"], self._now
        self._now = _Iteration()
        sources = now.sources if len(now.sources) == len(data) else [None] * len(data)
        updates = now.updates if len(now.updates) == len(data) else [0] * len(data)
        self._describe()
        self._recording.say_once("no_old_logprobs", step, NO_OLD)
        trained = zip(data, logprobs, sources, strict=True)
        rows: list[dict[str, Any]] = list(datum_rows(step, trained, lambda source: self._rollout_version(step, source)))
        if not any(row["rollout_logprobs"].any() for row in rows):
            self._recording.say_once("no_rollout_logprobs", step, NO_ROLLOUT, logging.WARNING)
            for row in rows:
                row["rollout_logprobs"] = None
        for update in sorted(set(updates)):
            self._log(step, update, [row for row in rows if updates[row["index"]] == update])
        self._sampled_with = {}

    def synced(self, call: Call) -> None:
        if self._recording.has_collector:
            step = int(call.arguments["i_batch"])
            self._recording.event(
                "weight_sync", step, f"a sampling client with the weights after iteration {step - 1} was made"
            )

    def checkpoint_found(self, call: Call) -> None:
        self._resumed = None if call.result is None else int(getattr(call.result, "batch", None) or 0)

    def with_scalars(self, call: Call) -> dict[str, Any] | None:
        step, metrics = call.arguments.get("step"), call.arguments["metrics"]
        if step is None or not self._recording.has_collector:
            return None
        self._recording.collector.flush(0)
        added = self._recording.scalars(int(step), metrics)
        return {"metrics": {**metrics, **added}} if added else None

    def _begin(self, call: Call, now: _Iteration) -> None:
        self._now = now
        self._config, self._tokenizer = call.arguments["config"], call.arguments["tokenizer"]

    def _describe(self) -> None:
        if self._recording.has_collector:
            return
        settings = {name: getattr(self._config, name) for name in _SETTINGS if hasattr(self._config, name)}
        self._recording.describe(
            trainer=installed("tinker-cookbook"),
            config=settings | {"async_config": getattr(self._config, "async_config", None)},
            decode=None if self._config is None or self._tokenizer is None else decoder(self._tokenizer),
            versions="sampling_client_step, in iterations; synchronous training samples with the weights that it trains",
        )
        if self._resumed:
            self._recording.event("resume", self._resumed, f"training goes on with iteration {self._resumed}")

    def _rollout_version(self, step: int, source: Source | None) -> int | None:
        if (version_of := self._recording.rollout_version) is not None:
            return version_of(self._config)
        wrapped = None if source is None else self._sampled_with.get(id(source.group))
        if wrapped is not None:
            return int(wrapped.sampling_client_step)
        is_synchronous = self._config is not None and getattr(self._config, "async_config", None) is None
        return step if is_synchronous else None

    def _log(self, step: int, update: int, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        columns = {name: [row.get(name) for row in rows] for name in rows[0] if name != "index"}
        present = {name: values for name, values in columns.items() if any(value is not None for value in values)}
        self._recording.log(step=step, minibatch=update, **present)


recorder = TinkerRecorder
