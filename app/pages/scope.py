"""The choices of a page: a run, a gap, a range of steps, a part of the tokens, and other runs beside it."""

from dataclasses import dataclass, field

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.resolution import too_coarse, without_coarse
from ratioscope.ingest.rows.part import Part
from ratioscope.ingest.run import Run
from ratioscope.ingest.statistics.metric_columns import distribution_frame
from ratioscope.metrics.definitions.weights import ESS
from ratioscope.metrics.distribution import Level
from ratioscope.metrics.frame import metric_frame, value_in
from ratioscope.metrics.grading.limits import Limit, limits_of
from ratioscope.metrics.metric import Metric

from ..figures.drawing.faint_run import FaintRun
from ..presentation.noise_floor import NoiseFloor, with_floor
from ..presentation.value_text import bound
from .face import PAPER, Face
from .folder import NO_FOLDER, Folder
from .view import View

NO_STEPS = "The run has no steps in this range."


@dataclass(frozen=True)
class Steps:
    """A range of steps, both ends included; None leaves an end open, a negative first counts from the last step."""

    first: int | None = None
    last: int | None = None

    def of(self, recorded: list[int]) -> range:
        """The range of steps, with open ends filled in from these recorded steps, ascending."""
        if not recorded:
            return range(0)
        first = recorded[0] if self.first is None else self.first
        if first < 0 <= recorded[0]:
            first = recorded[max(0, len(recorded) + first)]
        return range(first, (recorded[-1] if self.last is None else self.last) + 1)

    def chosen(self, recorded: list[int]) -> range | None:
        """The same range; None for all steps, because values of all steps are cached for the next start."""
        return None if self.whole else self.of(recorded)

    def recorded(self, recorded: list[int]) -> list[int]:
        """The recorded steps that lie in the range."""
        chosen = self.of(recorded)
        return [step for step in recorded if step in chosen]

    @property
    def whole(self) -> bool:
        return self.first is None and self.last is None


StepRange = range | None


@dataclass(frozen=True)
class Scope:
    """The choices of a page."""

    view: View
    gap: str = ""
    steps: Steps = field(default_factory=Steps)
    only: Part | None = None
    """The chosen part of the tokens; None for all."""
    floor: NoiseFloor | None = None
    """The baseline, or the values of the pinned run, that charts and cards show; None without one."""
    others: tuple[View, ...] = ()
    """Runs drawn over it, on pages that can do so."""
    reference: View | None = None
    """The pinned run of the folder, drawn faintly; None without one."""
    good: View | None = None
    """The pinned run of a report, drawn faintly; None without one."""
    from_rows: bool = False
    """True if the part is computed from token rows, though statistics on record have it: only rows give its histograms."""
    face: Face = field(default=PAPER, compare=False, repr=False)
    read: tuple[int, ...] = ()
    """Numbers of steps that were read for the part, of this run and of each other: charts are made again after more."""
    runs: Folder = field(default=NO_FOLDER, compare=False, repr=False)
    """The runs that the reader can choose from, this one among them."""

    @property
    def range(self) -> range:
        """The chosen steps of the run."""
        return self.steps.of(self.view.steps)

    @property
    def chosen(self) -> StepRange:
        """The same range; None if no steps were chosen."""
        return self.steps.chosen(self.view.steps)

    @property
    def recorded(self) -> list[int]:
        """The chosen steps that are on record."""
        return self.steps.recorded(self.view.steps)

    @property
    def within(self) -> pl.Expr:
        """True for a row whose step was chosen."""
        chosen = self.range
        return pl.col("step").is_between(chosen.start, chosen.stop - 1)

    def limits(self, metric: Metric) -> tuple[Limit, ...]:
        """The limits of a metric of the gap, with the baseline."""
        return with_floor(limits_of(metric, self.gap, self.view.signals), metric, self.gap, self.floor)

    @property
    def beside(self) -> FaintRun | None:
        """The pinned run at all its tokens, for charts over steps."""
        if self.good is not None:
            return FaintRun(self.good.name, self.good.metrics())
        if self.reference is None or self.floor is None:
            return None
        return FaintRun(f"{self.floor.kind} {self.floor.name}", self.reference.metrics(("step",), None, self.gap))

    def course(self, view: View | None = None) -> pl.DataFrame:
        """Metrics by step for the chosen steps and tokens, of this run or of another view.

        A step on record without any of the chosen tokens has a row of nulls. If no step has any, there are no rows.
        Values that the digits of the file are too few for are null.
        """
        shown = self.view if view is None else view
        return without_coarse(self._course(shown), shown.of(too_coarse))

    def _course(self, shown: View) -> pl.DataFrame:
        chosen = self.steps.chosen(shown.steps)
        if self.only is None:
            return shown.metrics(("step",), chosen, self.gap)
        term = self.only.written
        if term is None or self.from_rows:
            known = shown.of(_part_frame, shown, self.only, *self._read)
            rows = known if chosen is None else known.filter(self.within)
        else:
            frame = shown.metrics(("step", term.slice), chosen, self.gap)
            if term.slice not in frame.columns:
                return frame.clear()
            rows = frame.filter(pl.col(term.slice).cast(pl.String) == term.key)
        steps = pl.Series("step", self.steps.recorded(shown.steps) if len(rows) else [], pl.Int64)
        return steps.to_frame().join(rows.cast({"step": pl.Int64}), on="step", how="left", maintain_order="left")

    def distribution(self, level: Level, step: int | None = None) -> pl.DataFrame:
        """Run.distribution of the chosen tokens, at the chosen steps or at one step."""
        if self.only is None:
            whole = self.view.distribution(level, self.gap)
        else:
            whole = distribution_frame(
                self.view.of(_part_statistics, self.view, self.only, *self._read), level, self.gap
            )
        if step is not None:
            return whole.filter(step=step)
        return whole if self.steps.whole else whole.filter(self.within)

    def whole_part(self, name: str, steps: StepRange) -> float | None:
        """One column of metrics over all chosen tokens of these steps (None: all) together; None where it is not available."""
        if self.only is None:
            return self.view.whole(name, steps)
        rows = self.view.of(_part_statistics, self.view, self.only, *self._read)
        frame = metric_frame(rows if steps is None else rows.filter(pl.col("step").is_in(list(steps))), ())
        return value_in(frame, name)

    def bound_of_ess(self, level: Level, steps: StepRange) -> str:
        """`≤ ` if the tail of these weights cannot be trusted, so that their ESS is only a bound; else empty."""
        metric = ESS[level]
        return bound(metric, *(self.whole_part(f"{self.gap}/{metric.name}{end}", steps) for end in ("", "_se")))

    @property
    def _read(self) -> tuple[str, tuple[int, ...]]:
        return self.gap, self.read


def _part_statistics(run: Run, view: View, part: Part, gap: str, read: tuple[int, ...]) -> pl.DataFrame:
    """Statistics of a part, as far as they were read. read: part of the key of the cache alone."""
    return view.source.part_statistics(run, view.path, part, gap)


def _part_frame(run: Run, view: View, part: Part, gap: str, read: tuple[int, ...]) -> pl.DataFrame:
    """Metrics of a part by step, as far as they were read."""
    return metric_frame(_part_statistics(run, view, part, gap, read))


def steps_of(text: str) -> Steps:
    """`100:200` from 100 to 200, `100:` from 100 on, `:200` up to 200, `-50:` the last 50, `7` step 7 alone; empty: all.

    >>> steps_of("100:200"), steps_of("-50:")
    (Steps(first=100, last=200), Steps(first=-50, last=None))
    """
    first, colon, last = text.strip().partition(":")
    try:
        ends = [int(end) if end.strip() else None for end in (first, last)]
    except ValueError:
        raise ConfigError(f"steps {text!r}: wanted first:last, such as 100:200, 100: or -50: (the last 50)") from None
    steps = Steps(*ends) if colon else Steps(ends[0], ends[0])
    if steps.first is not None and steps.last is not None and steps.first > steps.last:
        raise ConfigError(f"steps {text!r}: the first lies after the last")
    return steps
