"""The Fireworks cookbook (fw-ai/cookbook at 76821fa1, 2026-08-19): its client-side losses, in the user's own process.

A recipe makes a closure with rollout, raw, old and reference log-probs. The SDK calls the closure with the data and current
log-probs. The adapter watches the factories and returns the same closure with a recording call after it: one row per datum,
with all columns. A logged step has one optimizer step, and all its chunks use the same weights, so minibatch is 0.

    training/utils/rl/grpo.py and seven more      make_..._loss_fn: the closure
    training/utils/rl/score_centering.py          both sides at the sampler's likeliest tokens; not run, see centering.py
    training/utils/rl/rollout/types.py            rollout_to_prompt_group: reward and finish reason of each datum, its group
    training/utils/rl/losses.py                   combine_prompt_groups: groups that a recipe made itself (igpo_loop)
    training/utils/rl/async_rl/coordinator.py     run_blocking: the chunk in training, with the versions that sampled it
    training/utils/client.py, fireworks-ai's SDK  optim_step, hotload_sampler_snapshot: updates and weight syncs to count
    training/utils/checkpoints.py                 resume: the step to count from

Traps. `anchor_logp="rollout"` passes rollout's lists as old, so old is not recorded then. The synchronous recipe does not expose
its step, so the adapter counts steps and corrects its count by the arguments of `log_metrics`. A user's recipe that imported a
factory by name before `attach` calls the unwatched factory; `ratioscope run` installs the hooks before any import.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from ...batch.token_texts import decoder
from ...watching.hooks import Call, Hook, marked
from ...watching.recording import Recording
from .centering import ANOTHER, NO_GROUPS, NO_OLD, centered, settings_of, topk
from .facts import Facts, FactsByDatum
from .rows import Given, Response, columns, given, is_short, raw_logprobs, responses, sampled

_RL = "training.utils.rl"
_SDK = "fireworks.training.sdk.client"
LOSSES = {
    "grpo": "grpo", "gspo": "gspo", "dapo": "dapo", "cispo": "cispo", "dro": "dro", "is_loss": "is",
    "reinforce": "reinforce", "igpo": "igpo", "score_centering": "score_centering",
}  # fmt: skip
"""module -> the middle of its factory's name, make_<...>_loss_fn."""

HOOKS = (
    *(
        Hook(f"{_RL}.{module}", f"make_{loss}_loss_fn", replace="watched", needed=loss == "grpo")
        for module, loss in LOSSES.items()
    ),
    Hook(f"{_RL}.score_centering", "build_score_centering_datums", after="expanded", needed=False),
    Hook(f"{_RL}.rollout.types", "rollout_to_prompt_group", after="packed", needed=False),
    Hook(f"{_RL}.losses", "combine_prompt_groups", before="combined", needed=False),
    Hook(f"{_RL}.async_rl.coordinator", "AsyncRLCoordinator.run_blocking", before="operates", needed=False),
    Hook(f"{_RL}.async_rl.coordinator", "AsyncRLCoordinator.publish", after="published", needed=False),
    Hook("training.utils.client", "ReconnectableClient.optim_step", after="updated", needed=False),
    Hook(_SDK, "FiretitanTrainingClient.optim_step", after="updated", needed=False),
    Hook(_SDK, "FiretitanServiceClient.hotload_sampler_snapshot", after="synced", needed=False),
    Hook("training.utils.checkpoints", "TrainingCheckpoints.resume", after="resumed", needed=False),
    Hook("training.utils.tokenizers", "load_tokenizer", after="has_tokenizer", needed=False),
    Hook("training.utils.logging", "log_metrics", swap="with_scalars", needed=False),
)

OLD_IS_ROLLOUT = (
    "anchor_logp='rollout' skips the old-policy forward and uses rollout as old: old is not recorded, total is; "
    "Config(anchor_logp='old_policy') records old"
)
OLD_IS_CURRENT = (
    "with old_policy_logprobs=None the loss uses the detached current log-probs as old: old is not recorded, total is; pass "
    "the log-probs of policy.forward(data, 'cross_entropy') to record old"
)
OLD_IS_SHORT = "lists of old_policy_logprobs end early; the loss reads 0.0 there, and the record has NaN"
NO_VERSIONS = (
    "the version that sampled is unknown: no submit versions of AsyncRLCoordinator and no call of "
    "FiretitanServiceClient.hotload_sampler_snapshot came before sampling; attach earlier, or pass rollout_version"
)


class FireworksRecorder:
    """Watches the calls in HOOKS. It counts updates, from the step that `resume` returns."""

    def __init__(self, recording: Recording) -> None:
        self._recording, self._facts = recording, FactsByDatum()
        self._updates, self._has_trained = 0, False
        self._chunk: Any = None
        self._published: int | None = None
        self._synced: int | None = None
        self._events: list[tuple[str, int, str]] = []

    def watched(self, call: Call) -> Callable[..., Any]:
        """The closure, with a recording of its arguments after each call."""
        closure, arguments = call.result, call.arguments

        @wraps(closure)
        def loss_fn(data: Any, logprobs_list: Any) -> Any:
            result = closure(data, logprobs_list)
            self._recording.watch(lambda: self._look(closure, data, logprobs_list, arguments))
            return result

        marked(loss_fn, closure)
        return loss_fn

    def expanded(self, call: Call) -> None:
        self._facts.follow(call.result[0], call.arguments["data"])

    def packed(self, call: Call) -> None:
        if call.result is not None:
            self._facts.add_runs(call.result, call.arguments["rollout"].runs, self._synced)

    def combined(self, call: Call) -> None:
        self._facts.add_groups(call.arguments["groups"], self._synced)

    def operates(self, call: Call) -> None:
        """Notes the chunk when the asynchronous recipe's trainer begins to train on it; other operations have no chunk."""
        self._chunk = next((value for value in call.arguments["args"] if hasattr(value, "submit_versions")), None)
        if self._chunk is not None:
            self._updates = self._published = int(call.target.published_version)
            self._facts.add_groups(self._chunk.groups, None)
            self._facts.add_versions(self._chunk.groups, self._chunk.submit_versions)

    def published(self, call: Call) -> None:
        self._updates = self._published = int(call.arguments["batch"].batch_id)
        self._sync(self._updates)

    def updated(self, call: Call) -> None:
        """Counts an optimizer step. The recipe's client calls the SDK's client, so each step comes twice and counts once."""
        if self._has_trained:
            self._updates, self._has_trained = self._step(), False
            self._recording.collector.flush(0)

    def synced(self, call: Call) -> None:
        self._sync(self._updates)

    def resumed(self, call: Call) -> None:
        if call.result is not None and call.result.step:
            self._updates = int(call.result.step)
            self._tell("resume", self._updates + 1, f"training goes on after {self._updates} steps")

    def has_tokenizer(self, call: Call) -> None:
        self._recording.describe(decode=decoder(call.result))

    def with_scalars(self, call: Call) -> dict[str, Any] | None:
        metrics, step = call.arguments["metrics"], int(call.arguments["step"])
        if "train/step" not in metrics:  # the asynchronous producer's metrics count another axis
            return None
        if not self._has_trained:
            self._updates = int(metrics["train/step"])
        scalars = self._recording.scalars(step, metrics)
        return {"metrics": {**metrics, **scalars}} if scalars else None

    def _look(self, loss: Any, data: Sequence[Any], logprobs: Sequence[Any], arguments: Mapping[str, Any]) -> None:
        self._has_trained = True
        if "sampler_topk_logprobs" not in arguments:
            closure = given(arguments)
            self._record(closure, data, logprobs, _config(loss, closure, arguments))
        elif (known := centered(arguments, [self._facts.of(datum) for datum in data])) is not None:
            self._record(known, data, logprobs, settings_of(arguments))
        else:
            self._describe(settings_of(arguments))
            self._recording.say_once("no_groups", self._step(), NO_GROUPS, logging.WARNING)

    def _record(self, closure: Given, data: Sequence[Any], logprobs: Sequence[Any], config: Mapping[str, Any]) -> None:
        current = [sampled(datum, values) for datum, values in zip(data, logprobs, strict=False)]
        rows = responses(closure, data, current)
        if not rows:
            return
        self._describe(config)
        step = self._step()
        facts = [self._facts.of(data[row.index]) for row in rows]
        own = columns(closure, rows, data, current)
        heads = topk(closure, data, logprobs, rows, own)
        self._recording.log(
            step=step,
            minibatch=0,
            trainer_version=step - 1 if self._published is None else self._published,
            **own,
            **heads,
            **self._known(step, facts),
            extra=_extra(closure, rows, facts),
        )
        while self._events:
            self._recording.event(*self._events.pop(0))
        self._say(closure, rows, facts)
        if closure.heads is not None and not heads:
            self._recording.say_once("another_distribution", step, ANOTHER, logging.WARNING)

    def _say(self, closure: Given, rows: Sequence[Response], facts: Sequence[Facts | None]) -> None:
        say, step = self._recording.say_once, self._step()
        if closure.heads is not None:
            say("no_old", step, NO_OLD)
        elif closure.old is None:
            say("old_is_current", step, OLD_IS_CURRENT)
        elif closure.is_anchored_at_rollout:
            say("old_is_rollout", step, OLD_IS_ROLLOUT)
        elif is_short(closure, rows):
            say("old_is_short", step, OLD_IS_SHORT, logging.WARNING)
        if self._recording.rollout_version is None and any(f is None or f.version is None for f in facts):
            say("no_versions", step, NO_VERSIONS)

    def _known(self, step: int, facts: Sequence[Facts | None]) -> dict[str, Any]:
        """The facts of the rows by argument of `log`. Without facts of every datum, the collector makes the sequence ids."""
        groups, chosen = self._facts.group_ids(step, facts), self._recording.rollout_version
        known: dict[str, list[Any]] = {
            "group_ids": [*groups],
            "rewards": [None if f is None else f.reward for f in facts],
            "finish_reasons": [None if f is None else f.finish_reason for f in facts],
            "rollout_versions": [(None if f is None else f.version) if chosen is None else chosen(self) for f in facts],
        }
        if None not in facts:
            known["sequence_ids"] = [f"{group}-{f.index}" for group, f in zip(groups, facts, strict=True) if f]
        return {name: values for name, values in known.items() if any(value is not None for value in values)}

    def _describe(self, config: Mapping[str, Any]) -> None:
        if not self._recording.has_collector:
            turns = "updates before the last hot load; the recipe samples and trains in turns"
            source = turns if self._chunk is None else "submit versions: the version of a prompt group's oldest sample"
            self._recording.describe(trainer="Fireworks cookbook", config=config, versions=source)

    def _step(self) -> int:
        return self._updates + 1 if self._chunk is None else int(self._chunk.batch_id)

    def _sync(self, version: int) -> None:
        if version != self._synced:
            self._synced = version
            self._tell("weight_sync", version + 1, f"the engine samples with the weights after {version} updates")

    def _tell(self, kind: str, step: int, note: str) -> None:
        """Records an event, or keeps it until there is a collector, because a run is described before its collector exists."""
        if self._recording.has_collector:
            self._recording.event(kind, step, note)
        else:
            self._events.append((kind, step, note))


recorder = FireworksRecorder


def _extra(
    closure: Given, rows: Sequence[Response], facts: Sequence[Facts | None]
) -> list[dict[str, Any] | None] | None:
    extras = []
    for row, f in zip(rows, facts, strict=True):
        values = {"raw_rollout_logprobs": raw_logprobs(closure, row), "run_id": None if f is None else f.run_id}
        extras.append({name: value for name, value in values.items() if value is not None} or None)
    return extras if any(extras) else None


def _config(loss: Any, closure: Given, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the loss, in the form of the dialect's configuration."""
    names = ("kl_beta", "eps_clip", "eps_clip_high", "ratio_log_cap")
    settings = {name: arguments[name] for name in names if arguments.get(name) is not None}
    if (tis := arguments.get("tis_config")) is not None:
        settings["tis"] = {name: getattr(tis, name, None) for name in ("cap", "level", "icepop_threshold")}
    anchor = "rollout" if closure.is_anchored_at_rollout else "old_policy"
    return {**settings, "loss": LOSSES.get(loss.__module__.rpartition(".")[2], "grpo"), "anchor_logp": anchor}
