"""The pages of the edge runs as files: the figures of a run are drawn once for all tests of a process."""

from functools import cache
from pathlib import Path

from ratioscope.app.static_site.material import Material, material
from ratioscope.ingest.run import open_run
from support.edge_runs import made


@cache
def material_of(runs: Path, name: str) -> Material:
    """The source of the pages of the edge run of this name; it keeps its figures once they are drawn."""
    return material(open_run(made(runs, name)))
