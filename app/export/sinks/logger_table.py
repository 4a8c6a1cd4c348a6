"""The loggers that numbers of a step can be sent to, one row each, and the form in which an opened one takes them.

Steps that were not sent are sent, and those that a resumed run recorded again. MLflow, trackio
and SwanLab are opened here, each by its own package, which finds its user's own login. No line here reads one.

Any: all three are optional packages.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ratioscope.errors import ConfigError, MissingExtra, RatioscopeError

from ...presentation.privacy import scrubbed_text
from ...presentation.run_state import LIVES, state_of
from ..wandb.rows import STATE, STEP, StepRow, step_rows
from ..wandb.sync_record import SyncRecord, keep
from .prometheus import prometheus_logger
from .tensorboard import tensorboard_logger

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run


_TAG = "ratioscope.id"
_LONGEST_NAME = 128


class Called:
    """A logger that is called once for each step, and once at the end."""

    def __init__(self, name: str, log: Callable[[int, Mapping[str, float]], object], end: Callable[[], object]) -> None:
        self._name, self._log, self._end = name, log, end

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        with failing_of(self._name, "take a row"):
            self._log(step, numbers)

    def close(self) -> None:
        with failing_of(self._name, "finish"):
            self._end()


def mlflow_logger(place: str, run_id: str, name: str) -> Called:
    """A run of the experiment `ratioscope` at a tracking URI. A later sync finds the run by its tag."""
    _demand("mlflow")
    mlflow: Any = import_module("mlflow")
    with failing_of("MLflow", "open a run"):
        client = mlflow.tracking.MlflowClient(tracking_uri=place)
        found = client.get_experiment_by_name("ratioscope")
        experiment = client.create_experiment("ratioscope") if found is None else found.experiment_id
        earlier = client.search_runs([experiment], filter_string=f"tags.`{_TAG}` = '{run_id}'", max_results=1)
        run = (
            earlier[0] if earlier else client.create_run(experiment, run_name=name[:_LONGEST_NAME], tags={_TAG: run_id})
        )
        own = run.info.run_id

    def log(step: int, numbers: Mapping[str, float]) -> None:
        for key, value in numbers.items():
            client.log_metric(own, key, value, step=step)

    return Called("MLflow", log, lambda: client.set_terminated(own))


def trackio_logger(place: str, run_id: str, name: str) -> Called:
    """A run of a project on this machine."""
    _demand("trackio")
    trackio: Any = import_module("trackio")
    with failing_of("trackio", "open a run"):
        trackio.init(project=place, name=f"{name[:_LONGEST_NAME]} {run_id[-6:]}", resume="allow")
    return Called("trackio", lambda step, numbers: trackio.log(dict(numbers), step=step), trackio.finish)


def swanlab_logger(place: str, run_id: str, name: str) -> Called:
    """An experiment of a project. SWANLAB_MODE=offline writes a folder and sends nothing."""
    _demand("swanlab")
    swanlab: Any = import_module("swanlab")
    with failing_of("SwanLab", "open a run"):
        swanlab.init(project=place, experiment_name=name[:_LONGEST_NAME])
    return Called("SwanLab", lambda step, numbers: swanlab.log(dict(numbers), step=step), swanlab.finish)


@contextmanager
def failing_of(logger: str, doing: str) -> Iterator[None]:
    """Turns whatever a logger raises into one line."""
    try:
        yield
    except RatioscopeError:
        raise
    except Exception as error:  # each has errors of its own, of its protocol, and of its store
        words = scrubbed_text(" ".join(str(error).split()))[:300]  # a client may quote the address of a request
        raise RatioscopeError(
            f"{logger} could not {doing}: {type(error).__name__}: {words}; what was sent is kept; try the same command again"
        ) from error


def _demand(name: str) -> None:
    if find_spec(name) is None:
        raise MissingExtra(f"ratioscope sync --to {name}", name)


class OpenedLogger(Protocol):
    """An opened logger."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Takes the numbers of a step. A step that is written again replaces the older one."""

    def close(self) -> None:
        """Everything that was written is kept after this."""


@dataclass(frozen=True)
class Logger:
    """A logger that numbers can be sent to."""

    name: str
    place: str
    """The part after the colon of --to."""
    opened: Callable[[str, str, str], OpenedLogger]
    """(place, the run's id, its name) -> the opened logger. MissingExtra where its package is not installed."""
    newest_only: bool = False
    """True if it holds the newest step alone."""


LOGGERS = (
    Logger("tensorboard", "DIR", tensorboard_logger),
    Logger("mlflow", "URI", mlflow_logger),
    Logger("trackio", "PROJECT", trackio_logger),
    Logger("swanlab", "PROJECT", swanlab_logger),
    Logger("prometheus", "FILE", prometheus_logger, newest_only=True),
)
FORMS = "|".join(f"{each.name}:{each.place}" for each in LOGGERS)


def logger_of(text: str) -> tuple[Logger, str]:
    """The logger and the place that --to names. ConfigError for another."""
    name, colon, place = text.partition(":")
    logger = next((each for each in LOGGERS if each.name == name), None)
    if logger is None or not colon or not place:
        raise ConfigError(f"--to {text}: wanted {FORMS}; for W&B: ratioscope wandb sync RUN")
    return logger, place


@dataclass
class LoggerSync:
    """A run, a logger, and what was sent to it."""

    run: "Run"
    logger: Logger
    record: SyncRecord
    file: Path
    """The file that holds `record`."""

    def rows(self, ended: bool) -> list[StepRow]:
        """The rows that were not sent, in ascending order. ended: no step may still grow."""
        rows = list(step_rows(self.run, settled_only=not ended))
        due = [self._with_state(row) for row in rows[-1:]] if self.logger.newest_only else rows
        return [row for row in due if self.record.steps.get(str(row.step)) != row.digest]

    def _with_state(self, row: StepRow) -> StepRow:
        """The row with the state of the run: it is due again when the run has ended, is silent or dead, or is graded anew."""
        life = state_of(self.run.path).life
        return replace(
            row, scalars={**row.scalars, STATE: LIVES.index(life)}, digest=f"{row.digest} {life} {row.severity}"
        )

    def send(self, logger: OpenedLogger, ended: bool) -> int:
        """Sends new rows; returns their number. The steps that were sent are on disk afterwards."""
        rows = self.rows(ended)
        for row in rows:
            logger.write(row.step, {name: value for name, value in row.content().items() if name != STEP})
            self.record.steps[str(row.step)] = row.digest
        if rows:
            keep(self.record, self.file)
        return len(rows)
