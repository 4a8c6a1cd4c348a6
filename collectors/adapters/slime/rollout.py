"""The rollout manager's process of slime and miles: the facts of each sample when a rollout is complete.

It logs one row per sample with the rollout log-probs and the facts that the trainer never gets. The id of the row joins it with
the trainer's row: the sample's index and its place in the flat list of the rollout. (Compact rollouts have several samples of one
index.) For statistics by lag the trainer's ranks need the versions too. slime sends none, so they are set as an attribute of the
Box that wraps each rank's part of the rollout. slime never reads this attribute.
Checksums of the weights that the engines hold: miles asks SGLang for them after each push if its event logger is on.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from ...watching.hooks import Call
from ...watching.recording import Recording
from ..trl.rows import prompt_text, turns
from .names import Names
from .versions import Arguments, Calls, Sample, Spans, recorded_versions

NO_ROLLOUT = (
    "the samples have no rollout log-probs, so neither mismatch nor total is recorded; a rollout function keeps them with "
    "sample.append_response_tokens(args, tokens=..., log_probs=..., meta_info=...)"
)
NO_VERSIONS = (
    "the samples have no weight versions that count pushes, so lag is not recorded; a rollout function keeps them with "
    "meta_info['weight_version'] of each call"
)
MIXED = (
    "{} of {} samples have several weight versions and calls of the engine that were not seen, so lag is not recorded for them; "
    "extra has their weight_versions"
)
REPLAYED = "the samples come from --load-debug-rollout-data: their weight versions belong to another run, so lag is not recorded"
CARRIED = "ratioscope_facts"
"""Attribute of a Box: the facts of its samples, see `Carried`."""

Carried = Mapping[str, Any]
"""`spans`: the versions of each sample, see versions.py. `masks`: the masks of all samples if one of them is taken out of the
loss (remove_sample), because the trainer's rank then lacks the original mask; else None."""


@dataclass(frozen=True)
class _Fact:
    """The facts of one sample that its trainer rank does not have."""

    spans: Spans | None
    mask: Sequence[int]
    is_removed: bool
    """True if the sample is taken out of the loss."""


class RolloutSide:
    """Watches the sampling, the complete rollout, and the sending of its parts to the ranks."""

    def __init__(self, recording: Recording, names: Names) -> None:
        self._recording, self._names = recording, names
        self._calls = Calls()
        self._checksums = Checksums(recording)
        self.weights_checked = self._checksums.checked
        self._facts: list[_Fact] = []
        self._ready: Carried | None = None

    def call_ended(self, call: Call) -> None:
        self._calls.note(call.target)

    def sampled(self, call: Call) -> None:
        self.record(call.arguments["rollout_id"], call.arguments["args"], call.arguments["samples"])

    def record(self, rollout_id: int, args: Arguments, samples: Sequence[Sample]) -> None:
        """Records one row per sample of a rollout, before any sample is taken out of the loss."""
        self._facts = []
        if not any(sample.rollout_log_probs for sample in samples):
            self._recording.say_once("no_rollout_logprobs", rollout_id, NO_ROLLOUT, logging.WARNING)
            return
        if not self._recording.has_collector:
            self._recording.describe(trainer=self._names.adapter, config={"args": recorded_arguments(args)})
        lengths = [int(sample.response_length) for sample in samples]
        masks = [_mask(sample) for sample in samples]
        spans = self._spans(rollout_id, args, samples)
        self._facts = [
            _Fact(one, mask, bool(sample.remove_sample))
            for one, mask, sample in zip(spans, masks, samples, strict=True)
        ]
        self._recording.log(
            step=rollout_id,
            sequence_ids=[sequence_id(rollout_id, place, sample.index) for place, sample in enumerate(samples)],
            rollout_logprobs=[_whole(sample.rollout_log_probs, n) for sample, n in zip(samples, lengths, strict=True)],
            mask=masks,
            token_ids=[_response(sample) for sample in samples],
            prompt_ids=[_prompt(sample) for sample in samples],
            group_ids=[sample.group_index for sample in samples],
            rollout_versions=recorded_versions(spans, lengths),
            turns=[turns(np.asarray(mask, bool)) for mask in masks],
            rewards=[_reward(sample, args) for sample in samples],
            finish_reasons=[str(getattr(sample.status, "value", sample.status)) for sample in samples],
            generation_step=[(sample.metadata or {}).get("start_rollout_id", rollout_id) for sample in samples],
            prompt_texts=[prompt_text(sample.prompt) for sample in samples],
            prompt_tokens=_of_cache(samples, "total_prompt_tokens"),
            cached_tokens=_of_cache(samples, "cached_tokens"),
            media=_media(samples),
            replayed=_replayed(samples, args),
            extra=[_extra(sample) for sample in samples],
        )
        self._checksums.record(rollout_id)
        self._recording.collector.flush(0)

    def shard_made(self, call: Call) -> None:
        """A rank's part is complete. The same thread makes its Box next."""
        places = call.arguments["rollout_data"].get("partition")
        self._ready = None
        if self._facts and places is not None:
            facts = [self._facts[place] for place in places]
            lacks = any(fact.is_removed for fact in facts)
            masks = [np.array(fact.mask, bool) for fact in facts] if lacks else None
            self._ready = {"spans": [fact.spans for fact in facts], "masks": masks}

    def box_made(self, call: Call) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            setattr(call.target, CARRIED, ready)

    def _spans(self, rollout_id: int, args: Arguments, samples: Sequence[Sample]) -> list[Any]:
        if getattr(args, "load_debug_rollout_data", None):
            self._recording.say_once("no_rollout_versions", rollout_id, REPLAYED)
            return [None] * len(samples)
        spans = [self._calls.spans(sample, args) for sample in samples]
        if all(one is None for one in spans):
            self._recording.say_once("no_rollout_versions", rollout_id, NO_VERSIONS, logging.WARNING)
        mixed = sum(one is None and bool(sample.weight_versions) for one, sample in zip(spans, samples, strict=True))
        if mixed:
            self._recording.say_once("mixed_versions", rollout_id, MIXED.format(mixed, len(samples)))
        return spans


def sequence_id(rollout_id: int, place: int, index: int | None) -> str:
    """The id of a sequence. index: the sample's number, unique in the run unless several samples are parts of one rollout."""
    return f"{rollout_id}-{place}" if index is None else f"{index}-{place}"


def recorded_arguments(args: Arguments) -> dict[str, Any]:
    """The trainer's arguments. If a flag names a function of ours, the user's own function replaces it here."""
    values = dict(vars(args))
    for name in ("custom_tis_function_path", "rollout_data_postprocess_path", "custom_rollout_log_function_path"):
        if str(values.get(name)).startswith("ratioscope."):
            values[name] = values.get(own_function_argument(name))
    return values


def own_function_argument(name: str) -> str:
    """The argument with the path of the user's own function, for a flag that names ours."""
    return f"ratioscope_{name.removeprefix('custom_')}"


def _mask(sample: Sample) -> list[int]:
    return list(sample.loss_mask) if sample.loss_mask is not None else [1] * int(sample.response_length)


def _whole(values: Sequence[float] | None, length: int) -> list[float] | None:
    return list(values) if values is not None and len(values) == length else None


def _response(sample: Sample) -> list[int]:
    tokens, length = sample.tokens, int(sample.response_length)
    return [int(token) for token in tokens[len(tokens) - length :]]


def _prompt(sample: Sample) -> list[int]:
    return [int(token) for token in sample.tokens[: len(sample.tokens) - int(sample.response_length)]]


def _reward(sample: Sample, args: Arguments) -> float | None:
    value, key = sample.reward, getattr(args, "reward_key", None)
    value = value.get(key) if isinstance(value, Mapping) else value
    return float(value) if isinstance(value, Real) else None


def _of_cache(samples: Sequence[Sample], name: str) -> list[int | None]:
    """A count of each sample's prefix_cache_info, which begins with 0: without prompt tokens no engine has counted."""
    caches = [getattr(sample, "prefix_cache_info", None) for sample in samples]
    counted = [getattr(cache, "total_prompt_tokens", 0) for cache in caches]
    return [getattr(cache, name) if prompt else None for cache, prompt in zip(caches, counted, strict=True)]


def _media(samples: Sequence[Sample]) -> list[int] | None:
    """Images, videos and sounds of each sample, from its multimodal_inputs; None if no sample of the rollout has any."""
    inputs = [getattr(sample, "multimodal_inputs", None) or {} for sample in samples]
    counts = [sum(len(own) for own in each.values() if isinstance(own, (list, tuple))) for each in inputs]
    return counts if any(counts) else None


def _replayed(samples: Sequence[Sample], args: Arguments) -> list[bool] | None:
    """True where a sample has the engine's experts, which --use-rollout-routing-replay hands to the trainer; None without it."""
    if not getattr(args, "use_rollout_routing_replay", False):
        return None
    return [getattr(sample, "rollout_routed_experts", None) is not None for sample in samples]


def _extra(sample: Sample) -> dict[str, Any]:
    cache = getattr(sample, "prefix_cache_info", None)
    values = {
        "rollout_id": sample.rollout_id,
        "weight_versions": list(sample.weight_versions or []),
        "cached_tokens": getattr(cache, "cached_tokens", None),
        "prompt_tokens": getattr(cache, "total_prompt_tokens", None),
        "rewards": dict(sample.reward) if isinstance(sample.reward, Mapping) else None,
        "removed": True if sample.remove_sample else None,
    }
    return {name: value for name, value in values.items() if value is not None}


Result = Sequence[Sequence[Mapping[str, Any] | None]]
"""An answer of SGLang's weights checker per engine, by server group."""


class Checksums:
    """Keeps what the engines answered until the first rollout that they sample is recorded."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._pushes = 0
        self._waiting: list[tuple[int, list[dict[str, str]]]] = []

    def checked(self, call: Call) -> None:
        """The engines have answered. Only the action `checksum` tells what they hold."""
        if call.arguments["action"] == "checksum":
            self._pushes += 1
            self._waiting.append((self._pushes, engines(call.result)))

    def record(self, rollout_id: int) -> None:
        """Records what has come since the last rollout."""
        waiting, self._waiting = self._waiting, []
        for push, held in waiting:
            for engine, digests in enumerate(held):
                self._recording.collector.sync(push, replica=str(engine), digests=digests, step=rollout_id)


def engines(result: Result) -> list[dict[str, str]]:
    """Tensor -> checksum of each engine. Each GPU of an engine has parts of its own, so that names begin with the GPU's rank."""
    return [
        {
            f"rank{_rank(part)}/{name}": str(value)
            for part in answer["ranks"]
            for name, value in part["checksums"].items()
        }
        for group in result
        for answer in group
        if answer is not None and answer.get("success")
    ]


def _rank(part: Mapping[str, Any]) -> int:
    return int(part["parallelism_info"][0]["rank"])
