"""Measurements: tables of contenders that take turns, and curves along a size; both as JSON."""

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "pyarrow", "polars", "pandas", "torch", "wandb", "duckdb", "martingale", "rlprobe")
Clock = Callable[[], float]


@dataclass(frozen=True)
class Row:
    """One contender."""

    name: str
    values: tuple[float, ...]
    """One per round, in the unit of the table."""


@dataclass(frozen=True)
class Table:
    """Contenders that did the same work in turns."""

    name: str
    """Of its picture and its JSON."""
    title: str
    text: str
    """How it was measured, in whole sentences."""
    unit: str
    against: str
    """Name of the row that the ratios are against."""
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Line:
    """One cost along a size."""

    name: str
    sizes: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]
    """For each size, one value per round."""


@dataclass(frozen=True)
class Growth:
    """Costs along a size, for a plot with both axes logarithmic."""

    name: str
    title: str
    text: str
    unit: str
    along: str
    """What grows, as the title of the x axis."""
    lines: tuple[Line, ...]


def in_turns(
    works: Mapping[str, Callable[[], object]], rounds: int, clock: Clock = time.perf_counter, unit: float = 1.0
) -> tuple[Row, ...]:
    """Every work once a round, after one round that does not count; another one begins each round. unit: seconds of one."""
    names = list(works)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(rounds + 1):
        first = round_ % len(names)
        for name in (*names[first:], *names[:first]):
            began = clock()
            works[name]()
            if round_:
                taken[name].append((clock() - began) / unit)
    return tuple(Row(name, tuple(values)) for name, values in taken.items())


def machine() -> dict[str, Any]:
    """What the figures belong to."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "load": round(os.getloadavg()[0], 1),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def as_json(parts: Sequence[Table | Growth]) -> list[dict[str, Any]]:
    """Tables and curves as plain values."""
    return [{"kind": type(part).__name__, **asdict(part)} for part in parts]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
