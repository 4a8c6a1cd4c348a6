"""A run of W&B's server, read page by page with W&B's own client and the user's own login.

`scan_history` gives every row; `history` would give a sample of 500. A page that fails is asked for again from its first row.

The numbers that a trainer logged have the trainer's own names, beside the metrics of ours that they come close to.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ratioscope.errors import ConfigError, MissingExtra, SourceError
from ratioscope.metrics.logged_names import likely_trainers

from ..samples import Rejected
from ..wandb_log import LogRecord
from .framed_logs import own_settings, wandb_row
from .number_row import LogChoices, Logged, number, step_field
from .sources import ScalarSource

SCHEME = "wandb:"
PAGE = 1000
"""Rows of a page."""
TRIES = 4
"""Times that one page is asked for."""
_LOOKED_AT = 20


def is_online(source: Path) -> bool:
    """True for wandb://ENTITY/PROJECT/RUN. A path has the two strokes of it as one."""
    return source.parts[:1] == (SCHEME,)


def online_rows(
    source: Path, choice: LogChoices, *, api: Any = None, sleep: Callable[[float], object] = time.sleep
) -> Iterator[Logged | Rejected]:
    """The rows of a run of the server. api: a wandb.Api (Any: wandb is an optional package), or what stands in for it."""
    name = "/".join(source.parts[1:])
    if len(source.parts) != 4:
        raise ConfigError(f"{name or source} names no run of W&B; wanted wandb://ENTITY/PROJECT/RUN")
    run = _opened(api or _api(), name)
    if isinstance(settings := getattr(run, "config", None), Mapping):
        choice.config = own_settings(settings)
    pages = _pages(run, name, sleep)
    rows = (row for page in pages for row in page)
    first = list(islice(rows, _LOOKED_AT))
    step = step_field(first, choice, "_step")
    place = 0
    for part in (first, rows):
        for row in part:
            yield from wandb_row(name, place, LogRecord("history", _dotted(row)), step, choice)
            place += 1


def _dotted(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested values under names joined by dots, as W&B's own log has them."""
    values: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            values |= _dotted(value, f"{before}{name}.")
        else:
            values[f"{before}{name}"] = value
    return values


def _pages(run: Any, name: str, sleep: Callable[[float], object]) -> Iterator[list[Mapping[str, Any]]]:
    """Every page, in order. W&B counts its rows as _step: the next page begins after the last row that was read."""
    newest, last = -1, int(getattr(run, "lastHistoryStep", -1))
    while newest < last:
        page = _page(run, name, newest + 1, min(newest + 1 + PAGE, last + 1), sleep)
        yield page
        newest = min(newest + PAGE, last)


def _page(run: Any, name: str, least: int, most: int, sleep: Callable[[float], object]) -> list[Mapping[str, Any]]:
    for attempt in range(TRIES):
        try:
            rows = run.scan_history(min_step=least, max_step=most, page_size=PAGE)
            return _each_once(row for row in rows if least <= row.get("_step", least) < most)
        except Exception as error:  # W&B raises errors of its own, of its protocol, and of its process
            words = " ".join(str(error).split())[:200]
            if attempt + 1 == TRIES:
                raise SourceError(
                    f"{name}: W&B did not give rows {least} to {most - 1} in {TRIES} tries: {type(error).__name__}: {words};"
                    " try again later"
                ) from error
            sleep(2.0**attempt)
    raise AssertionError("unreachable")


def _each_once(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows with their own _step. If a part of the run lies in files, W&B's client gives rows of a page from both."""
    return list({row.get("_step", f"row {place}"): row for place, row in enumerate(rows)}.values())


def _opened(api: Any, name: str) -> Any:
    try:
        return api.run(name)
    except Exception as error:  # as above
        words = " ".join(str(error).split())[:200]
        raise SourceError(f"W&B has no run {name} for this login: {type(error).__name__}: {words}") from error


def _api() -> Any:
    """A client with the user's own login. ConfigError if nobody is logged in; no key is asked for, and none is read here."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    try:
        import wandb
    except ImportError as error:
        raise MissingExtra("import wandb://", "wandb") from error
    if not wandb.login(prompt=False, verify=False):
        raise ConfigError("nobody is logged in to W&B here; try: wandb login, or set WANDB_API_KEY")
    return wandb.Api(timeout=30)


def _nothing(path: Path, choice: LogChoices) -> Iterator[Logged | Rejected]:
    raise ConfigError(f"{path} is no run of W&B's server; wanted wandb://ENTITY/PROJECT/RUN")


ONLINE = ScalarSource(
    "wandb-online", "a run of W&B's server", "", lambda path: False, _nothing, "histograms, tables and media"
)


@dataclass
class Scalar:
    """A number that was logged again and again."""

    rows: int = 0
    not_finite: int = 0
    """The number of these rows where it is NaN or infinite."""
    last_row: int | None = None
    """W&B's own number of the newest row with it."""
    last: float = float("nan")
    """Its value in that row."""


def scalars(entries: Iterable[LogRecord]) -> dict[str, Scalar]:
    """name -> what its rows hold. W&B's own names, texts, and parts of histograms and tables are left out."""
    values: dict[str, Scalar] = {}
    for entry in entries:
        if entry.kind != "history":
            continue
        kinds = tuple(name.removesuffix("_type") for name in entry.values if name.endswith("._type"))
        for name, value in entry.values.items():
            own = number(value)
            if own is None or name.startswith("_") or (kinds and name.startswith(kinds)):
                continue
            scalar = values.setdefault(name, Scalar())
            scalar.rows += 1
            scalar.not_finite += own - own != 0
            scalar.last, scalar.last_row = own, _row(entry.values.get("_step"))
    return values


def likely_dialect(names: Iterable[str]) -> str | None:
    """The trainer of which most of these names are known; None if none is, ConfigError if two trainers have as many."""
    best = likely_trainers(names)
    if len(best) > 1:
        raise ConfigError(
            f"the names of this log are those of {' and '.join(best)} alike; wanted to know which trainer wrote it: try --dialect"
            f" {best[0]}"
        )
    return best[0] if best else None


def _row(value: object) -> int | None:
    return value if isinstance(value, int) else None
