"""Makes tests/data/dumps/prime_rl: a run folder of prime-rl as its file monitor writes it, while the run goes on.

    pip install verifiers==0.4.0 pyarrow && python tests/upstream/prime_rl_traces.py tests/data/dumps/prime_rl

verifiers' own classes write the episodes. prime-rl is no package and asks for GPUs: the layout, the index rows and the
annotations are by its source (src/prime_rl/monitors/file/traces, pull requests 3444 and 3465). expected.json holds what
verifiers reads of the same traces, and what was annotated.
"""

import json
import struct
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

CUT = 3
"""Tokens at the end of the last branch that the trainer cut off."""


def episodes(vf: Any, rng: np.random.Generator) -> Iterator[Any]:
    """An evaluation, two groups of training, one that a judge and an error end, and one that no step has shipped yet."""
    number = 0
    for step, kind, group in ((0, "eval", "e"), (1, "train", "g1"), (1, "train", "g1"), (2, "train", "g2"), (2, "train", "g2"),
                              (3, "train", "g3")):  # fmt: skip
        number += 1
        policy = vf.PolicySpan(start=max(0, step - 2), end=max(0, step - 1))
        work = (vf.EvalWorkInfo if kind == "eval" else vf.TrainWorkInfo)(step=step, policy=policy)
        task = vf.TraceTask(type="Sums", data=vf.WireTaskData(prompt="q"), key=f"task-{group}", hash="h")
        traces = [_trace(vf, rng, task, f"{number:032x}")]
        if number == 3:
            traces.append(_trace(vf, rng, task, f"{90:032x}", name="judge", trainable=False))
        yield vf.WireEpisode(
            id=f"episode{number}", env=vf.EnvInfo(id="sums", name="math"), task=task, group=vf.GroupInfo(id=group), ok=True,
            run=vf.TrainRunInfo(id="run", work=work), traces=traces)  # fmt: skip
    failed = vf.Error(type="SandboxError", message="no box")
    yield vf.WireEpisode(
        id="failed", task=task, group=vf.GroupInfo(id="g3"), run=vf.TrainRunInfo(id="run", work=work), errors=[failed]
    )


def _trace(vf: Any, rng: np.random.Generator, task: Any, identity: str, **agent: Any) -> Any:
    """A question, an answer, a tool, a second answer, and another second answer: two branches."""

    def node(parent: int | None, message: Any, prompt: int, sampled: int = 0) -> Any:
        ids = rng.integers(0, 9000, prompt + sampled).tolist()
        mask = [False] * prompt + [True] * sampled
        logprobs = (-rng.exponential(0.5, sampled)).tolist()
        return vf.MessageNode(parent=parent, message=message, sampled=bool(sampled), timestamp=0.0, token_ids=ids, mask=mask,
                              logprobs=logprobs)  # fmt: skip

    answer = vf.AssistantMessage(content="a")
    nodes = [
        node(None, vf.UserMessage(content="what is 2 + 2, ü?"), 4),
        node(0, answer, 1, 5),
        node(1, vf.ToolMessage(tool_call_id="c", content="t"), 2),
        node(2, answer, 1, 6),
        node(2, answer, 1, 4),
    ]
    usage = [vf.Usage(prompt_tokens=5, completion_tokens=5, cached_input_tokens=0)]
    usage += [vf.Usage(prompt_tokens=3, completion_tokens=6, cached_input_tokens=10)] * 2
    calls = [vf.ModelCall(node=at, usage=use, finish_reason="stop") for at, use in zip((1, 3, 4), usage, strict=True)]
    return vf.Trace(
        id=identity, task=task, agent=vf.AgentInfo(config=vf.WireAgentConfig(), **agent), nodes=nodes, calls=calls,
        rewards={"solved": vf.Reward(score=float(rng.integers(0, 2))), "short": vf.Reward(score=0.5, weight=0.5)},
        ok=True, is_completed=True, stop_condition="agent_completed", timing=vf.Timing(start=0.0))  # fmt: skip


def annotations(
    trace: Any, step: int, rng: np.random.Generator, *, cut: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The orchestrator's annotation of a trace that a step shipped, and the trainer's, one for each branch."""
    shipped = {"effective": True, "ship": {"step": step, "time": 0.0}, "advantage": 0.5}
    record = {"version": 1, "trace_id": trace.id}
    streams, scored = [], []
    for branch in trace.branches:
        sampled = branch.sampled_mask
        length = len(sampled) - cut
        near = np.asarray(branch.logprobs) - rng.exponential(0.01, len(sampled))
        streams.append({"index": branch.index, "advantages": [0.5 if each else None for each in sampled]})
        values = {"trainer_logprobs": near, "entropies": -near}
        compact = {
            name: [round(float(value), 4) if each else None for value, each in zip(column, sampled, strict=True)][
                :length
            ]
            for name, column in values.items()
        }
        scored.append({**record, "info": {}, "branches": [{"index": branch.index, **compact}]})
    return {**record, "info": shipped, "branches": streams}, scored


def expected(episode: Any, trace: Any, step: int | None, notes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A trace as verifiers reads it, branch by branch, with what was annotated."""
    for branch, note in zip(trace.branches, notes or [{}] * len(trace.branches), strict=True):
        work = episode.run.work
        yield {
            "trace": trace.id, "step": work.step if step is None else step, "generation_step": work.step,
            "trainer_version": None if step is None else step - 1, "versions": [work.policy.start, work.policy.end],
            "group_id": episode.group.id, "reward": trace.reward, "ids": branch.token_ids, "sampled": branch.sampled_mask,
            "rollout": branch.logprobs, "annotated": note["branches"][0] if note else None,
            "prompt_tokens": sum(call.usage.input_tokens for call in branch.calls),
            "cached_tokens": sum(call.usage.cached_input_tokens for call in branch.calls),
        }  # fmt: skip


def sealed(lines: list[bytes]) -> bytes:
    """A chunk as prime-rl seals it: a zstd frame for each few lines, and the table of them, which is a frame to be skipped."""
    frames = [pa.compress(line, codec="zstd", asbytes=True) for line in lines]
    table = b"".join(struct.pack("<II", len(frame), len(line)) for frame, line in zip(frames, lines, strict=True))
    foot = struct.pack("<IBI", len(frames), 0, 0x8F92EAB1)
    return b"".join(frames) + struct.pack("<II", 0x184D2A5E, len(table) + len(foot)) + table + foot


def write(folder: Path, vf: Any) -> None:
    """Writes the run folder and expected.json."""
    rng = np.random.default_rng(7)
    lines, rows, orch, trainer = list[bytes](), list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for episode in episodes(vf, rng):
        lines.append(json.dumps(episode.to_record(), ensure_ascii=False).encode() + b"\n")
        work = episode.run.work
        shipped = work.step + 1 if episode.group.id in ("e", "g1", "g2") else None
        for trace in (trace for trace in episode.traces if trace.agent.trainable):
            note, scored = ({}, []) if shipped is None else annotations(
                trace, shipped, rng, cut=CUT * (episode.id == "episode5"))  # fmt: skip
            orch += [note] if note else []
            if work.type == "train":
                trainer += scored
                rows += expected(episode, trace, shipped, scored)
    traces = folder / "monitors" / "file" / "traces"
    for name in ("stream", "annotations/orch", "annotations/trainer", "live"):
        (traces / name).mkdir(parents=True, exist_ok=True)
    (traces / "stream" / "00000.jsonl.zst").write_bytes(sealed(lines[:3]))
    (traces / "stream" / "00001.jsonl").write_bytes(b"".join(lines[3:]) + lines[0][: lines[0].index("ü".encode()) + 1])
    for name, notes in (("orch", orch), ("trainer", trainer)):
        text = "".join(json.dumps(note, separators=(",", ":")) + "\n" for note in notes)
        (traces / "annotations" / name / "00000.jsonl").write_text(text + text[:40] * (name == "trainer"))
        index = [{"trace_id": note["trace_id"], "chunk": 0, "offset": 0, "info": note["info"]} for note in notes]
        (traces / "annotations" / f"{name}.index.jsonl").write_text("".join(json.dumps(row) + "\n" for row in index))
    (traces / "stream.index.jsonl").write_text('{"line": 1, "id": "episode1", "chunk": 0, "offset": 0}\n')
    (traces / "live" / f"{77:032x}.jsonl").write_text('{"open": {}, "dispatch": {}}\n')
    (folder / "monitors" / "file" / "plan.json").write_text('{"sums": {"0": 1}}')
    (folder / "expected.json").write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


def classes() -> Any:
    """verifiers' classes of an episode, under one name. ImportError where they are not installed."""
    names = ("types", "task", "graph", "configs.agent", "trace", "episode")
    modules = [import_module(f"verifiers.v1.{name}") for name in names]
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


if __name__ == "__main__":
    write(Path(sys.argv[1]), classes())
