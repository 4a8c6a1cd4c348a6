"""A training of NeMo-RL in a driver and two data-parallel workers of a real Ray; what they held is left in the folder.

python -m upstream.nemo_rl_ray FOLDER SETTINGS    with tests/ and the packages on PYTHONPATH, under `ratioscope run` or not
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch


def main(folder: Path, settings: dict[str, Any]) -> None:
    places: Any = importlib.import_module("support.nemo_rl_places")
    driving: Any = importlib.import_module("upstream.nemo_rl_drive")
    places.in_this_process()
    ray: Any = importlib.import_module("ray")
    ray.init(
        num_cpus=16, num_gpus=2, include_dashboard=False, logging_level="error",
        runtime_env={"worker_process_setup_hook": "support.nemo_rl_places.in_this_process"},
    )  # fmt: skip
    trace = driving.train(folder, lambda name: importlib.import_module(f"nemo_rl.{name}"), workers=2, **settings)
    kept = {name: trace[name] for name in ("batches", "losses", "logs", "dumps", "weights")}
    torch.save({**kept, "rng": trace["rng"][2]}, folder / "trace.pt")  # Ray itself draws from Python's
    ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
