"""Writes the logs of this folder with their loggers' packages: one config with secrets and three numbers, and two weeks of W&B.

In an environment of its own: pip install trackio mlflow-skinny sqlalchemy alembic swanlab tensorboardX wandb; python make.py
Made with trackio 0.43.0, mlflow 3.17.2, swanlab 0.10.3, tensorboardX 2.6.5 and wandb 0.31.0. Arguments name the functions to run.
"""

import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CONFIG = {
    "temperature": 0.7, "top_p": 0.9, "learning_rate": 1e-06, "bf16": True, "seed": None, "steps": [1, 2],
    "model_name_or_path": "Qwen/Qwen3-8B", "hub_token": "hf_abcdefghijklmnopqrstuvwxyz012345",
    "endpoint": "https://ann:hunter2@example.org/v1?token=abc123def456",
    "rollout": {"dtype": "bfloat16", "api_key": "sk-0123456789abcdefghij"},
}  # fmt: skip
NUMBERS = {step: step / 4 for step in (1, 2, 3)}


def trackio_store(home: Path) -> None:
    os.environ["TRACKIO_DIR"] = str(home / "trackio")
    trackio = _package("trackio")
    trackio.init(project="p", name="tonight", config=CONFIG, auto_log_gpu=False)
    for step, value in NUMBERS.items():
        trackio.log({"loss": value}, step=step)
    trackio.finish()
    _dumped(home / "trackio" / "p.db", "trackio.sql", ("configs", "metrics", "system_metrics"))


def mlflow_store(home: Path) -> None:
    mlflow = _package("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{home}/mlflow.db")
    mlflow.create_experiment("e", "s3://nowhere")
    mlflow.set_experiment("e")
    with mlflow.start_run(run_name="tonight"):
        mlflow.log_params(dict(_flat(CONFIG)))
        for step, value in NUMBERS.items():
            mlflow.log_metric("loss", value, step=step)
    _dumped(home / "mlflow.db", "mlflow.sql", ("experiments", "runs", "metrics", "params"))


def swanlab_folder(home: Path) -> None:
    swanlab = _package("swanlab")
    swanlab.init(project="p", experiment_name="tonight", config=CONFIG, mode="offline", logdir=str(home / "swanlog"))
    for step, value in NUMBERS.items():
        swanlab.log({"loss": value}, step=step)
    swanlab.finish()
    (log,) = (home / "swanlog").glob("run-*/run-*.swanlab")
    (HERE / "swanlab" / "files").mkdir(parents=True, exist_ok=True)
    shutil.copy(log, HERE / "swanlab" / "run-tonight.swanlab")
    shutil.copy(log.parent / "files" / "config.yaml", HERE / "swanlab" / "files" / "config.yaml")


def event_folder(home: Path) -> None:
    """As the trainers of Hugging Face do: arguments as a text and as hyperparameters."""
    writer = _package("tensorboardX").SummaryWriter(str(HERE / "events"), filename_suffix=".tonight")
    writer.add_text("args", json.dumps(CONFIG, indent=2))
    writer.add_text("rollout_batch_size", "8")
    known = {
        name: value if isinstance(value, bool | int | float | str) else str(value) for name, value in CONFIG.items()
    }
    writer.add_hparams(known, {}, name="1795974953.4277802")
    for step, value in NUMBERS.items():
        writer.add_scalar("loss", value, step)
        writer.add_text("sample", f"word{step}", step)
    writer.close()


GOOD = {
    "actor_rollout_ref": {
        "model": {"path": "Qwen/Qwen3-8B"},
        "rollout": {"name": "vllm", "temperature": 1.0, "top_p": 1.0, "dtype": "bfloat16", "gpu_memory_utilization": 0.6},
        "actor": {"optim": {"lr": 1e-06}, "fsdp_config": {"model_dtype": "bfloat16"}},
    },
    "async_training": {"staleness_threshold": 0.1},
    "trainer": {"hub_token": CONFIG["hub_token"], "endpoint": CONFIG["endpoint"]},
}  # fmt: skip
CHANGED = (("rollout", "top_p", 0.9), ("rollout", "gpu_memory_utilization", 0.8), ("optim", "lr", 3e-06),
           ("async_training", "staleness_threshold", 0.5))  # fmt: skip
"""The part, the setting and its value in the bad week."""


def wandb_weeks(home: Path) -> None:
    """Two offline runs of verl that differ in four settings. The gap is three times larger in the second one."""
    wandb = _package("wandb")
    quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True, x_disable_meta=True, disable_git=True)
    bad = json.loads(json.dumps(GOOD))
    for part, name, value in CHANGED:
        next(each for each in _parts(bad) if part in each)[part][name] = value
    shutil.rmtree(HERE / "wandb", ignore_errors=True)
    for name, config, size in (("good week", GOOD, 1e-3), ("bad/week", bad, 3e-3)):
        plain, noise = name.replace(" ", "").replace("/", ""), random.Random(name)
        run = wandb.init(project="p", id=plain, name=name, mode="offline", dir=str(home), settings=quiet, config=config)
        for step in range(1, 31):
            gap = {
                "rollout_corr/k3_kl": size * noise.lognormvariate(0, 0.1),
                "training/rollout_probs_diff_mean": size * 4,
            }
            score = step / 40 + noise.gauss(0, 0.02) - 0.1 * (size > 2e-3)
            run.log(
                {"training/global_step": step, **gap, "critic/score/mean": score, "perf/mfu": noise.gauss(0.4, 0.02)}
            )
        run.finish()
        (log,) = home.rglob(f"run-{plain}.wandb")
        folder = HERE / "wandb" / f"offline-run-20261129_120000-{plain}"
        folder.mkdir(parents=True)
        shutil.copy(log, folder / log.name)


def _parts(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The config and every mapping in it."""
    yield config
    for value in config.values():
        if isinstance(value, Mapping):
            yield from _parts(value)


def _package(name: str) -> Any:
    """The package of a logger. Any: no environment of the project has all of them."""
    return import_module(name)


def _flat(config: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Nested names joined by "/", as verl hands them to MLflow."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}/")
        else:
            yield f"{before}{name}", value


def _dumped(store: Path, name: str, tables: Sequence[str]) -> None:
    """The tables that an import reads, as SQL."""
    base = sqlite3.connect(store)
    own = [
        line
        for line in base.iterdump()
        if any(f'"{table}"' in line.split("(")[0] or f"TABLE {table} " in line for table in tables)
    ]
    (HERE / name).write_text("\n".join(own).replace(f"{Path.cwd()}/mlruns/0", "") + "\n")


if __name__ == "__main__":
    every = (trackio_store, mlflow_store, swanlab_folder, event_folder, wandb_weeks)
    for make in [each for each in every if each.__name__ in sys.argv[1:] or len(sys.argv) == 1]:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder))
