"""The loggers that numbers of a step can be sent to, one row each, and the form in which an opened one takes them.

Steps that were not sent are sent, and those that a resumed run recorded again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ratioscope.errors import ConfigError

from ...presentation.run_state import LIVES, state_of
from ..wandb.rows import STATE, STEP, StepRow, step_rows
from ..wandb.sync_record import SyncRecord, keep
from .loggers import mlflow_logger, swanlab_logger, trackio_logger
from .prometheus import prometheus_logger
from .tensorboard import tensorboard_logger

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run


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
