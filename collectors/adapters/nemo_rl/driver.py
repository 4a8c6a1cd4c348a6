"""NeMo-RL's driver, or SingleControllerActor's process: rollout, old and the facts, once per step, and facts for workers.

Workers do not know the step, nor which of its updates they compute. The driver sends both with the loss function. Workers that
fetch their data from the data plane get the other facts with the meta of these data. See tags.py.
NeMo-RL's settings that run.json keeps, and facts that follow from them.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...batch.token_texts import decoder
from ...self_noise import UNSCORED
from ...watching.hooks import Call, Hook
from ...watching.recording import Recording
from .rows import (
    ABSENT_OLD,
    ABSENT_REFERENCE,
    ABSENT_VERSIONS,
    FILTERED,
    VERSIONS,
    batch_columns,
    sequence_ids,
    tensors,
)
from .second_forward import IN_THE_PLANE, NemoAgain
from .tags import VERSION, stamped, with_facts

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
    Hook("nemo_rl.models.policy.lm_policy", "Policy.get_logprobs", after="old_scored", needed=False),
    Hook("nemo_rl.models.policy.lm_policy", "Policy.train", before="trains", swap="with_step"),
    Hook("nemo_rl.models.policy.tq_policy", "TQPolicy.train_from_meta", swap="with_row_facts", needed=False),
    Hook("nemo_rl.models.policy.tq_policy", "TQPolicy.begin_train_step", swap="with_step", needed=False),
    Hook(
        "nemo_rl.models.policy.tq_policy", "TQPolicy.train_microbatches_from_meta", swap="with_row_facts",
        needed=False,
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

_SAMPLING = ("temperature", "top_p", "top_k", "max_new_tokens", "backend")
_ENGINE = ("precision", "kv_cache_dtype", "logprobs_mode", "enable_prefix_caching")
_POLICY = ("model_name", "precision", "router_replay")


class NemoDriver:
    """Watches the calls in HOOKS, in the process of the training loop. Steps are those of its logger."""

    def __init__(self, recording: Recording) -> None:
        self._recording, self._again = recording, NemoAgain(recording)
        self._done, self._recorded, self._updates, self._groups = 0, 0, 0, 0
        self._is_async = False
        self._scores: dict[str, Any] = {}
        self._versions: list[int] = []
        self._has: set[str] = set()
        self._config: Mapping[str, Any] = {}
        self._synced: int | None = None
        self._samples_itself = False
        self._events: list[tuple[str, int, str]] = []

    def begins(self, call: Call) -> None:
        """A training loop begins, perhaps from a saved state."""
        self._begins(call, "total_steps")

    def begins_async(self, call: Call) -> None:
        self._is_async = True
        self._begins(call, "current_step" if "grpo_save_state" in call.arguments else "total_steps")

    def controls(self, call: Call) -> None:
        """SingleController calls its sampler before each choice; the argument is the version in training."""
        done = int(call.arguments["current_train_weight"])
        if not self._is_async:
            self._is_async = True
            self._goes_on(done)
        elif done != self._done:
            self._ends(done)

    def scored(self, call: Call) -> None:
        """Notes rewards and groups of the next rows to train on, in their order. Equal prompts are one group, as in NeMo-RL."""
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
        """In the replay buffer's process: stores the version in the group's batch, where sampling and checkpoints keep it."""
        setattr(call.arguments["trajectory"]["batch"], VERSION, int(call.arguments["weight_version"]))

    def sampled(self, call: Call) -> None:
        """Notes the versions of the groups that form a step's batch."""
        batches = call.arguments["batches"]
        versions = [getattr(batch, VERSION, -1) for batch in batches]
        if versions and -1 not in versions:
            self._versions = [int(v) for batch, v in zip(batches, versions, strict=True) for _ in range(batch.size)]

    def old_scored(self, call: Call) -> None:
        """The policy has scored a batch, before it trains on it."""
        if self._recording.options.get("self_noise"):
            self._settle()
            self._again.read(call.target, call.arguments["data"], call.result["logprobs"], self._done + 1)

    def trains(self, call: Call) -> None:
        """Records the batch of a step at its first update. Further epochs have the same batch."""
        data = call.arguments["data"]
        if self._is_policy_loss(call) and "generation_logprobs" in data and self._recorded <= self._done:
            self._recorded = self._done + 1
            self._record(data)

    def with_step(self, call: Call) -> dict[str, Any] | None:
        """The loss function with the step, for the workers."""
        return self._loss_fn(call) if self._is_policy_loss(call) else None

    def with_row_facts(self, call: Call) -> dict[str, Any]:
        """The meta with the facts that the workers' fetched data lack. Workers record these rows themselves."""
        self._settle()
        meta, step = call.arguments["meta"], self._done + 1
        self._recorded = step
        facts = self._facts(len(meta.sample_ids))
        if meta.tags and all("weight_version" in tag for tag in meta.tags):
            facts["rollout_versions"] = [int(tag["weight_version"]) for tag in meta.tags]
        names = [name for name, values in facts.items() if values is not None]
        rows = {key: {name: facts[name][i] for name in names} for i, key in enumerate(meta.sample_ids)}
        facts_of_step = {"step": step, "old": "old" in self._has, "reference": "reference" in self._has, "rows": rows}
        self._say_what_is_absent(step, facts)
        loss_fn = self._loss_fn(call) if "loss_fn" in call.arguments else {}
        return {**loss_fn, "meta": with_facts(meta, facts_of_step)}

    def has_old(self, call: Call) -> None:
        self._has.add("old")
        if self._recording.options.get("self_noise"):
            self._settle()
            self._recording.say_once("self_noise", self._done + 1, IN_THE_PLANE)

    def has_reference(self, call: Call) -> None:
        self._has.add("reference")

    def refitted(self, call: Call) -> None:
        version = int(call.arguments.get("version", self._done + (self._recorded > self._done)))
        if version != self._synced:
            self._synced = version
            self._tell("weight_sync", version + 1, f"generation goes on with the weights after {version} steps")

    def dumped(self, call: Call) -> None:
        """The step ends with its dump. The step is recorded from the dump if no hooked `train` had its batch.

        That is so for a frozen policy and for a user's own policy class.
        """
        match = re.fullmatch(r"train_data_step(\d+)\.jsonl", call.arguments["filename"])
        dump = call.arguments["to_log"]
        if match is None or "prev_logprobs" not in dump or "token_ids" not in dump:
            return
        step = int(match[1])
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
        else:  # metrics of a step that is not trained yet
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
        columns = batch_columns(self._again.added_to(data), has_old=has_old, has_reference="reference" in self._has)
        self._recording.log(
            step=step,
            trainer_version=step - 1,
            sequence_ids=sequence_ids(data),
            **self._again.readings(columns),
            **columns,
            **facts,
        )
        self._say_what_is_absent(step, facts, is_reference_known=reference is not None)

    def _facts(self, rows: int) -> dict[str, Any]:
        """The facts for a batch of so many rows; facts of another number of rows belong to another batch and are left out."""
        scores = dict(self._scores) if len(self._scores.get("rewards", [])) == rows else {}
        versions: Sequence[int] | None = self._versions if len(self._versions) == rows else None
        if (chosen := self._recording.rollout_version) is not None:
            versions = [chosen(self)] * rows
        elif versions is None and not self._is_async:
            told = self._done if self._samples_itself else self._synced
            versions = None if told is None else [told] * rows
        return {**scores, "rollout_versions": versions}

    def _say_what_is_absent(self, step: int, facts: Mapping[str, Any], *, is_reference_known: bool = True) -> None:
        say = self._recording.say_once
        if "old" not in self._has:
            say("no_old_logprobs", step, ABSENT_OLD)
            if self._recording.options.get("self_noise"):
                say("self_noise", step, UNSCORED)
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
        """A copy of the loss function with the step and the number of its updates so far."""
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
        self._samples_itself = call.arguments.get("policy_generation", call) is None
        self._goes_on(int(state[counted] if isinstance(state, Mapping) else getattr(state, counted)))  # PPO's is a dict
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
        """Describes the run before its collector exists, then records the events that waited for the collector."""
        if not self._recording.has_collector:
            source = VERSIONS["async" if self._is_async else "sync"]
            self._recording.describe(trainer="NeMo-RL", config=self._config, versions=source)
        while self._events:
            self._recording.event(*self._events.pop(0))

    def _tell(self, kind: str, step: int, note: str) -> None:
        self._events.append((kind, step, note))
        if self._recording.has_collector:
            self._settle()


def settings(master_config: Any) -> dict[str, Any]:
    """The parts of a master config that affect the record or the correction."""
    plain = master_config.model_dump() if hasattr(master_config, "model_dump") else master_config
    plain = plain if isinstance(plain, Mapping) else vars(master_config)
    parts = {name: plain[name] for name in ("loss_fn", "grpo", "ppo") if plain.get(name) is not None}
    policy = plain.get("policy") or {}
    generation = policy.get("generation") or {}
    sampling = {name: generation[name] for name in _SAMPLING if name in generation}
    engine = _some(generation.get("vllm_cfg"), _ENGINE)
    sampling |= {"vllm_cfg": engine} if engine else {}
    own = _some(policy, _POLICY)
    return {**parts, **({"policy": own} if own else {}), "generation": sampling}


def _some(section: Mapping[str, Any] | None, names: Iterable[str]) -> dict[str, Any]:
    return {name: section[name] for name in names if section is not None and section.get(name) is not None}


def is_filtered(config: Mapping[str, Any]) -> bool:
    """Whether top_p or top_k restricts sampling, and with it the policy's log-probs."""
    sampling = config.get("generation", {})
    return (sampling.get("top_p") or 1.0) < 1.0 or (sampling.get("top_k") or -1) > 0
