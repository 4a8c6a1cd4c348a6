"""A commit log cut at every length, as a crash or a copy that is under way leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from ratioscope.ingest.commits.commit_log import CommitLog
from ratioscope.layout import decode_line

from .figures import Figures
from .small_run import Shown, difference, shown, write_small_run


def truncated(folder: Path, *, seed: int, stride: int) -> Figures:
    """The log is read at every length; the whole run at every `stride`-th, and beside the ends of lines."""
    figures = Figures("A commit log cut at every length")
    root = write_small_run(folder / "run", seed=seed, steps=2, ranks=1)
    clean, log = shown(root), next((root / "commits").iterdir())
    content = log.read_bytes()
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    edges = {end + near for end in ends for near in (-1, 1)}
    figures.add(lengths=0, runs_read=0, altered=0)
    for length in range(len(content) + 1):
        log.write_bytes(content[:length])
        _examine_log(figures, root, log, content[:length])
        if length % stride == 0 or length in edges:
            _examine_run(figures, root, clean, length)
    return figures


def _examine_log(figures: Figures, root: Path, path: Path, content: bytes) -> None:
    """Every whole line is read that no later one says anew, and whether there is half a one is known."""
    log = CommitLog(root, path.stem)
    lines = content.split(b"\n")
    wanted = [entry for line in lines[:-1] if (entry := decode_line(line)) is not None]
    figures.demand(_newest(log.advance() or ()) == _newest(wanted), f"length {len(content)}: other entries")
    figures.demand(log.torn == bool(lines[-1]), f"length {len(content)}: torn is {log.torn}")
    figures.add(lengths=1)


def _newest(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entries in order, without their place in the log; of those that commit one file the last."""
    entries = [{name: value for name, value in e.items() if name not in ("line", "chain")} for e in entries]
    last = {entry.get("file", place): entry for place, entry in enumerate(entries)}
    return [entry for place, entry in enumerate(entries) if last[entry.get("file", place)] is entry]


def _examine_run(figures: Figures, root: Path, clean: Shown, length: int) -> None:
    """Rows that no line commits may be missing, whole parts of a step too; a log that ends in order cannot tell of them."""
    found = shown(root)
    lengths = clean.records.group_by("step").len()
    whole = found.records.group_by("step").len().join(lengths, on=["step", "len"])["step"].to_list()
    metrics = found.metrics.filter(pl.col("step").is_in(whole))
    cut_in_order = Shown(metrics, found.sequences, found.records, clean.facts, ("cut",))
    wrong = difference(cut_in_order, clean)
    figures.demand(wrong is None, f"length {length}: {wrong}")
    figures.add(runs_read=1, altered=int(wrong is not None))
