"""Task: what a writer writes and where. A writer's process reads it first; a thread that writes has it in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratioscope.layout import SEGMENT_STEPS

from ..budget import Budget
from ..process.notice import warn
from .live_scalars import LiveScalars
from .measured_steps import LoopsFor, numpy_alone
from .parquet_sink import ParquetSink
from .start_files import this_start
from .starts import Existing, settled


@dataclass(frozen=True)
class WriterTask:
    """The task of a writer, as JSON can hold it."""

    root: str
    """The run folder."""
    info: Mapping[str, Any]
    """The content of run.json, with the files of its code."""
    rank: int
    attempt: int | None
    """None: found from the folder."""
    part_of: str | None
    """The group of processes that the writer belongs to, see process/ranks.py."""
    versions: str | None
    """The source of the versions given to `log`, in words."""
    budget: Mapping[str, Any] | None
    """The fields of a Budget."""
    scalars: bool
    """True if the metrics of each step are returned to the trainer."""
    dialect: str | None
    """The trainer under whose names the metrics are returned, too."""
    queue_batches: int
    """Most batches that wait."""
    queue_bytes: int
    """Most bytes that wait."""
    waits: bool
    """True if a call of `log` waits for room in the queue."""
    writer_bytes: int
    """Most bytes of rows that the writer buffers."""
    writer: str | None = None
    """The name of the writer; None: the sink makes one."""
    continues: Sequence[str] = ()
    """Earlier writers of the same collector, which have ended."""
    existing: Existing | None = None
    """The fate of a run that is found, see starts.py; None: the folder is settled."""
    token: str = ""
    """Names the collector, see starts.py."""

    @property
    def steps_at_once(self) -> int:
        """Number of ended steps that wait to be written together: few beside those that the queue may hold."""
        return max(1, min(SEGMENT_STEPS, self.queue_batches // 8))

    def settle(self, tell: Callable[[str], None]) -> "WriterTask":
        """The task with the folder that this start of the job records into, see starts.py. tell: called with that folder."""
        if self.existing is None:
            return self
        place = settled(Path(self.root), self.info, this_start(self.rank, self.token, self.part_of), self.existing)
        if place.words:
            warn("%s", place.words)
        tell(str(place.root))
        return replace(self, root=str(place.root), info=place.info, existing=None)

    def sink(
        self,
        live: LiveScalars | None,
        loops_for: LoopsFor = numpy_alone,
        tell: Callable[[str], None] = lambda root: None,
    ) -> ParquetSink:
        """The sink that writes into the run folder. tell: called with the folder, if it was settled now."""
        own = self.settle(tell)
        return ParquetSink(
            Path(own.root),
            own.info,
            rank=self.rank,
            writer=self.writer,
            continues=self.continues,
            attempt=self.attempt,
            part_of=self.part_of,
            versions=self.versions,
            live=live,
            loops_for=loops_for,
            budget=None if self.budget is None else Budget(**self.budget),
        )
