"""Metrics of a run by step and slice, each frame made once and grown with the run."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.metrics.distribution import Level, histogram_columns
from ratioscope.metrics.frame import metric_frame, unavailable
from ratioscope.metrics.merge import KEYS

from .by_step import ByStep, grown
from .catalog import Catalog, Sight, sight
from .distributions import distribution_frame
from .row_statistics import FromRows, Progress, RowStatistics
from .run_statistics import HISTOGRAMS, SCALARS, RunStatistics
from .slices import OnDemand, slice_named


@dataclass
class RunMetrics:
    """What was computed so far, and of which version of the catalog."""

    catalog: Catalog
    written: RunStatistics
    rows: RowStatistics
    _sight: tuple[int, Sight] | None = None
    _frames: dict[tuple[str, ...], tuple[ByStep, ByStep]] = field(default_factory=dict)
    _tables: dict[tuple[str, ...], tuple[int, ByStep]] = field(default_factory=dict)
    _made: dict[tuple[str, bool], tuple[int, FromRows]] = field(default_factory=dict)

    @property
    def sight(self) -> Sight:
        """The visible part of the catalog as it is."""
        if self._sight is None or self._sight[0] != self.catalog.version:
            self._sight = (self.catalog.version, sight(self.catalog))
        return self._sight[1]

    def statistics(self, slice_name: str) -> pl.DataFrame:
        """Merged statistics of any slice; histograms with `all`."""
        if (made := slice_named(slice_name)) is not None:
            return self._of_rows(made, True, None).frame
        return self.table(slice_name, (*SCALARS, *(HISTOGRAMS if slice_name == "all" else ()))).frame

    def frame(self, by: Sequence[str], progress: Progress | None) -> pl.DataFrame:
        """metric_frame of the run."""
        name = slice_of(by)
        if (made := slice_named(name)) is not None:
            return metric_frame(self._of_rows(made, not {"step", "attempt"}.isdisjoint(by), progress).frame, by)
        table = self.table(name, SCALARS)
        before = self._frames.get(tuple(by))
        if before is not None and before[0] is table:
            return before[1].frame
        if "step" in by:
            own = grown(
                before and before[1], table.ingredients, lambda steps: metric_frame(_of(table, steps), by), _order(by)
            )
        else:
            own = ByStep({}, metric_frame(table.frame, by))
        self._frames[tuple(by)] = (table, own)
        return own.frame

    def exact(self, slice_name: str) -> bool:
        """Whether no row that was kept by chance, and no file that was set aside, stands behind the slice."""
        if (made := slice_named(slice_name)) is None:
            self.table(slice_name, SCALARS)
            return not self.written.sampled
        by_step = (made.name, True) in self._made
        return self._of_rows(made, by_step, None).exact and not any(
            path.startswith("tokens/") for path in self.catalog.set_aside
        )

    def unavailable(self) -> dict[str, str]:
        """Metrics without a value over the whole run, and why."""
        return unavailable(self.table("all", SCALARS).frame)

    def distribution(self, level: Level, gap: str) -> pl.DataFrame:
        """Occupied buckets by step."""
        return distribution_frame(self.table("all", histogram_columns(level)).frame, level, gap)

    def table(self, slice_name: str, columns: Sequence[str]) -> ByStep:
        """Statistics of a written slice with these columns."""
        version = self.catalog.version  # what is set aside while reading makes a new one, for the next call to look at
        known = self._tables.get((slice_name, *columns))
        if known is None or known[0] != version:
            known = (version, self.written.table(self.sight, slice_name, columns))
            self._tables[slice_name, *columns] = known
        return known[1]

    def _of_rows(self, made: OnDemand, by_step: bool, progress: Progress | None) -> FromRows:
        known = self._made.get((made.name, by_step))
        if known is not None and known[0] == self.catalog.version:
            return known[1]
        found = self.rows.of(self.sight.token_files, made, by_step=by_step, progress=progress)
        self._made[made.name, by_step] = (self.catalog.version, found)
        return found


def slice_of(by: Sequence[str]) -> str:
    """The slice that these group columns name, `all` if none; ConfigError if they name several."""
    slices = [name for name in by if name not in ("step", "attempt")]
    if len(slices) > 1:
        raise ConfigError(f"by={tuple(by)!r} names {len(slices)} slices; wanted at most one beside step and attempt")
    return slices[0] if slices else "all"


def _order(by: Sequence[str]) -> list[str]:
    return [*(name for name in by if name in KEYS), *(name for name in by if name not in KEYS)]


def _of(table: ByStep, steps: set[int]) -> pl.DataFrame:
    return table.frame.filter(pl.col("step").is_in(list(steps)))
