"""Metrics of a run by step and slice, each frame made once and grown with the run."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.layout import SEGMENT_STEPS
from ratioscope.metrics.distribution import Level, histogram_columns
from ratioscope.metrics.engines.slices import WRITTEN
from ratioscope.metrics.frame import metric_frame, statistics_read, unavailable
from ratioscope.metrics.merging import KEYS, merge
from ratioscope.record import GAPS

from ..commits.catalog import Catalog
from ..commits.visible_files import VisibleFiles, visible_files
from ..files.progress import OnProgress
from ..rows.slices import OnDemand, slice_named
from .distributions import distribution_frame
from .growing_table import ByStep, Ingredients, grown
from .kept_tables import FEW_STEPS, MADE_OF, WORTH_KEEPING, KeptTables, name_of
from .row_plan import gaps_on_record
from .row_statistics import FromRows, RowStatistics
from .run_statistics import HISTOGRAMS, SCALARS, RunStatistics

MOST_BYTES = 256 << 20
"""Of statistics tables kept in memory; metric frames are made of what is read anew, so a run can do without them."""
BLOCK = 4 * SEGMENT_STEPS
"""Steps merged at a time for metrics that are not by step, so that a growing run merges its newest steps only."""

Steps = tuple[int, ...]
Block = tuple[Steps, tuple[Hashable, ...]]
"""Some steps that follow each other, and what their rows are made of."""


@dataclass
class RunMetrics:
    """What was computed so far, and of which version of the catalog. kept: tables of earlier starts."""

    catalog: Catalog
    written: RunStatistics
    rows: RowStatistics
    kept: KeptTables
    _visible: tuple[int, VisibleFiles] | None = None
    _gaps: tuple[VisibleFiles, frozenset[str]] | None = None
    _frames: dict[str, ByStep] = field(default_factory=dict)
    _blocks: dict[str, dict[Block, pl.DataFrame]] = field(default_factory=dict)
    _wholes: dict[str, tuple[Ingredients, pl.DataFrame]] = field(default_factory=dict)
    _tables: dict[tuple[str, ...], ByStep] = field(default_factory=dict)
    _made: dict[tuple[str, bool], tuple[int, FromRows]] = field(default_factory=dict)
    _kept_steps: dict[str, int] = field(default_factory=dict)

    @property
    def visible(self) -> VisibleFiles:
        """The visible part of the catalog as it is."""
        if self._visible is None or self._visible[0] != self.catalog.version:
            self._visible = (self.catalog.version, visible_files(self.catalog))
        return self._visible[1]

    @property
    def gaps(self) -> frozenset[str]:
        """Gaps of which some step has both sides, in token rows or in statistics."""
        shown = self.visible
        if self._gaps is None or self._gaps[0] is not shown:
            held = gaps_on_record(shown.token_files)
            if not held.issuperset(GAPS) and set(shown.steps) - set(shown.token_files):
                held |= self.written.gaps(shown)
            self._gaps = (shown, held)
        return self._gaps[1]

    def statistics(self, slice_name: str) -> pl.DataFrame:
        """Merged statistics of any slice; histograms with `all`."""
        if (made := slice_named(slice_name)) is not None:
            return self._of_rows(made, True, None).frame
        return self.table(slice_name, (*SCALARS, *(HISTOGRAMS if slice_name == "all" else ()))).frame

    def frame(
        self,
        by: Sequence[str],
        progress: OnProgress | None,
        steps: range | None = None,
        names: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """metric_frame of the run, or of these steps of it. names: only these metrics."""
        name = slice_of(by)
        if (made := slice_named(name)) is not None:
            by_step = not {"step", "attempt"}.isdisjoint(by)
            if steps is None:
                return metric_frame(self._of_rows(made, by_step, progress).frame, by, names)
            files = {step: own for step, own in self.visible.token_files.items() if step in steps}
            return metric_frame(self.rows.of(files, made, by_step=by_step, progress=progress).frame, by, names)
        if steps is not None:
            chosen = {step for step in self.visible.steps if step in steps}
            if "step" in by and (_what(by, names) in self._frames or 2 * len(chosen) > len(self.visible.steps)):
                return within(self.frame(by, progress, names=names), steps)
            return metric_frame(self.written.of(self.visible, name, _columns(names), chosen), by, names)
        return self._by_step(by, names) if "step" in by else self._whole(by, names)

    def _by_step(self, by: Sequence[str], names: Sequence[str] | None) -> pl.DataFrame:
        shown, what = self.visible, _what(by, names)
        now = self.written.ingredients(shown)

        def fresh(steps: set[int]) -> pl.DataFrame:
            return metric_frame(self.written.of(shown, slice_of(by), _columns(names), steps), by, names)

        before = self._frames.get(what) or self._kept_by_step(what, now)
        own = grown(before, now, fresh, _order(by))
        self._frames[what] = own
        if len(now) - self._kept_steps.get(what, 0) >= (WORTH_KEEPING if what in self._kept_steps else FEW_STEPS):
            self._kept_steps[what] = len(now)
            names_now = self._proofs(now)
            named = pl.DataFrame(
                {"step": list(names_now), MADE_OF: list(names_now.values())},
                schema={"step": pl.Int64, MADE_OF: pl.String},
            )
            self.kept.keep(what, own.frame.join(named, on="step", how="inner", maintain_order="left"))
        return own.frame

    def _kept_by_step(self, what: str, now: Ingredients) -> ByStep | None:
        """What was kept of a long run at an earlier start, as far as it is what would be made today."""
        if len(now) < FEW_STEPS:
            return None
        names = self._proofs(now)
        rows = self.kept.load(what, names)
        if rows is None or rows.is_empty():
            return None
        wanted = pl.DataFrame(
            {"step": list(names), MADE_OF: list(names.values())}, schema={"step": pl.Int64, MADE_OF: pl.String}
        )
        same = rows.with_columns(pl.col(MADE_OF).cast(pl.String)).join(
            wanted, on=["step", MADE_OF], how="semi", maintain_order="left"
        )
        held = same["step"].unique().to_list()
        self._kept_steps[what] = len(held)
        return ByStep({step: now[step] for step in held}, same.drop(MADE_OF))

    def _proofs(self, now: Ingredients) -> dict[int, str]:
        proofs = self.written.proofs(self.visible)
        return {step: proofs[made_of] for step, made_of in now.items() if made_of in proofs}

    def _whole(self, by: Sequence[str], names: Sequence[str] | None) -> pl.DataFrame:
        """Metrics over all steps, merged from blocks of steps."""
        shown, what = self.visible, _what(by, names)
        now = self.written.ingredients(shown)
        known = self._wholes.get(what)
        if known is None or known[0] is not now:
            merged = self._merged(shown, slice_of(by), _columns(names))
            known = self._wholes[what] = (now, metric_frame(merged, by, names))
        return known[1]

    def _merged(self, shown: VisibleFiles, slice_name: str, columns: Sequence[str]) -> pl.DataFrame:
        """Statistics of a slice merged over all steps; with one slice the others and the whole are, for
        whoever looks at one looks on."""
        now = self.written.ingredients(shown)
        ordered = sorted(now)
        parts = [tuple(ordered[start : start + BLOCK]) for start in range(0, len(ordered), BLOCK)]
        blocks = {block: tuple(dict.fromkeys(now[step] for step in block)) for block in parts}
        together = WRITTEN if slice_name in WRITTEN[1:] and tuple(columns) == SCALARS else (slice_name,)
        over = tuple(key for key in KEYS if key != "step")
        known = {each: self._known_blocks(each, columns, blocks) for each in together}
        found: dict[str, dict[Block, pl.DataFrame]] = {each: {} for each in together}
        for one in blocks.items():
            missing = [each for each in together if one not in known[each]]
            if len(missing) > 1:
                self.written.prefetch(shown, missing, columns, set(one[0]))
            fresh = [self.written.of(shown, each, columns, set(one[0])) for each in missing]
            merged = dict(zip(missing, _apart(merge(pl.concat(fresh), over), missing), strict=True)) if fresh else {}
            for each in together:
                found[each][one] = merged[each] if each in merged else known[each][one]
        for each in together:
            self._blocks[_merged_of(each, columns)] = found[each]
            self._keep_blocks(_merged_of(each, columns), found[each], len(now))
        rows = list(found[slice_name].values()) or [self.written.of(shown, slice_name, columns, set())]
        return merge(pl.concat(rows, how="diagonal_relaxed"), [key for key in over if key in rows[0].columns])

    def _known_blocks(
        self, slice_name: str, columns: Sequence[str], blocks: Mapping[Steps, tuple[Hashable, ...]]
    ) -> dict[Block, pl.DataFrame]:
        what = _merged_of(slice_name, columns)
        return self._blocks[what] if what in self._blocks else self._kept_blocks(what, blocks)

    def _block_names(self, blocks: Iterable[Block]) -> dict[str, Block]:
        proofs = self.written.proofs(self.visible)
        return {
            name_of(block, *(proofs[source] for source in made_of)): (block, made_of)
            for block, made_of in blocks
            if all(source in proofs for source in made_of)
        }

    def _kept_blocks(self, what: str, blocks: Mapping[Steps, tuple[Hashable, ...]]) -> dict[Block, pl.DataFrame]:
        if len(blocks) * BLOCK < FEW_STEPS:
            return {}
        names = self._block_names(blocks.items())
        rows = self.kept.load(what, frozenset(names))
        if rows is None:
            return {}
        self._kept_steps[what] = rows[MADE_OF].n_unique() * BLOCK
        return {
            names[str(name)]: own.drop(MADE_OF).filter(pl.col("gap").is_not_null())
            for (name,), own in rows.group_by(MADE_OF, maintain_order=True)
        }

    def _keep_blocks(self, what: str, found: Mapping[Block, pl.DataFrame], steps: int) -> None:
        if steps - self._kept_steps.get(what, 0) < (BLOCK if what in self._kept_steps else FEW_STEPS):
            return
        self._kept_steps[what] = steps
        nothing = next(iter(found.values())).clear(1)  # a quarter of a second for a hundred of them
        named = [  # a block without rows is kept as a row of nulls, so that it need not be looked for again
            (found[key] if len(found[key]) else nothing).with_columns(pl.lit(name).alias(MADE_OF))
            for name, key in self._block_names(found).items()
        ]
        if named:
            self.kept.keep(what, pl.concat(named, how="diagonal_relaxed"))

    def exact(self, slice_name: str) -> bool:
        """Whether no row that was kept by chance, and no file that was set aside, stands behind the slice."""
        if (made := slice_named(slice_name)) is None:
            return not self.written.sampled(self.visible)
        by_step = (made.name, True) in self._made
        return self._of_rows(made, by_step, None).exact and not any(
            path.startswith("tokens/") for path in self.catalog.set_aside
        )

    def unavailable(self) -> dict[str, str]:
        """Metrics without a value over the whole run, and why."""
        return unavailable(self._merged(self.visible, "all", SCALARS))

    def distribution(self, level: Level, gap: str) -> pl.DataFrame:
        """Occupied buckets by step."""
        return distribution_frame(self.table("all", histogram_columns(level)).frame, level, gap)

    def table(self, slice_name: str, columns: Sequence[str]) -> ByStep:
        """Statistics of a written slice with these columns."""
        what = (slice_name, *columns)
        own = self.written.table(self.visible, slice_name, columns, self._tables.pop(what, None))
        self._tables[what] = own  # the newest last
        sizes = {name: table.frame.estimated_size() for name, table in self._tables.items()}
        for name in list(self._tables)[:-1]:
            if sum(sizes.values()) > MOST_BYTES:
                del self._tables[name], sizes[name]
        return own

    def _of_rows(self, made: OnDemand, by_step: bool, progress: OnProgress | None) -> FromRows:
        known = self._made.get((made.name, by_step))
        if known is not None and known[0] == self.catalog.version:
            return known[1]
        found = self.rows.of(self.visible.token_files, made, by_step=by_step, progress=progress)
        self._made[made.name, by_step] = (self.catalog.version, found)
        return found


def within(frame: pl.DataFrame, steps: range) -> pl.DataFrame:
    """Rows of these steps."""
    if not steps:
        return frame.clear()
    lowest, highest = min(steps[0], steps[-1]), max(steps[0], steps[-1])
    if abs(steps.step) == 1:
        return frame.filter(pl.col("step").is_between(lowest, highest))
    return frame.filter(pl.col("step").is_in(list(steps)))


def _apart(merged: pl.DataFrame, slices: Sequence[str]) -> list[pl.DataFrame]:
    """The rows of each slice: merging all at once takes hardly longer than one of them."""
    return [merged.filter(pl.col("slice") == name) for name in slices]


def slice_of(by: Sequence[str]) -> str:
    """The slice that these group columns name, `all` if none; ConfigError if they name several."""
    slices = [name for name in by if name not in ("step", "attempt")]
    if len(slices) > 1:
        raise ConfigError(f"by={tuple(by)!r} names {len(slices)} slices; wanted at most one beside step and attempt")
    return slices[0] if slices else "all"


def _order(by: Sequence[str]) -> list[str]:
    return [*(name for name in by if name in KEYS), *(name for name in by if name not in KEYS)]


def _columns(names: Sequence[str] | None) -> tuple[str, ...]:
    return SCALARS if names is None else statistics_read(names)


def _merged_of(slice_name: str, columns: Sequence[str]) -> str:
    return f"merged {slice_name} {' '.join(columns)}"


def _what(by: Sequence[str], names: Sequence[str] | None) -> str:
    return f"metrics by {' '.join(by)} of {'all' if names is None else ' '.join(sorted(names))}"
