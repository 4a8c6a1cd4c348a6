"""The labelled real runs as run folders, recorded by the collector as a trainer would."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratioscope.collectors.collector import Collector
from support.real_runs import policies, records
from support.run_folders import by_step

CONFIG = {"learning_rate": 2e-5, "hub_token": "hf_abcdefghijklmnopqrstuvwx", "output_dir": "/home/ann/runs"}


def recorded(run: str, folder: Path, *, steps: int | None = None, **replaced: Any) -> Path:
    """The folder, holding the real run `run`, at most its first `steps` steps. A `name` may be given.

    replaced: arguments of Collector.log that stand in for the recorded ones, one value per sequence.
    """
    table = records(run)
    name = replaced.pop("name", run)
    with Collector(folder, trainer="trl", config=CONFIG, name=name, strict=True) as collector:
        for part in by_step(table)[:steps]:
            rows = part.to_pydict()
            step = rows["step"][0]
            collector.log(step=step, minibatch=rows["minibatch"][0], **{**_columns(run, rows), **replaced})
            if _synced(rows):
                collector.event("weight_sync", step, "the engine has the trainer's weights")
        collector.flush(timeout=120)  # closing gives up after seconds, which a busy machine may need more of
    return folder


def _columns(run: str, rows: Mapping[str, list[Any]]) -> dict[str, Any]:
    named = {
        "sequence_ids": "sequence_id", "group_ids": "group_id", "token_ids": "token_ids", "token_texts": "token_texts",
        "rewards": "reward", "entropy": "entropy", "rollout_versions": "rollout_version_min",
        "trainer_version": "trainer_version",
    }  # fmt: skip
    given = {argument: rows[column] for argument, column in named.items() if rows[column][0] is not None}
    return given | {f"{policy}_logprobs": rows[f"{policy}_logprobs"] for policy in policies(run)}


def _synced(rows: Mapping[str, list[Any]]) -> bool:
    versions = rows["rollout_version_min"]
    return versions[0] is not None and versions == rows["trainer_version"]
