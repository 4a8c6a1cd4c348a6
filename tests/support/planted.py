"""A run with a text at every place that takes one, and a search for these texts in every byte of a folder."""

import io
import json
import re
import zipfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from ratioscope import Collector

WORD = "zanzibar"
FIRST_ID = 987_654_000
FILE = f"what is {WORD} in a file name"


class Unreadable:
    def __init__(self, text: str) -> None:
        self.text = text

    def __float__(self) -> float:
        raise ValueError(self.text)


def planted(folder: Path) -> Path:
    """The run, in a folder whose name is a text, too."""
    numbers = count()
    root, rng = folder / f"what is {WORD} in a folder", np.random.default_rng(0)

    def text(place: str) -> str:
        return f"what is {WORD} {next(numbers)} in {place}?"

    replicas = [text("replica"), "10.0.0.7:8000"]
    config = {"system_prompt": text("config"), text("key"): 1, "argv": ["train.py", text("argv")], "lr": 1e-6}
    with Collector(root, name=text("name"), trainer=text("trainer"), config=config) as collector:
        collector.event("weight_sync", 0, text("note"))
        collector.event(text("event"), 1)
        collector.sync(1, replica=text("engine"), digests={"model.norm": "0" * 16})
        for step in range(3):
            old = -rng.exponential(1, (4, 6)) - 1
            collector.log(
                step=step, rollout_logprobs=old + rng.normal(0, 0.01 if step == 0 else 0.3, (4, 6)), old_logprobs=old,
                sequence_ids=[text("sequence"), text("sequence"), f"{step}-2", f"{step}-3"],
                group_ids=[text("group"), text("group"), "g1", "g1"], replica=replicas * 2, rewards=rng.normal(size=4),
                finish_reasons=[text("finish reason"), "stop", "length", "stop"],
                token_ids=rng.integers(FIRST_ID, FIRST_ID + 9, (4, 6)), token_texts=[[text("token")] * 6 for _ in range(4)],
                prompt_texts=[text("prompt") for _ in range(4)], prompt_ids=[[FIRST_ID, FIRST_ID + 1]] * 4,
                turns=np.zeros((4, 6), int), trainer_version=step, rollout_versions=0,
                extra=[{"a": text("extra"), text("key of extra"): 1}] * 4,
            )  # fmt: skip
        unreadable: Any = [[Unreadable(text("drop"))]]
        collector.log(step=3, rollout_logprobs=unreadable, old_logprobs=[[-1.0]])
    (root / "ratioscope.toml").write_text(f'[signals.kl_k3]\nmute = true\nreason = "{text("rules")}"\n')
    (root / "tokens" / FILE).write_bytes(b"no parquet")
    return root


def leaks(folder: Path) -> list[str]:
    """Places below the folder that hold a planted text or an id of a token."""
    wanted = re.compile(rf"(?i)[^\n]{{0,60}}(?:{WORD}|{FIRST_ID // 10}\d)[^\n]{{0,30}}".encode())
    found = ((name, wanted.search(content)) for name, content in _contents(folder))
    return [f"{name}: {match[0]!r}" for name, match in found if match]


def _contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        yield "a name", path.relative_to(folder).as_posix().encode()
        if path.is_file():
            yield from _parts(path.name, path.read_bytes())


def _parts(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """A file, and what is compressed in it."""
    yield name, content
    if name.endswith(".parquet"):
        yield f"rows of {name}", json.dumps(pq.read_table(io.BytesIO(content)).to_pylist(), default=str).encode()
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.namelist():
                yield from _parts(f"{name}/{member}", archive.read(member))
