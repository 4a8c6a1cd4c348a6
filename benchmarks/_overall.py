"""Files of overall statistics in the runs that benchmarks write: the collector writes one for eight full segments."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

# pyright does not see what sys.path holds at run time
from support.run_folders import FakeWriter  # pyright: ignore[reportMissingImports]

from ratioscope import layout
from ratioscope.collectors.writing.run_files import RunFiles
from ratioscope.collectors.writing.segments import Overall


class Repeated:
    """Takes the segments of a writer that never change again, and repeats their overall statistics."""

    def __init__(self, fake: FakeWriter) -> None:
        self._fake = fake
        self._overall = Overall(RunFiles(fake.root, fake.writer, fake.say).write_overall)

    def add(self, segment: Mapping[str, Any], rows: pa.Table) -> None:
        """segment: its commit line."""
        self._overall.add(dict(segment), rows)
        if len(self._overall) == layout.OVERALL_SEGMENTS:
            self.end()

    def end(self) -> None:
        """Writes the file of the segments that wait, and its line."""
        if len(self._overall):
            (line,), _ = self._overall.written()
            self._fake.say(**line)
