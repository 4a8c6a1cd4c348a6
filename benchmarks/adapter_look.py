"""What recording costs the trainer's thread, beside that trainer's own way of keeping the same data, in its own layout.

    python benchmarks/adapter_look.py [--sequences 512] [--length 1000] [--calls 20]

Each trainer's batch is held as it holds it (padded, ragged or packed; CPU tensors in float32). Ours is a watched call: the hook
binds its arguments, the look hands all policies to `log`, which copies them. Theirs is what the trainer itself does where it
keeps log-probs: JSON lines (NeMo-RL), torch.save (slime, miles), pickle (SkyRL, ROLL, verl's rollout cache), Parquet through
pandas (TRL's completions), SQLite (tinker-cookbook's capture). Medians; the ratio is theirs over ours, measured in turns.
"""

import argparse
import json
import pickle
import sqlite3
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch

from ratioscope.collectors.watching.hooks import Call, Hook, Patches, install
from ratioscope.collectors.watching.recording import Recording

SIDES = ("rollout_logprobs", "old_logprobs", "current_logprobs")
Held = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """trainers: whose it is. layout: of the batch. keep: writes the batch into a folder as they do."""

    trainers: str
    layout: str
    keep: Callable[[Held, Path], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=512)
    parser.add_argument("--length", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=20)
    options = parser.parse_args()
    print(
        f"{options.sequences} sequences of up to {options.length} tokens, three policies, mask and ids; {options.calls} calls"
    )
    print(f"{'trainer':<28} {'layout':<8} {'ours p50':>10} {'ours p99':>10} {'theirs p50':>11} {'theirs / ours':>14}")
    for way in WAYS:
        held = LAYOUTS[way.layout](options.sequences, options.length)
        ours, theirs = in_turns(way, held, options.calls)
        median = float(np.median(ours))
        print(
            f"{way.trainers:<28} {way.layout:<8} {median * 1e3:>7.2f} ms {np.quantile(ours, 0.99) * 1e3:>7.2f} ms "
            f"{np.median(theirs) * 1e3:>8.1f} ms {np.median(theirs) / median:>13.0f}x"
        )


def in_turns(way: Way, held: Held, calls: int) -> tuple[list[float], list[float]]:
    """Seconds of each watched call beyond the call itself, and of each of theirs; the first two are left out."""
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(Path(folder) / "run", {}, "benchmark")
        trainer, patches = SimpleNamespace(step=lambda step, batch: None), Patches()
        install(Hook("trainer", "Trainer.step", after="look"), _Recorder(recording), recording, patches, owner=trainer)
        for call in range(calls + 2):
            began = time.perf_counter()
            trainer.step(call, held)
            ours.append(time.perf_counter() - began)
            recording.collector.flush()
            began = time.perf_counter()
            way.keep(held, Path(folder))
            theirs.append(time.perf_counter() - began)
        patches.restore()
        counts = recording.collector.counts.sequences
        assert recording.close() and counts.written == counts.offered > 0
    return ours[2:], theirs[2:]


class _Recorder:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def look(self, call: Call) -> None:
        self._recording.log(step=call.arguments["step"], minibatch=0, **call.arguments["batch"])


def padded(sequences: int, length: int) -> Held:
    """(B, T) tensors, right padded, as verl, SkyRL, TRL, NeMo-RL and ROLL hold them."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(length // 2, length + 1, (sequences,), generator=generator)
    mask = torch.arange(length) < sizes[:, None]
    rollout = -torch.empty(sequences, length).exponential_(generator=generator)
    noise = [0.03 * torch.randn(sequences, length, generator=generator) for _ in SIDES]
    held: Held = {name: rollout + extra for name, extra in zip(SIDES, noise, strict=True)}
    ids = torch.randint(0, 50_000, (sequences, length), generator=generator)
    return held | {"mask": mask, "token_ids": ids}


def ragged(sequences: int, length: int) -> Held:
    """One tensor per sequence, as slime and miles hold them."""
    held = padded(sequences, length)
    sizes = held["mask"].sum(1).tolist()
    return {name: [row[:size].clone() for row, size in zip(value, sizes, strict=True)] for name, value in held.items()}


def packed(sequences: int, length: int) -> Held:
    """All tokens in a row and the sequences' lengths, as tinker-cookbook, AReaL and prime-rl hold them."""
    held = ragged(sequences, length)
    return {name: torch.cat(value) for name, value in held.items()} | {"lengths": [len(row) for row in held["mask"]]}


LAYOUTS = {"padded": padded, "ragged": ragged, "packed": packed}


def json_lines(held: Held, folder: Path) -> None:
    columns = {name: value.tolist() for name, value in held.items()}
    with open(folder / "train_data.jsonl", "w") as file:
        for row in range(len(held["mask"])):
            file.write(json.dumps({name: [values[row]] for name, values in columns.items()} | {"idx": row}) + "\n")


def torch_save(held: Held, folder: Path) -> None:
    torch.save({"rollout_id": 0, "rank": 0, "rollout_data": held}, folder / "train_data.pt")


def pickled(held: Held, folder: Path) -> None:
    with open(folder / "batch.pkl", "wb") as file:
        pickle.dump({name: value.numpy() for name, value in held.items()}, file)


def parquet(held: Held, folder: Path) -> None:
    rows = {name: [row.tolist() for row in value] for name, value in held.items()}
    pd.DataFrame(rows).to_parquet(folder / "completions.parquet")


def sqlite(held: Held, folder: Path) -> None:
    ends = np.cumsum(held["lengths"])[:-1]
    columns = [np.split(held[name].numpy(), ends) for name in ("token_ids", *SIDES)]
    rows = [tuple(json.dumps(part.tolist()) for part in row) for row in zip(*columns, strict=True)]
    with sqlite3.connect(folder / "capture.sqlite") as store:
        store.execute("create table if not exists wire_rows (tokens, rollout, old, current)")
        store.executemany("insert into wire_rows values (?, ?, ?, ?)", rows)


WAYS = (
    Way("NeMo-RL", "padded", json_lines),
    Way("verl, SkyRL, ROLL", "padded", pickled),
    Way("TRL", "padded", parquet),
    Way("slime, miles", "ragged", torch_save),
    Way("tinker-cookbook", "packed", sqlite),
)

if __name__ == "__main__":
    main()
