"""NeMo-RL's driver, or SingleControllerActor's process: rollout, old and the facts, once per step, and what workers are told.

Workers know neither the step nor which update of it they compute, so the loss function that they are sent says it; those
that fetch their data from the data plane are told the rest with the meta of what they fetch. See carried.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ...batch.tokenizer_copy import decoder
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from .carried import VERSION, stamped, with_facts
from .messages import ABSENT_OLD, ABSENT_REFERENCE, ABSENT_VERSIONS, FILTERED, VERSIONS
from .rows import batch_columns, sequence_ids, tensors
from .settings import is_filtered, settings, steps_done

_ALGORITHMS = "nemo_rl.algorithms"
_ESTIMATORS = ("GRPO", "GDPO", "ReinforcePlusPlus", "RawReward", "OPD")
_LOOPS = {
    "grpo.grpo_train": "begins", "grpo_sync.grpo_train_sync": "begins", "ppo.ppo_train": "begins",
    "grpo.async_grpo_train": "begins_async", "ppo.async_ppo_train": "begins_async",
}  # fmt: skip
_SAMPLERS = ("BaseSampler", "ReadyFirstSampler", "InOrderSampler")

HOOKS = (
    *(
        Hook(f"{_ALGORITHMS}.{module}", name, before=look, needed=False)
        for (module, name), look in ((loop.split("."), look) for loop, look in _LOOPS.items())
    ),
    *(
        Hook(f"{_ALGORITHMS}.advantage_estimator", f"{name}.compute_advantage", before="scored", needed=False)
        for name in (*(f"{each}AdvantageEstimator" for each in _ESTIMATORS), "GeneralizedAdvantageEstimator")
    ),
    *(
        Hook(f"{_ALGORITHMS}.async_utils.staleness_sampler", f"{name}.evict", before="controls", needed=False)
        for name in _SAMPLERS
    ),
    Hook(f"{_ALGORITHMS}.async_utils.replay_buffer", "ReplayBufferImpl.add", before="buffered", needed=False),
    Hook("nemo_rl.distributed.batched_data_dict", "BatchedDataDict.from_batches", before="sampled", needed=False),
    Hook("nemo_rl.models.policy.lm_policy", "Policy.train", before="trains", swap="told"),
    Hook("nemo_rl.models.policy.tq_policy", "TQPolicy.train_from_meta", swap="told_meta", needed=False),
    Hook("nemo_rl.models.policy.tq_policy", "TQPolicy.begin_train_step", swap="told", needed=False),
    Hook(
        "nemo_rl.models.policy.tq_policy", "TQPolicy.train_microbatches_from_meta", swap="told_meta", needed=False
    ),
    Hook("nemo_rl.models.policy.tq_policy", "TQPolicy.get_logprobs_from_meta", before="has_old", needed=False),
    Hook(
        "nemo_rl.models.policy.tq_policy", "TQPolicy.get_reference_policy_logprobs_from_meta", before="has_reference",
        needed=False,
    ),
    Hook(f"{_ALGORITHMS}.grpo", "refit_policy_generation", after="refitted", needed=False),
    Hook("nemo_rl.experience.rollout_manager", "RolloutManager.set_weight_version", after="refitted", needed=False),
    Hook("nemo_rl.utils.logger", "Logger.log_batched_dict_as_jsonl", before="dumped"),
    Hook("nemo_rl.utils.logger", "Logger.log_metrics", swap="with_scalars", needed=False),
)  # fmt: skip


class NemoDriver:
    """Looks at the calls that HOOKS names, in the process that runs the training loop. Steps are those of its logger."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._done, self._recorded, self._updates, self._groups = 0, 0, 0, 0
        self._is_async = False
        self._scores: dict[str, Any] = {}
        self._versions: list[int] = []
        self._has: set[str] = set()
        self._config: Mapping[str, Any] = {}
        self._synced: int | None = None
        self._events: list[tuple[str, int, str]] = []

    def begins(self, call: Call) -> None:
        """A training loop, with the state that it goes on from."""
        self._begins(call, "total_steps")

    def begins_async(self, call: Call) -> None:
        self._is_async = True
        self._begins(call, "current_step" if "grpo_save_state" in call.arguments else "total_steps")

    def controls(self, call: Call) -> None:
        """SingleController asks its sampler, before each choice, with the version that it trains."""
        done = int(call.arguments["current_train_weight"])
        if not self._is_async:
            self._is_async = True
            self._goes_on(done)
        elif done != self._done:
            self._ends(done)

    def scored(self, call: Call) -> None:
        """Rewards and prompts of the rows that are trained on next, in their order; prompts alike are one group, as upstream."""
        batch = call.arguments.get("repeated_batch", call.arguments.get("kwargs", {}).get("repeated_batch"))
        cut = None if batch is None else batch.get("truncated")
        prompts = call.arguments["prompt_ids"]
        kinds, groups = sys.modules["torch"].unique(prompts, dim=0, return_inverse=True)
        first, self._groups = self._groups, self._groups + len(kinds)  # a step may be scored in parts
        self._scores = {
            "group_ids": [f"{self._done + 1}-{first + group}" for group in groups.tolist()],
            "rewards": call.arguments["rewards"].tolist(),
            "finish_reasons": None if cut is None else ["truncated" if bool(each) else None for each in cut],
        }

    def buffered(self, call: Call) -> None:
        """In the replay buffer's process: the version stays with the group, through sampling and checkpoints."""
        setattr(call.arguments["trajectory"]["batch"], VERSION, int(call.arguments["weight_version"]))

    def sampled(self, call: Call) -> None:
        """Groups are put together for a step."""
        batches = call.arguments["batches"]
        found = [getattr(batch, VERSION, -1) for batch in batches]
        if found and -1 not in found:
            self._versions = [int(v) for batch, v in zip(batches, found, strict=True) for _ in range(batch.size)]

    def trains(self, call: Call) -> None:
        """The batch of a step, at its first update; further epochs come with the same."""
        data = call.arguments["data"]
        if self._is_policy_loss(call) and "generation_logprobs" in data and self._recorded <= self._done:
            self._recorded = self._done + 1
            self._record(data)

    def told(self, call: Call) -> dict[str, Any] | None:
        return self._loss_fn(call) if self._is_policy_loss(call) else None

    def told_meta(self, call: Call) -> dict[str, Any]:
        """Workers record what they fetch; here is only what is not among it."""
        self._settle()
        meta, step = call.arguments["meta"], self._done + 1
        self._recorded = step
        facts = self._facts(len(meta.sample_ids))
        if meta.tags and all("weight_version" in tag for tag in meta.tags):
            facts["rollout_versions"] = [int(tag["weight_version"]) for tag in meta.tags]
        names = [name for name, values in facts.items() if values is not None]
        rows = {key: {name: facts[name][i] for name in names} for i, key in enumerate(meta.sample_ids)}
        told = {"step": step, "old": "old" in self._has, "reference": "reference" in self._has, "rows": rows}
        self._say_what_is_absent(step, facts)
        loss_fn = self._loss_fn(call) if "loss_fn" in call.arguments else {}
        return {**loss_fn, "meta": with_facts(meta, told)}

    def has_old(self, call: Call) -> None:
        self._has.add("old")

    def has_reference(self, call: Call) -> None:
        self._has.add("reference")

    def refitted(self, call: Call) -> None:
        version = int(call.arguments.get("version", self._done + (self._recorded > self._done)))
        if version != self._synced:
            self._synced = version
            self._tell("weight_sync", version + 1, f"generation goes on with the weights after {version} steps")

    def dumped(self, call: Call) -> None:
        """The dump of a step. What has not come by in `train` (a frozen policy, a policy of one's own) is recorded from it."""
        found = re.fullmatch(r"train_data_step(\d+)\.jsonl", call.arguments["filename"])
        dump = call.arguments["to_log"]
        if found is None or "prev_logprobs" not in dump or "token_ids" not in dump:
            return
        step = int(found[1])
        if self._recorded < step:
            self._done, self._recorded = step - 1, step
            self._record(tensors(dump), rewards=dump.get("filtered_rewards", dump["rewards"]))
        self._ends(step)

    def with_scalars(self, call: Call) -> dict[str, Any] | None:
        metrics, step, prefix = call.arguments["metrics"], int(call.arguments["step"]), call.arguments["prefix"]
        if prefix != "train":
            return None
        if self._recorded > self._done:
            self._ends(step)
        else:  # told of a step that is about to be trained
            self._done = self._recorded = max(self._done, step - 1)
        scalars = self._recording.scalars(step, [f"{prefix}/{name}" for name in metrics])
        added = {name.removeprefix(f"{prefix}/"): value for name, value in scalars.items()}
        return {"metrics": {**metrics, **added}} if added else None

    def _record(self, data: Mapping[str, Any], **known: Any) -> None:
        step = self._done + 1
        has_old, reference = bool(data["prev_logprobs"].any()), data.get("reference_policy_logprobs")
        self._has |= {"old"} if has_old else set()
        self._has |= {"reference"} if reference is not None and bool(reference.any()) else set()
        self._settle()
        facts = {**self._facts(len(data["input_ids"])), **known}
        self._recording.log(
            step=step,
            trainer_version=step - 1,
            sequence_ids=sequence_ids(data),
            **batch_columns(data, has_old=has_old, has_reference="reference" in self._has),
            **facts,
        )
        self._say_what_is_absent(step, facts, is_reference_known=reference is not None)

    def _facts(self, rows: int) -> dict[str, Any]:
        """What has been seen on the way to a batch of so many rows; none of it if it was of another batch."""
        found = dict(self._scores) if len(self._scores.get("rewards", [])) == rows else {}
        versions: Sequence[int] | None = self._versions if len(self._versions) == rows else None
        if (chosen := self._recording.rollout_version) is not None:
            versions = [chosen(self)] * rows
        elif versions is None and not self._is_async:
            versions = [self._done] * rows
        return {**found, "rollout_versions": versions}

    def _say_what_is_absent(self, step: int, facts: Mapping[str, Any], *, is_reference_known: bool = True) -> None:
        say = self._recording.say_once
        if "old" not in self._has:
            say("no_old_logprobs", step, ABSENT_OLD)
        if is_reference_known and "reference" not in self._has:
            say("no_reference_logprobs", step, ABSENT_REFERENCE)
        if facts.get("rollout_versions") is None:
            say("no_versions", step, ABSENT_VERSIONS)
        if "old" in self._has and is_filtered(self._config):
            say("filtered_logprobs", step, FILTERED)

    def _is_policy_loss(self, call: Call) -> bool:
        return hasattr(call.arguments["loss_fn"], "force_on_policy_ratio") and not call.arguments.get(
            "eval_mode", False
        )

    def _loss_fn(self, call: Call) -> dict[str, Any]:
        """A copy that carries the step, and how many updates of it there have been."""
        loss_fn, data = call.arguments["loss_fn"], call.arguments.get("data")
        sent = stamped(loss_fn, self._done + 1, self._updates)
        size = (
            len(data["input_ids"]) if data is not None else len(getattr(call.arguments.get("meta"), "sample_ids", []))
        )
        batch_size = call.arguments.get("gbs") or call.target.cfg["train_global_batch_size"]
        self._updates += max(1, size // batch_size)
        return {"loss_fn": sent}

    def _begins(self, call: Call, counted: str) -> None:
        state = call.arguments.get("grpo_save_state") or call.arguments.get("ppo_save_state")
        self._config = self._recording.watch(lambda: settings(call.arguments["master_config"])) or {}
        self._goes_on(steps_done(state, counted))
        self._recording.describe(decode=decoder(call.arguments["tokenizer"]))

    def _goes_on(self, done: int) -> None:
        self._done = self._recorded = done
        if done:
            self._tell("resume", done + 1, f"training goes on after {done} steps")

    def _ends(self, step: int) -> None:
        self._done = self._recorded = step
        self._updates, self._groups, self._scores, self._versions = 0, 0, {}, []
        self._has.clear()
        if self._recording.has_collector:
            self._recording.collector.flush(0)

    def _settle(self) -> None:
        """Describes the run before its collector is made, then tells what has been kept for it."""
        if not self._recording.has_collector:
            source = VERSIONS["async" if self._is_async else "sync"]
            self._recording.describe(trainer="NeMo-RL", config=self._config, versions=source)
        while self._events:
            self._recording.event(*self._events.pop(0))

    def _tell(self, kind: str, step: int, note: str) -> None:
        self._events.append((kind, step, note))
        if self._recording.has_collector:
            self._settle()
