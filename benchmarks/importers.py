"""Speed and memory of reading and importing dumps, beside pandas and the loaders that the trainers use themselves.

    python benchmarks/importers.py [--megabytes 64]

Each way runs in a process of its own. Prints megabytes of the file per second of processor time, this rate as a multiple of the
trainer's own loader's (json.loads line by line for NeMo-RL, torch.load for slime; pandas for tables), and the peak of the process
above what it holds before it begins. A loader reads values and nothing more; the importer also checks each row; an import writes
rows and statistics besides. Processor time, because other work on the machine does not count into it.
"""

import argparse
import io
import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

TOKENS = 1000
WAYS = {  # the first way is the one that others are compared with
    "train_data_step1.jsonl": ("json", "pandas", "read", "import"),
    "rows.parquet": ("pandas", "read", "import"),
    "rollout_1.pt": ("torch", "read", "import"),
    "train_1.pt": ("torch", "read", "import"),
    "numbers.jsonl": ("pandas", "scalars"),
}


def one(way: str, source: Path) -> None:
    """Prints (seconds, megabytes above those before) of one way, in this process. Imports come before the clock starts."""
    carried_out = _prepared(way, source)
    before, start = _most(), time.process_time()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        carried_out(Path(folder, "run"))
    print(json.dumps([time.process_time() - start, _most() - before]))


def _prepared(way: str, source: Path) -> Callable[[Path], object]:
    """The way, which may write into the folder that it is given."""
    if way == "pandas":
        import pandas

        lines = source.suffix == ".jsonl"
        return lambda _: pandas.read_json(source, lines=True) if lines else pandas.read_parquet(source)
    if way == "torch":
        import torch

        return lambda _: torch.load(source, weights_only=True)
    if way == "scalars":
        from ratioscope.app.cli.scalar_import import LogOptions, import_scalars, scalar_logs

        (log,) = scalar_logs(LogOptions(source, Path()))
        return lambda run: import_scalars(LogOptions(source, run, as_json=True), (log,))
    if way == "json":
        return lambda _: [json.loads(line) for line in source.open()]
    from ratioscope.app.cli.commands import import_dump
    from ratioscope.ingest.importers.reading import read
    from ratioscope.ingest.importers.source_files import Options, opened

    if way == "read":
        return lambda _: deque(read(opened(source, Options()), Options()), maxlen=0)
    return lambda run: import_dump._imported([source], [Options()], run, (), None, True, "full")


def _most() -> float:
    """The most memory that this process has held, in megabytes."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--one", nargs=2, metavar=("WAY", "FILE"), help="only this way, in this process")
    asked = parser.parse_args()
    if asked.one:
        return one(asked.one[0], Path(asked.one[1]))
    with tempfile.TemporaryDirectory() as folder:
        made(Path(folder), asked.megabytes << 20)
        for name, ways in WAYS.items():
            size = (Path(folder) / name).stat().st_size / 1e6
            first = 0.0
            for way in ways:
                seconds, peak = measured(way, Path(folder) / name)
                first = first or size / seconds
                rate, times = f"{size / seconds:8.1f} MB/s", f"{size / seconds / first:5.2f} times {ways[0]}"
                print(f"{name:24s} {way:8s} {rate} {times}   peak {peak:6.0f} MB of a file of {size:.0f} MB")


def measured(way: str, source: Path) -> tuple[float, float]:
    """(seconds, megabytes above those before) of one way, in a process of its own."""
    command = [sys.executable, __file__, "--one", way, str(source)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds, peak = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak


def made(folder: Path, nbytes: int) -> None:
    """Dumps of about this size, of sequences of TOKENS tokens."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    rng = np.random.default_rng(0)
    rows = [_row(rng, index) for index in range(nbytes // (TOKENS * 60))]
    with (folder / "numbers.jsonl").open(
        "w"
    ) as file:  # a log of 40 numbers a step; about 20 bytes each, and their names
        for step, numbers in enumerate(rng.random((nbytes // 2000, 40)).tolist()):
            file.write(
                json.dumps({"step": step, **{f"trainer/number_{n}": value for n, value in enumerate(numbers)}}) + "\n"
            )
    with (folder / "train_data_step1.jsonl").open("w") as file:
        for index, row in enumerate(rows):
            wrapped: dict[str, Any] = {name: [value] for name, value in row.items()}
            file.write(json.dumps({**wrapped, "idx": index}) + "\n")
    named = [{"step": 1, "rollout_logprobs": row["generation_logprobs"], "old_logprobs": row["prev_logprobs"],
              "token_ids": row["token_ids"]} for row in rows * 6]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(named), folder / "rows.parquet", row_group_size=64)
    torch.save(
        {"rollout_id": 1, "samples": [_sample(row, n) for n, row in enumerate(rows * 3)]}, folder / "rollout_1.pt"
    )
    tensors = [_trained(row, n) for n, row in enumerate(rows * 3)]
    torch.save({"format_version": 2, "rollout_id": 1, "rank": 0, "samples": tensors}, folder / "train_1.pt")


def _row(rng: np.random.Generator, index: int) -> dict[str, Any]:
    logprobs = -rng.exponential(0.3, TOKENS).astype(np.float32)
    return {
        "rewards": float(index % 2), "token_ids": rng.integers(0, 150_000, TOKENS).tolist(),
        "token_loss_mask": [0] * 10 + [1] * (TOKENS - 10), "sample_loss_mask": 1.0,
        "generation_logprobs": logprobs.tolist(),
        "prev_logprobs": (logprobs + rng.normal(0, 0.01, TOKENS)).astype(np.float32).tolist(),
    }  # fmt: skip


def _sample(row: dict[str, Any], index: int) -> dict[str, Any]:
    return {
        "index": index, "tokens": [1, 2, *row["token_ids"]], "response_length": TOKENS, "reward": row["rewards"],
        "rollout_log_probs": row["generation_logprobs"], "loss_mask": None, "weight_versions": ["1"], "status": "completed",
    }  # fmt: skip


def _trained(row: dict[str, Any], index: int) -> dict[str, Any]:
    import torch

    return {
        "sample_index": index, "rollout_position": index, "tokens": torch.tensor([1, 2, *row["token_ids"]]),
        "response_lengths": TOKENS, "loss_masks": torch.ones(TOKENS, dtype=torch.int32),
        "rollout_log_probs": torch.tensor(row["generation_logprobs"]), "log_probs": torch.tensor(row["prev_logprobs"]),
    }  # fmt: skip


if __name__ == "__main__":
    main()
