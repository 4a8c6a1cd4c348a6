"""The family `smollm2`: the runs of tests/data/faults with one fault or none, read as cases. A small real model made them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
from support.fault_runs import FOLDER, RUNS, FaultRun

from .accepted import HEALTHY
from .case import Case

FAMILY = "smollm2"
UNDECIDED = {
    "lora_merge", "weight_quantisation", "kv_precision", "dropout", "batch_dependence", "packing_leak", "replay_inert",
    "router_flips", "position_ids", "stale_prefix_cache", "outlier_prompts",
}  # fmt: skip
"""Faults whose record is also that of another cause."""
LISTS = {
    "rollout_logprobs": "rollout_logprob",
    "old_logprobs": "train_logprob",
    "entropy": "train_entropy",
    "token_ids": "token_id",
    "turns": "turn",
}
SINGLE = {"group_ids": "group_id", "replica": "replica", "rollout_versions": "policy_version_rollout"}


def cases(every: int = 1) -> Iterator[Case]:
    """The runs with one fault or none, one in so many."""
    for run in [run for run in RUNS if len(run.faults) < 2][::every]:
        yield _case(run)


def _case(run: FaultRun) -> Case:
    fault = run.faults[0] if run.faults else HEALTHY
    decided = bool(run.faults) and run.strength != "weak" and fault not in UNDECIDED and "unnamed" not in run.name
    label = run.name if run.faults else f"{HEALTHY}.{run.name}"
    frame = pl.read_parquet(FOLDER / f"{run.name}.parquet").sort("step", "sample_id", "position")
    return Case(
        f"{FAMILY}.{label}", FAMILY, fault, "", run.strength, run.injected, decided,
        {"model": "SmolLM2-135M-Instruct"}, [_log(part) for part in frame.partition_by("step", maintain_order=True)],
    )  # fmt: skip


def _log(tokens: pl.DataFrame) -> dict[str, Any]:
    rows = tokens.group_by("sample_id", maintain_order=True).agg(pl.all())
    has = set(tokens.columns)
    log: dict[str, Any] = {"step": int(tokens["step"][0])}
    log |= {name: [own.to_numpy() for own in rows[column]] for name, column in LISTS.items() if column in has}
    for name, column in SINGLE.items():
        if column in has:
            first = [own[0] for own in rows[column]]
            log[name] = first if name == "rollout_versions" else [str(each) for each in first]
    if "policy_version_train" in has:
        log["trainer_version"] = int(tokens["policy_version_train"][0])
    return log
