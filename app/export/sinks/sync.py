"""Sends what is new of a run to a logger: steps that were not sent, and those that a resumed run recorded again."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...presentation.run_state import LIVES, state_of
from ..wandb.rows import STATE, STEP, StepRow, step_rows
from ..wandb.sync_record import SyncRecord, keep
from .logger_table import Logger, OpenedLogger

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run


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
