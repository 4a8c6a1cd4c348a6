"""A power cut at every instant, in a model of the disk that forgets what was not synced.

POSIX promises no more: what a file holds is there after the file was synced, a name after the folder that holds it was. Of what
was not synced anything may be there, or nothing. Calls are recorded while they are carried out; after each of them the disk is
laid out as a power cut might leave it, and read.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ratioscope.collectors.budget import Budget
from ratioscope.collectors.process.counts import Tally
from ratioscope.collectors.writing.parquet_sink import ParquetSink
from ratioscope.ingest.run import open_run
from ratioscope.record import arrow_schema

from .figures import Figures

_CALLS = ("open", "mkdir", "write", "ftruncate", "fsync", "close", "replace", "link", "unlink")
_RUN = ("new", "runs", "run")
_ROWS, _TOKENS = 3, 4


def power_cut(folder: Path, *, steps: int, seed: int, stride: int) -> Figures:
    """A writer whose folders another rank has made, and not synced, when it comes to them. The cut comes after every call; what
    was not synced is lost, and at every `stride`-th call it is there by chance."""
    figures = Figures("A power cut, in a model of the disk")
    figures.add(file_calls=0, cuts=0, runs_read=0, acknowledged=0, lost=0)
    place, chance, acknowledged = folder / "disk", random.Random(seed), set[int]()
    place.mkdir()
    disk, root = Disk(place), place.joinpath(*_RUN)

    def look(call: str) -> None:
        if call in ("fsync", "replace", "link") or disk.calls % stride == 0:
            with disk.paused():
                for by in (None, chance) if disk.calls % stride == 0 else (None,):
                    disk.lay_out(folder / "after", by)
                    _examine(figures, folder / "after", acknowledged, f"call {disk.calls} ({call})")

    disk.look = look
    with disk.watching():
        for outer in (
            *reversed(root.parents[: len(_RUN) - 1]),
            root,
            *(root / name for name in ("tokens", "statistics", "commits")),
        ):
            os.mkdir(outer)
        sink = ParquetSink(root, {"name": "cut"}, rank=0, attempt=0, budget=Budget(disk_reserve=0))
        sink.open()
        for step in range(steps):
            os.mkdir(root / "tokens" / f"step={step:09d}")
            outcome = sink.write(step, _rows(step), None, Tally(), None)
            if not sink.save() and outcome.rows == _ROWS:
                acknowledged.add(step)
        sink.say({"kind": "close", "offered": steps * _ROWS, "written": steps * _ROWS, "left_out": 0, "dropped": 0})
    figures.demand(acknowledged == set(range(steps)), f"acknowledged only {sorted(acknowledged)}")
    figures.add(file_calls=disk.calls, acknowledged=len(acknowledged))
    return figures


def _rows(step: int) -> pa.Table:
    values: dict[str, list[Any]] = {
        "attempt": [0] * _ROWS,
        "step": [step] * _ROWS,
        "sequence_id": [f"{step}-{row}" for row in range(_ROWS)],
        "rank": [0] * _ROWS,
        "rollout_logprobs": [[-1.0 - step] * _TOKENS] * _ROWS,
        "old_logprobs": [[-1.1 - step] * _TOKENS] * _ROWS,
    }
    columns = [pa.array(values.get(field.name, [None] * _ROWS), field.type) for field in arrow_schema()]
    return pa.table(columns, schema=arrow_schema())


def _examine(figures: Figures, disk: Path, acknowledged: set[int], when: str) -> None:
    root = disk.joinpath(*_RUN)
    figures.add(cuts=1)
    if not (root / "commits").is_dir() or not any((root / "commits").iterdir()):
        if acknowledged:
            figures.add(lost=len(acknowledged))
            figures.wrong.append(f"{when}: the run is gone")
        return
    figures.add(runs_read=1)
    run = open_run(root)
    read = run.records().select("step", "sequence_id").collect().rows()
    measured = run.metrics()["step"].to_list() if run.steps else []
    for step in sorted(acknowledged):
        ids = {name for at, name in read if at == step}
        if len(ids) < _ROWS or step not in measured:
            figures.add(lost=1)
            figures.wrong.append(f"{when}: step {step} is acknowledged; {len(ids)} of its rows are there")
    figures.demand(len(read) == len(set(read)), f"{when}: rows stand twice")
    figures.demand(not run.quarantined, f"{when}: set aside {run.quarantined}")


@dataclass(eq=False)
class File:
    """What it holds, and what of it is there for good."""

    data: bytes = b""
    durable: bytes = b""


@dataclass(eq=False)
class Folder:
    """Names, those that are there for good, and what happened to names since: (name, what bears it then)."""

    names: dict[str, File | Folder] = field(default_factory=dict)
    durable: dict[str, File | Folder] = field(default_factory=dict)
    since: list[tuple[str, File | Folder | None]] = field(default_factory=list)

    def put(self, name: str, node: File | Folder | None) -> None:
        if node is None:
            self.names.pop(name, None)
        else:
            self.names[name] = node
        self.since.append((name, node))

    def sync(self) -> None:
        self.durable, self.since = dict(self.names), []


class Disk:
    """The model of all below `root`, which is there for good, kept by the calls that are made while it watches."""

    def __init__(self, root: Path) -> None:
        self.path, self.root = root.resolve(), Folder()
        self.calls = 0
        self.look: Callable[[str], None] = lambda call: None
        """Called after each call with its name."""
        self._open: dict[int, File | Folder] = {}

    def _node(self, path: Any, dir_fd: int | None) -> tuple[Folder, str] | None:
        """The folder that holds the name, and the name; None for what lies elsewhere."""
        if dir_fd is not None:
            found = self._open.get(dir_fd)
            return (found, str(path)) if isinstance(found, Folder) else None
        try:
            parts = Path(os.path.abspath(path)).relative_to(self.path).parts
        except ValueError:
            return None
        at: File | Folder | None = self.root
        for part in parts[:-1]:
            at = at.names.get(part) if isinstance(at, Folder) else None
        return (at, parts[-1] if parts else "") if isinstance(at, Folder) else None

    @contextmanager
    def watching(self) -> Iterator[Disk]:
        self._real = {name: getattr(os, name) for name in _CALLS}
        for name in _CALLS:
            setattr(os, name, self._watched(name, self._real[name]))
        try:
            yield self
        finally:
            for name, function in self._real.items():
                setattr(os, name, function)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is called in here is none of the disk's."""
        watched = {name: getattr(os, name) for name in _CALLS}
        for name in _CALLS:
            setattr(os, name, self._real[name])
        try:
            yield
        finally:
            for name, function in watched.items():
                setattr(os, name, function)

    def _watched(self, name: str, real: Any) -> Any:
        def call(*values: Any, **named: Any) -> Any:
            result = real(*values, **named)
            getattr(self, f"_on_{name}")(result, *values, **named)
            self.calls += 1
            self.look(name)
            return result

        return call

    def _on_open(self, result: int, path: Any, flags: int, mode: int = 0, *, dir_fd: int | None = None) -> None:
        if (place := self._node(path, dir_fd)) is None:
            return
        at, name = place
        if name in ("", "."):
            self._open[result] = at
            return
        if name not in at.names:
            at.put(name, File())
        self._open[result] = at.names[name]

    def _on_mkdir(self, _: None, path: Any, mode: int = 0, *, dir_fd: int | None = None) -> None:
        if (place := self._node(path, dir_fd)) is not None:
            place[0].put(place[1], Folder())

    def _on_write(self, result: int, descriptor: int, data: Any) -> None:
        if isinstance(node := self._open.get(descriptor), File):
            node.data += bytes(memoryview(data)[:result])

    def _on_ftruncate(self, _: None, descriptor: int, length: int) -> None:
        if isinstance(node := self._open.get(descriptor), File):
            node.data = node.data[:length]

    def _on_fsync(self, _: None, descriptor: int) -> None:
        node = self._open.get(descriptor)
        if isinstance(node, File):
            node.durable = node.data
        elif node is not None:
            node.sync()

    def _on_close(self, _: None, descriptor: int) -> None:
        self._open.pop(descriptor, None)

    def _on_replace(
        self, _: None, old: Any, new: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        source, target = self._node(old, src_dir_fd), self._node(new, dst_dir_fd)
        if source is not None and target is not None:
            target[0].put(target[1], source[0].names[source[1]])
            source[0].put(source[1], None)

    def _on_link(
        self, _: None, old: Any, new: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        source, target = self._node(old, src_dir_fd), self._node(new, dst_dir_fd)
        if source is not None and target is not None:
            target[0].put(target[1], source[0].names[source[1]])

    def _on_unlink(self, _: None, path: Any, *, dir_fd: int | None = None) -> None:
        if (place := self._node(path, dir_fd)) is not None:
            place[0].put(place[1], None)

    def lay_out(self, target: Path, chance: random.Random | None) -> None:
        """What a power cut at this instant may leave. chance: of what was not synced, by chance; None: nothing of it."""
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        _lay(self.root, target, chance)


def _lay(folder: Folder, target: Path, chance: random.Random | None) -> None:
    names = dict(folder.durable)
    for name, node in folder.since:
        if chance is not None and chance.random() < 0.5:
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node
    for name, node in names.items():
        if isinstance(node, Folder):
            (target / name).mkdir()
            _lay(node, target / name, chance)
        else:
            (target / name).write_bytes(_held(node, chance))


def _held(file: File, chance: random.Random | None) -> bytes:
    if chance is None or file.data == file.durable or chance.random() < 0.5:
        return file.durable
    return (
        file.data[: chance.randint(len(file.durable), len(file.data))]
        if file.data.startswith(file.durable)
        else file.data
    )
