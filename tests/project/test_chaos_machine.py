"""Any order of logging, flushing, a disk that fails and heals, a folder that is deleted and a job that starts again."""

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from chaos.figures import Figures
from chaos.full_disk import small_disk
from chaos.logged import logged, parts
from chaos.strike import unsynced
from chaos.truth import compare
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ratioscope import Collector, open_run
from ratioscope.collectors.budget import Budget
from ratioscope.collectors.writing.parquet_sink import ParquetSink

SEED = 5


class Recording(RuleBasedStateMachine):
    """`acknowledged` is what must be readable; a deleted folder takes its steps with it."""

    def __init__(self) -> None:
        super().__init__()
        self.held = ExitStack()
        self.root = Path(self.held.enter_context(tempfile.TemporaryDirectory())) / "run"
        patch = self.held.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("XDG_CACHE_HOME", str(self.root.parent / "cache"))
        self.held.enter_context(unsynced())
        self.free = self.held.enter_context(small_disk(self.root))
        self.seconds, self.step = 0.0, 0
        self.acknowledged: set[tuple[int, int]] = set()
        self.logged: set[tuple[int, int]] = set()
        self.start()

    def start(self) -> None:
        def sink() -> ParquetSink:
            return ParquetSink(self.root, {"name": "machine"}, rank=0, budget=Budget(disk_reserve=0), clock=self.clock)

        self.collector = Collector(self.root, sink=sink)
        self.dropped = 0

    def clock(self) -> float:
        return self.seconds

    @rule(in_parts=st.booleans())
    def log(self, in_parts: bool) -> None:
        batch = logged(SEED, self.step)
        for part in parts(batch, self.step) if in_parts else [batch]:
            self.collector.log(step=self.step, **part)
        self.logged.add((0, self.step))
        self.step += 1

    @rule()
    def flush(self) -> None:
        is_durable, tally = self.collector.flush(60), self.collector.counts.sequences
        is_kept = tally.dropped == self.dropped and not tally.pending
        assert is_kept or not is_durable, "what was lost, or waits, is called durable"
        assert is_durable or not is_kept or not self.free[0], "with room on the disk, and nothing lost, all is durable"
        if is_durable:
            self.acknowledged |= self.logged
        self.dropped = tally.dropped
        self.logged.clear()

    @rule()
    def fill_the_disk(self) -> None:
        """After a flush, like all that changes the disk: else what fails would depend on who is faster."""
        self.flush()
        self.free[0] = 0

    @rule()
    def heal_the_disk(self) -> None:
        self.flush()
        self.free[0], self.seconds = 1 << 30, self.seconds + 60

    @rule()
    def delete_the_folder(self) -> None:
        self.flush()
        shutil.rmtree(self.root, ignore_errors=True)
        self.acknowledged.clear()

    @rule()
    def start_again(self) -> None:
        self.end()
        self.start()

    @rule()
    def read(self) -> None:
        self.flush()
        if (self.root / "run.json").exists():
            figures = Figures("")
            compare(figures, open_run(self.root), SEED, self.acknowledged)
            assert not figures.wrong
        else:
            assert not self.acknowledged

    @invariant()
    def nothing_is_counted_twice(self) -> None:
        tally = self.collector.counts.sequences
        assert 0 <= tally.pending <= tally.offered

    def end(self) -> None:
        self.flush()
        assert self.collector.close(60)
        assert self.collector.counts.sequences.pending == 0

    def teardown(self) -> None:
        try:
            self.end()
            if self.root.exists():
                self.read()
        finally:
            self.held.close()


TestRecording = Recording.TestCase
TestRecording.settings = settings(max_examples=20, stateful_step_count=15, derandomize=True)
