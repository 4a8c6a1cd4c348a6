"""A training job for tests of recording without code: a folder with a trainer's package, its adapter and scripts that train.

The package is called `training`, one of the names that are waited for. A sitecustomize of the job's own puts its adapter in
the table, and leaves a mark each time it runs: it is the one that ours hides.
"""

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from ratioscope.collectors.process.variables import VARIABLES

FILES = {
    "training/__init__.py": "",
    "training/loop.py": """
        def loss(step, rollout, old):
            return sum(old) - sum(rollout)

        def train(steps=2, first=0, rank=0):
            return [loss(step, [-1.0, -2.0], [-1.5, -2.0]) for step in range(first, first + steps)]
    """,
    "toy_adapter.py": """
        import uuid
        from ratioscope.collectors.watching.hooks import Hook

        HOOKS = (Hook("training.loop", "loss", after="log"), Hook("training.loop", "train", before="begin"))

        class recorder:
            def __init__(self, recording):
                self.recording = recording

            def begin(self, call):
                self.recording.describe(trainer="toy 1", rank=call.arguments["rank"])

            def log(self, call):
                given = call.arguments
                ids = [uuid.uuid4().hex]  # one process of a pool may train for several
                policies = {"rollout_logprobs": [given["rollout"]], "old_logprobs": [given["old"]]}
                self.recording.log(step=given["step"], sequence_ids=ids, **policies)
    """,
    "sitecustomize.py": """
        import os, sys

        sys.hidden_ran = getattr(sys, "hidden_ran", 0) + 1
        if os.environ.get("RATIOSCOPE_RUN"):
            import ratioscope.collectors.trainers as table
            sys.modules["ratioscope.collectors.adapters.toy"] = __import__("toy_adapter")
            table.ADAPTERS = (
                table.Adapter("toy", "Toy", "training", ("1",), "stand-ins", "", ""),
            )
    """,
    "train.py": "from training.loop import train\n\nif __name__ == '__main__':\n    print(train())\n",
}


def write_job(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    """The folder, with the job's files."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text).lstrip("\n"))
    return folder


def clean_environment(folder: Path, **variables: str) -> dict[str, str]:
    """This process's environment without what records, and the job on PYTHONPATH."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return {**kept, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", **variables}


def recorded(
    folder: Path, command: Sequence[str], *options: str, python: str = sys.executable, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The command under `ratioscope run`, into RUN of the folder."""
    start = [python, "-m", "ratioscope", "run", "--out", "RUN", *options, "--", *command]
    environment = clean_environment(folder, **variables)
    return subprocess.run(start, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def rows(folder: Path) -> int:
    """Sequences on record; 0 where there is no run."""
    import ratioscope

    if not (folder / "RUN").exists():
        return 0
    found = ratioscope.open_run(folder / "RUN").metrics(by=("step",))
    return int(found["mismatch/sequences"].sum())
