"""The statistics that a run lacks and that are computed from its token rows: the work of `ratioscope index`."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from ..rows.slices import OnDemand
from .row_statistics import CachedSteps, FilesByStep, RowStatistics


@dataclass(frozen=True)
class RowWork:
    """Statistics of one slice on demand, or of all written slices."""

    rows: RowStatistics
    made: OnDemand | None
    """The slice on demand; None: the written slices."""
    steps: tuple[FilesByStep, ...]
    """step -> the files to compute it from, for each kind of job. A step may be in two of them."""

    @property
    def by_step(self) -> bool:
        """False for a slice on demand: over the steps of a block its many keys are merged."""
        return self.made is None

    def blocks(self) -> list[CachedSteps]:
        """All of it, in blocks of steps."""
        return [block for steps in self.steps for block in self.rows.blocks(steps, self.made, by_step=self.by_step)]

    def assemble(self, block: CachedSteps, given: Mapping[str, pa.Table]) -> None:
        """Makes the block's table of the tables of its steps, and keeps it. given: name of a step -> its table."""
        self.rows.block(block, self.made, by_step=self.by_step, given=given)
