"""The shipped stale run as if its settings made the lag: without events of syncs, and without a correction."""

import json
import shutil
from pathlib import Path

from ratioscope.layout import encode_line
from support.paths import ROOT


def uncorrected_run(folder: Path, **settings: object) -> Path:
    """A copy in the folder. Its settings allow its lag, so that no sync is missing. settings: further ones of the trainer."""
    root = folder / "uncorrected"
    shutil.copytree(ROOT / "sample_data" / "runs" / "trl-vllm-stale", root)
    for log in (root / "commits").glob("*.jsonl"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        log.write_bytes(b"".join(encode_line(line) for line in lines if line.get("event") != "weight_sync"))
    info = json.loads((root / "run.json").read_text())
    info["config"]["args"] |= {"vllm_importance_sampling_correction": False, "steps_per_generation": 32, **settings}
    (root / "run.json").write_text(json.dumps(info))
    return root
