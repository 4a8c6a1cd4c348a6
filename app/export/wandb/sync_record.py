"""The record of what was sent to one W&B run, as a small file in the user's cache folder: a second sync sends only what is new.

It lies outside the run folder, because a reader does not write into a run. A lock keeps two syncs of one run apart.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ratioscope.errors import ConfigError
from ratioscope.ingest.files.cache_folder import cache_folder
from ratioscope.whole_file import whole_file

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

SCHEMA = "ratioscope-wandb/1"


@dataclass(frozen=True)
class Destination:
    """The place that a run is sent to."""

    project: str
    """The project in W&B; for another logger its name and place."""
    entity: str | None
    """The user or team that owns the project; None: W&B's default."""
    group: str | None
    """The group of the run in W&B; None: no group."""
    offline: bool
    """True: W&B writes a folder that `wandb sync` uploads later, and nothing is sent now."""
    text: bool
    """True if prompts and tokens may be sent."""


@dataclass
class SyncRecord:
    """The steps and facts sent so far."""

    rows: int = 0
    """Rows of the W&B run: the number of the next one."""
    steps: dict[str, str] = field(default_factory=dict)
    """step -> the digest of its scalars."""
    alerts: dict[str, int] = field(default_factory=dict)
    """signal, gap and first step of an alert -> the worst severity that was sent."""
    report: str = ""
    """The digest of what the newest report was made of; "" before the first one."""
    state: str = ""
    """The state of the run that was sent last."""
    schema: str = SCHEMA
    """The version of this record: a file of another version is refused."""


def wandb_id(run: "Run") -> str:
    """The id of the W&B run: of the run's name and time of creation, so that a moved folder keeps it; else of its path."""
    created = run.info.get("created")
    parts = [run.name, str(created)] if created else [str(run.path.resolve())]
    return f"ratioscope-{_digest(parts)}"


@contextmanager
def sync_record(target: Destination, run_id: str) -> Iterator[tuple[SyncRecord, Path]]:
    """The record of what was sent there, and its file. ConfigError while another sync of the run goes on."""
    folder = cache_folder()
    if folder is None:
        raise ConfigError("there is no home folder to keep in what was sent; wanted XDG_CACHE_HOME=/a/folder")
    where = [target.project, target.entity or "", "offline" if target.offline else "online", run_id]
    path = folder.parent / "wandb" / f"{_digest(where)}.json"
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    with _locked(path.with_suffix(".lock"), run_id):
        yield _read(path), path


def keep(record: SyncRecord, path: Path) -> None:
    """Writes the file; it appears whole or not at all."""
    with whole_file(path) as file:
        file.write(json.dumps(asdict(record)).encode())


def _read(path: Path) -> SyncRecord:
    try:
        known = SyncRecord(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return SyncRecord()
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged(path) from error
    tables = isinstance(known.steps, dict) and isinstance(known.alerts, dict)
    if known.schema != SCHEMA or not isinstance(known.rows, int) or not isinstance(known.report, str) or not tables:
        raise _damaged(path)
    return known


def _damaged(path: Path) -> ConfigError:
    return ConfigError(f"{path} does not say what was sent; remove it to send the whole run again")


@contextmanager
def _locked(path: Path, run_id: str) -> Iterator[None]:
    """Holds the lock; a process that ends gives it back, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows has none
        yield
        return
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"another sync of this run to {run_id} goes on; wait for its end, or end it") from None
        yield


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
