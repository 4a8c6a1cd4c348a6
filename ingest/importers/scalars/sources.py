"""The table of scalar logs: how each is known, and who reads it."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from ratioscope.errors import ConfigError, RatioscopeError, SourceError, UnsafeFile
from ratioscope.redaction import without_secrets

from ..compression import plain_name
from ..confinement import FileLimits
from ..containers import Content, container_of, content
from ..detection import candidates, fitting
from ..samples import LOGPROBS, Rejected
from ..wall import each_apart
from ..wandb_log import run_name
from .event_files import event_rows
from .framed_logs import SWANLAB, WANDB, is_log, swanlab_rows, wandb_rows
from .number_row import STEP_NAMES, LogChoices, Logged, flat, number
from .stores import mlflow_rows, tables, trackio_rows
from .text_files import FIREWORKS_STEPS, fireworks_rows, prime_rl_rows, table_rows, trainer_state_rows, verl_rows

_FIRST = 1 << 20
"""Bytes of a text that are looked at."""


@dataclass(frozen=True)
class ScalarSource:
    """One kind of scalar log."""

    name: str
    title: str
    files: str
    """Names of its files, as patterns."""
    known: Callable[[Path], bool]
    """True if a file whose name fits is of this kind, by its content."""
    rows: Callable[[Path, LogChoices], Iterator[Logged | Rejected]]
    lacks: str = ""
    """The values that it lacks beside tokens."""


def _has_tables(*names: str) -> Callable[[Path], bool]:
    return lambda path: set(names) <= tables(path)


def _is_verl(path: Path) -> bool:
    row = next(iter(_first_rows(path, 1)), None)
    return isinstance(row, dict) and set(row) == {"step", "data"} and isinstance(row["data"], dict)


def _is_trainer_state(path: Path) -> bool:
    with path.open("rb") as file:
        return b'"log_history"' in file.read(_FIRST)


def is_table(path: Path) -> bool:
    """True for a table whose rows have steps of their own, more numbers than texts, and no lists: no dump has all that."""
    rows = _first_rows(path)
    if not rows or not all(isinstance(row, dict) for row in rows):
        return False
    named = [dict(flat(row)) for row in rows]
    step = next((name for name in STEP_NAMES if name in named[0]), None)
    steps = [row.get(step or "") for row in named]
    others = [value for row in named for name, value in row.items() if name != step and value is not None]
    numbers = sum(map(_is_number, others))
    is_dump = any(isinstance(value, list) for value in others) or any(name in named[0] for name in LOGPROBS)
    again = sum(a == b for a, b in zip(steps, steps[1:], strict=False))
    is_log = step is not None and not is_dump and 2 * again < len(steps) and numbers > len(others) - numbers
    return is_log and not _has_marks(path, rows)


def _has_marks(path: Path, rows: Sequence[Any]) -> bool:
    """True if the rows are those of a dump, by its name and its fields."""
    return fitting(Content(rows=iter(rows)), candidates(path.name))[0] is not None


def _has_fields(*names: str, any_of: frozenset[str] = frozenset(), most: int = 8) -> Callable[[Path], bool]:
    """True of a log whose first rows all have these fields, and one of `any_of` if there are any."""

    def known(path: Path) -> bool:
        rows = _first_rows(path, most)
        own = [row.keys() if isinstance(row, dict) else set() for row in rows]
        return bool(own) and all(each >= set(names) and (not any_of or each & any_of) for each in own)

    return known


def _is_number(value: Any) -> bool:
    if number(value) is not None:
        return True
    try:
        return isinstance(value, str) and float(value) is not None
    except ValueError:
        return False


def _first_rows(path: Path, most: int = 8) -> list[Any]:
    try:
        with content(path, container_of(path.name) or "", {}, FileLimits(_FIRST * 64)) as opened:
            rows = opened.whole if isinstance(opened.whole, list) else opened.rows or ()
            return list(islice(rows, most))
    except (RatioscopeError, KeyError, OSError):
        return []


SOURCES = (
    ScalarSource(
        "wandb", "W&B's own log of a run", "run-*.wandb", lambda path: is_log(path, WANDB), wandb_rows,
        "histograms, tables and media",
    ),
    ScalarSource(
        "tensorboard", "TensorBoard event files", "*tfevents*", lambda path: True, event_rows,
        "histograms, texts that are no settings, and pictures; float32 has 7 digits",
    ),
    ScalarSource(
        "swanlab", "SwanLab's log of a run (0.10)", "*.swanlab", lambda path: is_log(path, SWANLAB), swanlab_rows, "media",
    ),
    ScalarSource(
        "mlflow", "MLflow's SQL store in SQLite", "*.db", _has_tables("metrics", "runs", "experiments"), mlflow_rows,
        "artifacts; rows of a journal beside the file",
    ),
    ScalarSource(
        "trackio", "trackio's SQLite store", "*.db", _has_tables("metrics", "configs", "system_metrics"), trackio_rows,
        "media and system metrics; rows of a journal beside the file",
    ),
    ScalarSource("verl-file", "verl's file logger", "*.jsonl", _is_verl, verl_rows),
    ScalarSource(
        "trainer-state", "trainer_state.json of the Hugging Face trainers", "trainer_state.json", _is_trainer_state,
        trainer_state_rows,
    ),
    ScalarSource(
        "fireworks-metrics", "metrics.jsonl of the Fireworks cookbook", "*.jsonl", _has_fields("step", any_of=FIREWORKS_STEPS),
        fireworks_rows,
        "records of the producer, whose steps are events",
    ),
    ScalarSource(
        "prime-rl-metrics", "metrics.jsonl of prime-rl's file monitor", "*.jsonl", _has_fields("step", "time", "producer"),
        prime_rl_rows,
        "rows that name no step: of engines and machines",
    ),
    ScalarSource(
        "rlprobe", "rlprobe's numbers of each step", "steps.parquet",
        _has_fields("step", "kl_positional", "zero_variance_group_frac", most=1), table_rows,
        "samples, which have texts and mean log-probs, and events",
    ),
    ScalarSource("scalar-table", "a table of numbers by step", "*.jsonl *.ndjson *.json *.csv *.parquet", is_table, table_rows),
)  # fmt: skip
BY_NAME = {source.name: source for source in SOURCES}
_MOST_FILES = 10_000
_TIME = re.compile(r"\d+\.\d+")


@dataclass(frozen=True)
class LogFiles:
    """The files of one log, in the order of their starts."""

    source: ScalarSource
    files: tuple[Path, ...]
    passed_over: tuple[str, ...] = ()
    """Other files of the same run that hold nothing more."""
    name: str = ""
    """The name of its run, where a folder holds several."""


def named_source(name: str) -> ScalarSource:
    """The source of this name. ConfigError for an unknown one."""
    if name not in BY_NAME:
        raise ConfigError(f"--from {name}: there is no such log; wanted one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def log_kind(path: Path, among: Iterable[ScalarSource] = SOURCES) -> ScalarSource | None:
    """The kind of log that a file is; None for a file that is none. It decodes the file: ask behind the wall."""
    return next((each for each in among if _has_name(each, path) and each.known(path)), None)


def log_kinds(paths: Sequence[Path], among: Sequence[ScalarSource] = SOURCES) -> Iterator[ScalarSource | None]:
    """The kind of log that each file is, found out behind the wall. None for a file whose decoder is ended."""
    named = [path for path in paths if any(_has_name(each, path) for each in among)]

    def name(path: Path) -> str | None:
        kind = log_kind(path, among)
        return None if kind is None else kind.name

    kinds, looked_at = each_apart(name, named), set(named)
    for path in paths:
        kind = next(kinds) if path in looked_at else None
        yield kind and BY_NAME[kind]


def logs_at(path: Path, wanted: ScalarSource | None = None) -> tuple[LogFiles, ...]:
    """The logs at a path, each of one run: that of a file, or those of one kind in a folder. SourceError if nothing is there.

    Without a wanted source a folder is searched for files of loggers alone, because any dump may be a table.
    """
    if path.is_file():
        source = wanted or next(log_kinds([path]))
        return () if source is None else (LogFiles(source, (path,)),)
    if not path.is_dir():
        raise SourceError(f"{path}: there is no such file or folder; check the path")
    kinds = (wanted,) if wanted is not None else SOURCES[:-1]
    below = [file for file in islice(sorted(path.rglob("*")), _MOST_FILES) if file.is_file() and not file.is_symlink()]
    found = list(zip(below, log_kinds(below, kinds), strict=True))
    for source in kinds:
        if files := [file for file, kind in found if kind is source]:
            return _by_run(path, source, files)
    if wanted is not None:
        raise SourceError(f"{path}: no file in it is {wanted.title} ({wanted.files})")
    return ()


def _by_run(path: Path, source: ScalarSource, files: Sequence[Path]) -> tuple[LogFiles, ...]:
    """Event files of a folder continue each other, a trainer_state.json holds all earlier ones; each other file is a run."""
    if source.name == "trainer-state":
        steps = dict(zip(files, each_apart(_last_step, files), strict=True))
        newest = max(files, key=lambda file: (-1 if steps[file] is None else steps[file], file.as_posix()))
        older = tuple(file.relative_to(path).as_posix() for file in files if file != newest)
        return (LogFiles(source, (newest,), older),)
    if source.name == "tensorboard":
        folders = {file.parent for file in files}
        found = {file: _folder_of_run(file, folders) for file in files}
        runs = [
            LogFiles(
                source, tuple(sorted((file for file in files if found[file] == folder), key=_order)), name=folder.name
            )
            for folder in dict.fromkeys(found.values())
        ]
    else:
        named = each_apart(run_name, files) if source.name == "wandb" else (file.parent.name for file in files)
        runs = [LogFiles(source, (file,), name=name or file.stem) for file, name in zip(files, named, strict=True)]
    return tuple(_each_named(runs))


def _each_named(runs: Sequence[LogFiles]) -> Iterator[LogFiles]:
    """The runs, each with a name of its own that a folder can have. A taken name has that of its file, or a number, behind it."""
    taken = set[str]()
    for run in runs:
        plain, file = _plain(run.name), _plain(run.files[0].stem)
        others = (f"{plain}-{place}" for place in range(2, len(runs) + 2))
        name = next(each for each in (plain, f"{plain}-{file}", *others) if each.lower() not in taken)
        taken.add(name.lower())
        yield replace(run, name=name)


def _plain(name: str) -> str:
    """The name as a folder may have it, without secrets and at most 100 characters."""
    return re.sub(r"[^\w.@+=-]+", "-", without_secrets(name)).strip(".-")[:100] or "run"


def _folder_of_run(file: Path, folders: Collection[Path]) -> Path:
    """The folder of the run of an event file. PyTorch puts hyperparameters into a folder below it that is named for the time."""
    outer = file.parent.parent
    return outer if outer in folders and _TIME.fullmatch(file.parent.name) else file.parent


def _order(file: Path) -> tuple[bool, int, str]:
    """The place among the event files of a run: those of hyperparameters first, then by time."""
    digits = [part for part in file.name.split(".") if part.isdigit() and len(part) < 16]
    return _TIME.fullmatch(file.parent.name) is None, int(digits[0]) if digits else 0, file.name


def _last_step(file: Path) -> int:
    try:
        with content(file, "json", {}, FileLimits(_FIRST * 4096)) as opened:
            step = opened.whole.get("global_step") if isinstance(opened.whole, dict) else None
    except UnsafeFile:
        return -1
    return step if isinstance(step, int) else -1


def _has_name(source: ScalarSource, path: Path) -> bool:
    name = Path(plain_name(path.name))
    return any(name.match(pattern) for pattern in source.files.split())
