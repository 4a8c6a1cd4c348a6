"""The pages and reports of the edge runs as files: the figures of a run are drawn once for all tests of a process."""

from functools import cache
from pathlib import Path

from ratioscope.app.blocks import Chart
from ratioscope.app.documents.html import charts_of
from ratioscope.app.documents.material import Material, material
from ratioscope.app.documents.report import html_report
from ratioscope.ingest.run import open_run
from support.edge_runs import made


@cache
def material_of(runs: Path, name: str) -> Material:
    """The source of the pages of the edge run of this name; it keeps its figures once they are drawn."""
    return material(open_run(made(runs, name)))


@cache
def report_of(runs: Path, name: str, *, interactive: bool = False) -> str:
    """The report on the edge run of this name, in one of its two forms; each takes seconds to write."""
    return html_report(material_of(runs, name), interactive=interactive)


def charts_in(read: Material, section: str = "") -> dict[str, Chart]:
    """The charts of the report of a run by their names, of one section or of all."""
    wanted = (blocks for each, blocks in read.printed if section in ("", each.name))
    return {chart.name: chart for blocks in wanted for chart in charts_of(blocks)}
