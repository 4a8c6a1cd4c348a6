"""Measurements: tables of contenders that take turns, and curves along a size; both as JSON."""

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "pyarrow", "polars", "pandas", "torch")
CONTENDERS = (
    "wandb",
    "martingale",
    "rlprobe",
    "tensorboard",
    "trackio",
    "duckdb",
    "daft",
    "polars",
    "llvmlite",
    "verl",
)
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
    """The name of its picture and its JSON."""
    title: str
    text: str
    """How it was measured, in whole sentences."""
    unit: str
    against: str
    """Name of the row that the ratios are against."""
    rows: tuple[Row, ...]
    missing: tuple[str, ...] = ()
    """A sentence for each contender that could not run."""


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
    """The quantity that grows: the title of the x axis."""
    lines: tuple[Line, ...]


def in_turns(
    works: Mapping[str, Callable[[], object]], rounds: int, clock: Clock = time.perf_counter, unit: float = 1.0
) -> tuple[Row, ...]:
    """Every work once a round, after one round that does not count; another one begins each round. unit: seconds of one."""

    def taken(work: Callable[[], object]) -> float:
        began = clock()
        work()
        return (clock() - began) / unit

    return told_in_turns({name: partial(taken, work) for name, work in works.items()}, rounds)


def told_in_turns(works: Mapping[str, Callable[[], float]], rounds: int) -> tuple[Row, ...]:
    """The same for works that say what they took."""
    names = list(works)
    told: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(rounds + 1):
        first = round_ % len(names)
        for name in (*names[first:], *names[:first]):
            value = works[name]()
            if round_:
                told[name].append(value)
    return tuple(Row(name, tuple(values)) for name, values in told.items())


def machine(contenders: Path) -> dict[str, Any]:
    """The machine and the versions of the figures. contenders: the environment of the other packages."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "contenders": _contenders(contenders),
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


def _contenders(environment: Path) -> dict[str, str]:
    places = [*map(str, environment.glob("lib/python*/site-packages")), str(environment / "beside_ours")]
    found = {each.name.lower(): each.version for each in distributions(path=places)}
    return {name: found[name] for name in CONTENDERS if name in found}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
