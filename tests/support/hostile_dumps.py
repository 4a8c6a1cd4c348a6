"""A sound row of each format, the file that holds rows of it, and alterations that nobody meant: junk, holes, other lengths."""

import contextlib
import copy
import io
import json
import pickle
import random
import sqlite3
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEEP: Any = []
for _ in range(70):
    DEEP = [DEEP]
JUNK: tuple[Any, ...] = (
    None, "", "text", True, False, -1, 0, 1.5, 10**400, -(2**63), 2**31, float("nan"), float("inf"), float("-inf"), [], {},
    [[1.0]], [None], ["x"], [1, "x"], [True], {"a": [1]}, DEEP, "\ud800", "[1, 2]", "[", "9" * 5000, [10**30] * 2, [0.5] * 300,
)  # fmt: skip


def altered(value: Any, rng: random.Random) -> Any:
    """A copy with one to three places made junk, removed, doubled, cut or renamed."""
    held = [copy.deepcopy(value)]
    for _ in range(rng.randint(1, 3)):
        owner, key = rng.choice(list(_places(held)))
        act = rng.choice(("junk", "junk", "remove", "double", "cut", "rename"))
        inner = owner[key]
        if act == "remove" and owner is not held:
            del owner[key]
        elif act == "double" and isinstance(inner, list):
            inner.extend(copy.deepcopy(inner) or [1])
        elif act == "cut" and isinstance(inner, list):
            del inner[len(inner) // 2 :]
        elif act == "rename" and isinstance(owner, dict):
            owner[f"{key}_2"] = owner.pop(key)
        else:
            owner[key] = copy.deepcopy(rng.choice(JUNK))
    return held[0]


def _places(held: Any) -> Any:
    for key, inner in list(held.items() if isinstance(held, dict) else enumerate(held)):
        yield held, key
        if isinstance(inner, (dict, list)):
            yield from _places(inner)


@dataclass(frozen=True)
class Shape:
    """A kind of file: one sound row, and how rows lie in a file."""

    name: str
    file: str
    row: Any
    write: Callable[[Path, Sequence[Any]], None]


def json_lines(path: Path, rows: Sequence[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def torch_file(**beside: Any) -> Callable[[Path, Sequence[Any]], None]:
    """As torch.save writes it, with lists where a trainer has tensors."""

    def write(path: Path, rows: Sequence[Any]) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("dump/data.pkl", pickle.dumps({**beside, "samples": list(rows)}, 2))
            archive.writestr("dump/version", b"3\n")

    return write


def replay_buffer(path: Path, rows: Sequence[Any]) -> None:
    count = len(rows)
    state = {"trajectories": list(rows), "trajectory_versions": [3] * count, "target_weight_versions": [4] * count}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("dump/data.pkl", pickle.dumps(state, 2))


def database(*statements: str, insert: str, names: Sequence[str]) -> Callable[[Path, Sequence[Any]], None]:
    """A table with a row for each; a value that is no plain one lies there as JSON."""

    def cell(value: Any) -> Any:
        if isinstance(value, bool | float | bytes) or value is None:
            return value
        if isinstance(value, int) and abs(value) < 1 << 63:
            return value
        return value.encode("utf-8", "surrogatepass").decode("latin-1") if isinstance(value, str) else json.dumps(value)

    def write(path: Path, rows: Sequence[Any]) -> None:
        with contextlib.closing(sqlite3.connect(path)) as base:
            for statement in statements:
                base.execute(statement)
            for row in rows:
                held = row if isinstance(row, dict) else {}
                base.execute(insert, [cell(held.get(name)) for name in names])
            base.commit()

    return write


def gateway(path: Path, rows: Sequence[Any]) -> None:
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE traces (id TEXT, data TEXT)")
        base.executemany("INSERT INTO traces VALUES ('a', ?)", [(json.dumps(row),) for row in rows])
        base.commit()


def evaluation(path: Path, rows: Sequence[Any]) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, row in enumerate(rows):
            archive.writestr(f"samples/{place}_epoch_1.json", json.dumps(row))
    path.write_bytes(packed.getvalue())


def one_object(path: Path, rows: Sequence[Any]) -> None:
    path.write_text(json.dumps(rows[-1]))


LP, IDS, MASK = [-0.5, -0.25, -1.0], [5, 6, 7], [1, 0, 1]
CALL = {"prompt_token_ids": [1, 2], "completion_token_ids": IDS, "logprobs": LP}
SAMPLE = {
    "index": 1, "group_index": 0, "tokens": [1, *IDS], "response_length": 3, "rollout_log_probs": LP, "loss_mask": MASK,
    "weight_versions": ["3", "4"], "reward": 1.0, "status": "completed", "prompt": "q", "remove_sample": False,
    "prefix_cache_info": {"cached_tokens": 1, "total_prompt_tokens": 2},
}  # fmt: skip
TRAINED = {
    "rollout_position": 0, "sample_index": 1, "tokens": [1, *IDS], "response_lengths": 3, "rollout_log_probs": LP,
    "log_probs": LP, "loss_masks": MASK, "advantages": [1.0] * 3, "rewards": 1.0, "local_raw_reward": 1.0,
}  # fmt: skip
MESSAGES = [
    {"role": "user", "content": "q", "token_ids": [1, 2]},
    {"role": "assistant", "content": "a", "token_ids": IDS, "generation_logprobs": LP},
]
GYM_ITEM = {"type": "message", "prompt_token_ids": [1], "generation_token_ids": IDS, "generation_log_probs": LP}
WIRE = ("run_attempt", "iteration", "group_idx", "traj_idx", "seq_id", "sample_idx", "policy_version", "prompt_tokens",
        "sampled_tokens", "logprobs")  # fmt: skip
SHAPES = (
    Shape("nemo-rl", "train_data_step1.jsonl", {
        "content": [["q", "a"]], "rewards": [1.0], "token_ids": [[1, *IDS]], "token_loss_mask": [[0, *MASK]],
        "sample_loss_mask": [1.0], "advantages": [[1.0] * 4], "generation_logprobs": [[0.0, *LP]],
        "prev_logprobs": [[0.5, *LP]], "idx": 3}, json_lines),
    Shape("nemo-rl buffer", "replay_buffer.pt", {
        "batch": {"message_log": [MESSAGES, MESSAGES], "total_reward": [1.0, 0.0], "loss_multiplier": [1.0, 1.0], "idx": [1, 1]},
        "timestamp": 5.0}, replay_buffer),
    Shape("miles", "3.pt", SAMPLE, torch_file(rollout_id=3, metadata={})),
    Shape("miles-loss", "rank_0_call_2.pt", {
        "rollout_log_probs": LP, "old_log_probs": LP, "train_log_probs": LP, "local_loss_mask": MASK, "advantages": [1.0] * 3},
        torch_file()),
    Shape("slime", "rollout_3.pt", SAMPLE, torch_file(rollout_id=3)),
    Shape("slime train", "train_3.pt", TRAINED, torch_file(format_version=2, rollout_id=3)),
    Shape("prime-rl", "rank_0.jsonl", {
        "step": 1, "rank": 0, "export_sequence_idx": 0, "env_name": "m", "token_ids": IDS, "loss_mask": [True, False, True],
        "inference_logprobs": LP, "trainer_logprobs": LP, "entropy": LP, "advantages": LP}, json_lines),
    Shape("verifiers", "traces.jsonl", {"traces": [{"id": "t", "reward": 1.0, "nodes": [
        {"token_ids": [1], "mask": [False], "logprobs": []},
        {"parent": 0, "token_ids": IDS, "mask": [True] * 3, "logprobs": LP, "trainer_logprobs": LP}]}]}, json_lines),
    Shape("open-instruct", "run_rollouts_000000.jsonl", {
        "step": 1, "sample_idx": 0, "prompt_idx": 0, "prompt_tokens": [1], "response_tokens": IDS, "logprobs": LP, "reward": 1.0,
        "advantage": 0.5, "finish_reason": "stop", "dataset": "d"}, json_lines),
    Shape("tinker", "capture.sqlite", dict(zip(WIRE, (0, 4, 1, 0, "s", 0, 3, [1], IDS, LP), strict=True)), database(
        f"CREATE TABLE wire_rows ({', '.join(WIRE)})", insert=f"INSERT INTO wire_rows VALUES ({', '.join('?' * len(WIRE))})",
        names=WIRE)),
    Shape("tinker lines", "capture.jsonl", {
        "iteration": 1, "group_idx": 0, "traj_idx": 0, "prompt_tokens": [1], "policy_version": 2,
        "samples": [{"tokens": IDS, "logprobs": LP, "stop_reason": "stop"}]}, json_lines),
    Shape("openai", "log.jsonl", {"step": 1, "response": {"id": "r", "prompt_token_ids": [1], "choices": [
        {"token_ids": IDS, "logprobs": {"content": [{"logprob": x} for x in LP]}, "finish_reason": "stop"}]}}, json_lines),
    Shape("sglang", "log.jsonl", {"step": 1, "text": "a", "meta_info": {
        "id": "x", "output_token_logprobs": [[x, i, None] for x, i in zip(LP, IDS, strict=True)], "weight_version": "3"}},
        json_lines),
    Shape("rllm", "gateway.db", {**CALL, "session_id": "x", "weight_version": 6, "finish_reason": "stop"}, gateway),
    Shape("nemo-gym", "rollouts.jsonl", {
        "_ng_task_index": 1, "_ng_rollout_index": 0, "reward": 1.0, "response": {"output": [GYM_ITEM], "status": "done"}},
        json_lines),
    Shape("harbor", "trajectory.json", {"schema_version": "ATIF-v1.4", "session_id": "s", "agent": {"name": "a"}, "steps": [
        {"step_id": 1, "source": "agent", "metrics": CALL}]}, one_object),
    Shape("inspect", "a.eval", {"id": "a", "epoch": 1, "output": {"choices": [
        {"logprobs": {"content": [{"token": "a", "logprob": -0.5}]}, "stop_reason": "stop"}]}, "scores": {}}, evaluation),
    Shape("agent-lightning", "lines.jsonl", {"event_type": "model_request", "rollout_id": "r", "attempt_id": "a", "data": {
        "prompt_token_ids": [1], "response_token_ids": IDS, "response_log_probs": LP, "server": {"version": 2}}}, json_lines),
    Shape("table", "rows.jsonl", {
        "step": 1, "sequence_id": "s", "rollout_logprobs": LP, "old_logprobs": LP, "mask": MASK, "token_ids": IDS,
        "turns": [0] * 3, "prompt_ids": [1], "rewards": 1.0, "advantages": [1.0] * 3, "rollout_versions": 3, "trainer_version": 4,
        "generation_step": 1, "minibatch": 0, "replica": "r"}, json_lines),
)  # fmt: skip
"""Formats whose files hold rows, one after the other."""
