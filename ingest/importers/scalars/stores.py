"""SQLite stores: MLflow's, whose table `metrics` has a row for each number, and trackio's, which has one for each call of `log`.

A store is read as it lies there. Rows that a journal beside it holds (FILE-wal) are not in it yet.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.flat_json import loaded
from ratioscope.inside import open_regular

from ..databases import connected, database_rows
from ..samples import Rejected
from .number_row import LogChoices, Logged, number, numbers, setting, whole_step

_LARGEST = 1.7976931348623157e308
"""MLflow's number for infinity, which SQL has not."""
_SHOWN = 8


def mlflow_rows(path: Path, choice: LogChoices) -> Iterator[Logged | Rejected]:
    """The metrics of one run of MLflow, in the order in which they were stored. Its parameters are the settings, all as text."""
    runs = {row["run_uuid"]: str(row.get("name") or "") for row in _rows(path, "runs") if _is_kept(row)}
    own = chosen_run(path, runs, choice)
    _look_for_journal(path, choice)
    params = _rows(path, "params") if "params" in tables(path) else ()
    choice.config.update(
        (str(row.get("key")).replace("/", "."), setting(str(row.get("value"))))
        for row in params
        if row.get("run_uuid") == own
    )
    for place, row in enumerate(_rows(path, "metrics")):
        if row.get("run_uuid") == own:
            yield _mlflow_row(path, place, row)


def _mlflow_row(path: Path, place: int, row: Mapping[str, Any]) -> Logged | Rejected:
    name, step, value = str(row.get("key")), whole_step(row.get("step")), number(row.get("value"))
    if step is None or value is None:
        field = "step" if step is None else "value"
        return Rejected(path.name, place, field, f"{field} of {name[:60]} is {str(row.get(field))[:40]!r}")
    if row.get("is_nan"):
        value = float("nan")
    elif abs(value) >= _LARGEST:
        value = float("inf") if value > 0 else float("-inf")
    return Logged(path.name, place, step, {name: value})


def _is_kept(row: Mapping[str, Any]) -> bool:
    return row.get("lifecycle_stage") != "deleted"


def trackio_rows(path: Path, choice: LogChoices) -> Iterator[Logged | Rejected]:
    """The rows of one run of trackio."""
    runs = {row.get("run_id") or row["run_name"]: str(row["run_name"]) for row in _rows(path, "metrics")}
    own = chosen_run(path, runs, choice)
    _look_for_journal(path, choice)
    for row in _rows(path, "configs"):
        if (row.get("run_id") or row.get("run_name")) == own:
            choice.config.update(_trackio_settings(row.get("config")))
    for place, row in enumerate(_rows(path, "metrics")):
        if (row.get("run_id") or row["run_name"]) == own:
            yield from _trackio_row(path, place, row, choice)


def _trackio_settings(text: object) -> dict[str, Any]:
    """The settings that a run was given, without those of trackio's own. Any: JSON of any program."""
    try:
        own = loaded(text if isinstance(text, bytes) else str(text))
    except ValueError:
        return {}
    return {name: value for name, value in own.items() if not name.startswith("_")} if isinstance(own, dict) else {}


def _trackio_row(path: Path, place: int, row: Mapping[str, Any], choice: LogChoices) -> Iterator[Logged | Rejected]:
    text = row.get("metrics")
    try:
        values = loaded(text if isinstance(text, bytes) else str(text).encode())
    except ValueError as error:
        values = None
        yield Rejected(path.name, place, "metrics", f"it is no JSON ({str(error)[:80]})")
    if not isinstance(values, Mapping):
        return
    named = choice.step or "step"
    step = whole_step(values.get(choice.step) if choice.step else row.get("step"))
    if step is None:
        yield Rejected(path.name, place, named, f"it has no whole number as {named}")
    elif own := numbers(values, choice, choice.step):
        yield Logged(path.name, place, step, own)


def chosen_run(path: Path, runs: Mapping[str, str], choice: LogChoices) -> str:
    """The id of the run: the only one, or the one that the user named by its id or name. SourceError otherwise."""
    chosen = [own for own, name in runs.items() if choice.run in (own, name)] if choice.run else list(runs)
    if len(chosen) == 1:
        return chosen[0]
    listed = ", ".join(f"{name or 'without a name'} ({own})" for own, name in list(runs.items())[:_SHOWN])
    wanted = f"no run {choice.run!r}" if choice.run and not chosen else f"{len(chosen)} runs"
    raise SourceError(f"{path}: it holds {wanted}; name one of its {len(runs)} with --run: {listed or 'it has none'}")


def tables(path: Path) -> frozenset[str]:
    """The names of the tables of an SQLite file; none where it is another file."""
    with open_regular(path.parent, path.name) as file:
        if file.read(16) != b"SQLite format 3\x00":
            return frozenset()
        base = connected(file)
        try:
            return frozenset(str(row[0]) for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
        except (sqlite3.Error, UnicodeDecodeError):
            return frozenset()
        finally:
            base.close()


def _rows(path: Path, table: str) -> Iterator[dict[str, Any]]:
    with open_regular(path.parent, path.name) as file:
        yield from database_rows(file, table)


def _look_for_journal(path: Path, choice: LogChoices) -> None:
    journal = path.with_name(f"{path.name}-wal")
    if journal.is_file() and journal.stat().st_size:
        choice.notes.append(
            f"{journal.name} holds rows that are not in {path.name} yet, and that were not read: end the program that"
            " writes it, and import again"
        )
