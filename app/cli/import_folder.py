"""The folder of an import: beside the new run while rows are written, and the run itself once it is whole."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ratioscope.errors import ConfigError

from ..export.whole_file import place_error
from ..presentation.digits import count
from ..upkeep.import_units import UNITS, ImportChanged, roll_back
from .interruption import ended_in_order
from .terminal import note

_PLACE = "a new run in a folder"


@contextmanager
def new_run(run: Path) -> Iterator[Path]:
    """A folder that becomes the run if nothing is raised. Otherwise its whole units are kept, and it is removed if it has none.

    An import that was killed leaves a folder `.NAME.importing` behind. The next one says so, and goes on behind its last whole
    unit. ConfigError while another import writes it.
    """
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise ConfigError(f"{run} exists already; give the name of a new run with -o")
    with place_error(run, _PLACE):
        run.parent.mkdir(parents=True, exist_ok=True)
    staged = run.parent / f".{run.name}.importing"
    if staged.is_symlink() or (staged.exists() and not staged.is_dir()):
        raise ConfigError(f"{staged} is in the way; remove it")
    was_there = staged.exists()
    with _locked(run, staged), ended_in_order():
        try:
            if was_there:
                _take_up(run, staged)
            yield staged
            if run.is_dir():
                run.rmdir()
            os.replace(staged, run)
        except BaseException as error:
            _leave(run, staged, keeps=not isinstance(error, ImportChanged))
            raise
    (run / UNITS).unlink(missing_ok=True)


def _take_up(run: Path, staged: Path) -> None:
    """Rolls back what an interrupted import left unfinished, and says what is kept of it."""
    begins = f"an import into {run} was interrupted"
    if rows := roll_back(staged):
        note(
            f"{begins}: {count(rows, 'row')} of it are kept if the source still has them, and the import goes on behind them"
        )
    else:
        note(f"{begins}, and what it had written is removed; the import begins anew")


def _leave(run: Path, staged: Path, *, keeps: bool) -> None:
    if keeps and (rows := roll_back(staged)):
        note(f"{count(rows, 'row')} are kept in {staged}: the same import into {run} goes on behind them")
    else:
        shutil.rmtree(staged, ignore_errors=True)


@contextmanager
def _locked(run: Path, staged: Path) -> Iterator[None]:
    """Holds the lock of the folder, which ends with the process. ConfigError where another import holds it."""
    taken = ConfigError(f"another import writes {run} now; wait for it, or give another name with -o")
    with place_error(run, _PLACE):
        staged.mkdir(mode=0o700, exist_ok=True)
    folder = os.open(staged, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise taken from None
        if not staged.exists() or not os.path.samestat(os.fstat(folder), os.stat(staged)):
            raise taken
        yield
    finally:
        os.close(folder)
