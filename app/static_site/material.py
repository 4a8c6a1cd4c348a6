"""The material of the pages: the data of the report, and the data that only pages show. The run is read once."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property, partial

import polars as pl

from ratioscope.ingest.analysis.events_and_alerts import EventsAndAlerts, events_and_alerts
from ratioscope.ingest.run import Run
from ratioscope.metrics.grading.limits import Limit, limits_of
from ratioscope.metrics.metric import Metric

from ..blocks import Chart, in_theme
from ..pages.answered import Answered, answered
from ..pages.read_run import read_view
from ..pages.scope import Scope
from ..pages.worst_of_run import worst_of
from ..presentation.noise_floor import with_floor
from ..referee.side_off import side_off
from ..report.data import STAGES, ReportData, report_data
from ..report.drawings import Drawing, drawing, figures_of
from ..report.without_texts import on_paper

READING = (*STAGES, "alerts", "pages")
"""The stages of `material` and of the pages, in order."""


@dataclass(frozen=True)
class Material:
    """A run as its pages read it. No secret and no home folder is in the data of the report."""

    run: Run
    data: ReportData
    alerts: EventsAndAlerts

    @property
    def gap(self) -> str:
        """The gap of the pages: the verdict's, else the first on record."""
        return self.data.gap

    @property
    def course(self) -> pl.DataFrame:
        """Metrics by step, null where the digits of the file are too few."""
        return self.data.steps

    @cached_property
    def charts(self) -> dict[str, Chart]:
        """The charts of the report by their names."""
        return {
            name: Chart(name, label, in_theme, (draw,), name.startswith(("severity", "heat-")))
            for name, _, _, label, draw in figures_of(self.data)
        }

    @cached_property
    def scope(self) -> Scope:
        """The scope of the pages: all of the run."""
        found = self.data.diagnosis
        known = Answered(self.run.revision, found.result, found.context, found.reason)
        made: dict[tuple[object, ...], object] = {
            (answered, "", None): known,
            (side_off,): self.data.side,
            (worst_of, self.gap): self.data.worst,
        }
        return Scope(read_view(self.run, made), self.gap, floor=self.data.floor)

    @cached_property
    def _drawn(self) -> dict[tuple[Hashable, ...], Drawing]:
        return {}

    def drawn(self, chart: Chart) -> Drawing:
        """The chart in both themes, drawn once however many files hold it. Another chart of its name gets a number behind it."""
        key = (chart.name, chart.make, *(() if chart.make is in_theme else chart.of))  # `of` holds a frame there
        if key not in self._drawn:
            others = sum(name == chart.name for name, *_ in self._drawn)
            name = f"{chart.name}-{others + 1}" if others else chart.name
            self._drawn[key] = drawing(name, "", self.gap, chart.label, partial(chart.figure))
        return self._drawn[key]

    def limits(self, metric: Metric) -> tuple[Limit, ...]:
        """The limits of a metric of the gap, with the noise floor."""
        return with_floor(limits_of(metric, self.gap, self.data.signals), metric, self.gap, self.data.floor)


def material(run: Run, *, text: bool = True, stage: Callable[[str], None] = lambda name: None) -> Material:
    """Reads the run. text: False leaves prompts and token texts out. stage: called with the name of each of READING."""
    run = on_paper(run, text=text)
    data = report_data(run, text=text, stage=stage)
    stage("alerts")
    return Material(run, data, events_and_alerts(run))
