"""The cost of recording for the trainer's thread, beside that trainer's own way of keeping the same data, in its own layout.

    python benchmarks/adapter_look.py [--sequences 512] [--length 1000] [--calls 20] [--json FILE]

Each trainer's batch is held as it holds it (padded, ragged or packed; CPU tensors in float32). Ours is a watched call: the hook
binds its arguments, the look hands all policies to `log`, which copies them. Theirs is what the trainer itself does where it
keeps log-probs: JSON lines (NeMo-RL, torchtitan RL's rollout recorder, prime-rl's token export, open-instruct's rollouts),
torch.save (slime, miles, xtuner's debug rollouts), pickle (SkyRL, ROLL, verl's rollout cache), Parquet through pandas (TRL's
completions), SQLite (tinker-cookbook's capture). WITHOUT says of the other trainers what they keep instead of log-probs. Medians
of processor time of the thread that trains, so that other work on the machine does not count; the ratio is theirs over ours,
measured in turns. --json writes what docs/trainers/ shows.
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

from ratioscope.collectors.watching.hooks import Call, Hook, install
from ratioscope.collectors.watching.patches import Patches
from ratioscope.collectors.watching.recording import Recording

SIDES = ("rollout_logprobs", "old_logprobs", "current_logprobs")
Held = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """trainers: whose it is. layout: of the batch. keep: writes the batch into a folder as they do; keeps: so in words."""

    trainers: tuple[str, ...]
    layout: str
    keep: Callable[[Held, Path], None]
    keeps: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=512)
    parser.add_argument("--length", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print(
        f"{options.sequences} sequences of up to {options.length} tokens, three policies, mask and ids; {options.calls} calls"
    )
    print(f"{'trainer':<28} {'layout':<8} {'ours p50':>10} {'ours p99':>10} {'theirs p50':>11} {'theirs / ours':>14}")
    for way in WAYS:
        held = LAYOUTS[way.layout](options.sequences, options.length)
        ours, theirs, writer = in_turns(way, held, options.calls)
        median, kept = float(np.median(ours)), float(np.median(theirs))
        print(
            f"{', '.join(way.trainers):<28} {way.layout:<8} {median * 1e3:>7.2f} ms {np.quantile(ours, 0.99) * 1e3:>7.2f} ms "
            f"{kept * 1e3:>8.1f} ms {kept / median:>13.0f}x"
        )
        figures = {
            "ours_ms": median * 1e3,
            "theirs_ms": kept * 1e3,
            "theirs_over_ours": kept / median,
            "writer_ms": writer * 1e3,
        }
        rounded = {name: round(value, 3) for name, value in figures.items()}
        rows.append({"trainers": way.trainers, "layout": way.layout, "keeps": way.keeps, **rounded})
    if options.json is not None:
        tokens = int(padded(options.sequences, options.length)["mask"].sum())
        told = {
            "tokens": tokens,
            "sequences": options.sequences,
            "calls": options.calls,
            "rows": rows,
            "without": WITHOUT,
        }
        options.json.write_text(json.dumps(told, indent=1) + "\n")


def in_turns(way: Way, held: Held, calls: int) -> tuple[list[float], list[float], float]:
    """Seconds of each watched call, and of each of theirs; the first two are left out. Then those of other threads per call."""
    ours, theirs, others = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(Path(folder) / "run", {}, "benchmark")
        trainer, patches = SimpleNamespace(step=lambda step, batch: None), Patches()
        install(Hook("trainer", "Trainer.step", after="look"), _Recorder(recording), recording, patches, owner=trainer)
        for call in range(calls + 2):
            all_threads, began = time.process_time(), time.thread_time()
            trainer.step(call, held)
            ours.append(time.thread_time() - began)
            recording.collector.flush()
            others.append(time.process_time() - all_threads - (time.thread_time() - began))
            began = time.process_time()  # theirs may use threads of torch or Arrow
            way.keep(held, Path(folder))
            theirs.append(time.process_time() - began)
        patches.restore()
        counts = recording.collector.counts.sequences
        assert recording.close() and counts.written == counts.offered > 0
    return ours[2:], theirs[2:], float(np.median(others[2:]))


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


def json_of_samples(held: Held, folder: Path) -> None:
    ends = np.cumsum(held["lengths"])[:-1]
    columns = {name: np.split(held[name].numpy(), ends) for name in ("token_ids", "mask", *SIDES)}
    with open(folder / "rollouts.jsonl", "w") as file:
        for row in range(len(held["lengths"])):
            file.write(json.dumps({name: parts[row].tolist() for name, parts in columns.items()}) + "\n")


def exported_tokens(held: Held, folder: Path) -> None:
    ends = np.cumsum(held["lengths"])[:-1]
    columns = {name: np.split(held[name].numpy(), ends) for name in ("token_ids", "mask", *SIDES)}
    for row in range(len(held["lengths"])):
        with open(folder / "rank_0.jsonl", "a" if row else "w", encoding="utf-8") as file:
            record = {name: parts[row].tolist() for name, parts in columns.items()}
            file.write(json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n")


def json_of_rollouts(held: Held, folder: Path) -> None:
    rows = zip(held["token_ids"], held["rollout_logprobs"], strict=True)
    records = [{"response_tokens": ids.tolist(), "logprobs": logprobs.tolist()} for ids, logprobs in rows]
    with open(folder / "rollouts.jsonl", "w") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")


def torch_save_of_rollouts(held: Held, folder: Path) -> None:
    ends = np.cumsum(held["lengths"])[:-1]
    columns = [np.split(held[name].numpy(), ends) for name in ("token_ids", "rollout_logprobs")]
    states = [
        {"response_ids": ids.tolist(), "logprobs": logprobs.tolist()} for ids, logprobs in zip(*columns, strict=True)
    ]
    torch.save(states, folder / "debug_rollout.pt")


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
    Way(("nemo_rl",), "padded", json_lines, "NeMo-RL's JSON lines"),
    Way(("verl", "skyrl", "roll"), "padded", pickled, "a pickle"),
    Way(("trl", "unsloth"), "padded", parquet, "TRL's Parquet of completions"),
    Way(("slime", "miles"), "ragged", torch_save, "torch.save"),
    Way(("tinker_cookbook",), "packed", sqlite, "the cookbook's SQLite"),
    Way(("torchtitan_rl",), "packed", json_of_samples, "JSON lines of torchtitan's rollout recorder"),
    Way(("prime_rl",), "packed", exported_tokens, "JSON lines of prime-rl's token export"),
    Way(("open_instruct",), "ragged", json_of_rollouts, "open-instruct's JSON lines (rollout log-probs alone)"),
    Way(("xtuner",), "packed", torch_save_of_rollouts, "xtuner's debug rollouts (rollout log-probs alone)"),
)
WITHOUT = {
    "ms_swift": ("padded", "its completions.jsonl holds texts, rewards and advantages"),
    "areal": ("packed", "its dumped trajectories hold texts, rewards and versions"),
    "art": ("packed", "it takes log-probs out of the trajectories that it writes"),
    "openrlhf": ("padded", "it logs means"),
    "molt": ("padded", "it logs means"),
    "fireworks": ("ragged", "its recipes log means"),
}
"""Trainer -> layout of its batch, and what it keeps, because it has no logging of rows with log-probs of its own."""

if __name__ == "__main__":
    main()
