"""The facts of a sample in prime-rl's orchestrator, and the sample's place in the trainer's micro-batches."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .rows import PackedSequences

TrainingSample = Any
MicroBatch = Any
Sink = Any
"""`Any`, because prime-rl is no dependency."""

Content = tuple[bytes, bytes]
"""Token ids and log-probs as bytes. Packing copies both but no id, so they identify a sample; equal samples are the same."""


@dataclass(frozen=True)
class Trace:
    """One rollout that waits for training."""

    identity: str
    """The id of the trace."""
    samples: Sequence[TrainingSample]
    """One per branch."""
    trace: Any
    """prime-rl's own object."""
    episode: Any
    """The episode of the trace."""

    def facts(self) -> dict[str, Any]:
        """The facts of each of its samples, by argument of `log`."""
        policy = self.episode.run.work.policy  # None: sampled by a frozen model
        group = self.episode.group
        return {
            "group_ids": None if group is None else str(group.id),
            "rewards": _number(getattr(self.trace, "reward", None)),
            "finish_reasons": getattr(self.trace, "stop_condition", None),
            "rollout_versions": None if policy is None else int(policy.start),
            "extra": {"trace": self.identity, "rollout_version_end": None if policy is None else int(policy.end)},
        }


def traces_of(sink: Sink) -> dict[str, Trace]:
    """All rollouts that wait for training, by the trace's id."""
    traces = {}
    for identity, samples in sink.pending_batch.items():
        episode = sink.episode_by_trace[identity]
        trace = next((one for one in episode.traces if one.id == identity), None)
        traces[identity] = Trace(identity, samples, trace, episode)
    return traces


def facts_of(
    samples: Sequence[TrainingSample],
    known: Mapping[int, Trace],
    grid: Sequence[Sequence[MicroBatch]],
    *,
    prefix: str,
    seq_len: int,
) -> dict[str, Any]:
    """Arguments of `Collector.log` with facts only, one row per sequence of the trainer; {} if no trace is known.

    known: traces by identity of the sample. grid: the micro-batches that each data-parallel rank gets.
    """
    waiting: dict[Content, list[Trace]] = {}
    for sample in samples:
        if (trace := known.get(id(sample))) is not None:
            waiting.setdefault(_content(sample.token_ids[:seq_len], sample.logprobs[:seq_len]), []).append(trace)
    rows = []
    for sequence_id, content in _sent(grid, prefix):
        if same := waiting.get(content):
            rows.append({"sequence_ids": sequence_id, **(same.pop(0) if len(same) > 1 else same[0]).facts()})
    if not rows:
        return {}
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    present = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    return {"rollout_logprobs": [None] * len(rows), **present}  # the trainer's rows hold them


def _sent(grid: Sequence[Sequence[MicroBatch]], prefix: str) -> Iterator[tuple[str, Content]]:
    """(id, content) of every sequence with a sampled token; the content is without padding."""
    for rank, batches in enumerate(grid):
        for number, batch in enumerate(batches):
            for place, content in _contents(batch):
                yield f"{prefix}-{rank}-{number}-{place}", content


def _contents(batch: MicroBatch) -> Iterator[tuple[int, Content]]:
    """(place, content) of every sequence of a micro-batch with a sampled token."""
    columns = {name: getattr(batch, name) for name in ("loss_mask", "rl_weights", "ce_weights", "ref_kl_weights")}
    packed = PackedSequences.of_tensors(columns, batch.sequence_lengths)
    starts = np.cumsum([0, *batch.sequence_lengths])
    for place, _ in packed.spans():
        first, end = int(starts[place]), int(starts[place + 1])
        while end > first and batch.env_names[end - 1] == "":
            end -= 1
        yield place, _content(batch.input_ids[first:end], batch.inference_logprobs[first:end])


def _content(token_ids: Sequence[int], logprobs: Sequence[float]) -> Content:
    return np.asarray(token_ids, np.int64).tobytes(), np.asarray(logprobs, np.float32).tobytes()


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
