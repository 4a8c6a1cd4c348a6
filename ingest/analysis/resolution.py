"""The digits that a run's log-probs hold: as its writer said, else as its values show, and what they are too few for."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from ratioscope.metrics.diagnosis.grid import Grid, grid_of
from ratioscope.record import GAPS, POLICIES, sides

from ..rows.token_frame import token_frame
from ..run import Run
from .step_rows import columns_of

SIZES = ("kl_k3", "kl_k2")
"""The size of a gap: the first that the gap has is held against the floor."""
AFFECTED = (*SIZES, "chi2_token", "pareto_k_token", "pareto_k_sequence", "excess_kurtosis")
"""Metrics that rounding makes where the gap is smaller than the floor: differences of second order, and tails."""
_SAMPLE = 4000
"""Log-probs of the newest step by which a grid is told."""


def given_grids(info: Mapping[str, Any]) -> dict[str, Grid]:
    """Policy -> the grid that the writer of the run stated in run.json as `resolution`; impossible values are ignored."""
    stated = info.get("resolution")
    pairs = stated.items() if isinstance(stated, dict) else ()
    return {policy: _stated(value) for policy, value in pairs if policy in POLICIES and _is_size(value)}


def resolutions(run: Run) -> dict[str, Grid]:
    """Policy -> the grid on which its log-probs are stored; one with all digits of float32 is absent. Reads one step at most."""
    grids = given_grids(run.info)
    first_or_last = min if run.is_remote else max  # the first one is fetched once, however the run grows
    step = first_or_last(run.row_digests(), default=None)
    wanted = [policy for policy in run.policies if policy not in grids]
    if step is None or not wanted or not len(records := columns_of(run, step, ())):
        return grids
    frame = token_frame(records, [f"{policy}_logprob" for policy in wanted])
    for policy in wanted:
        values = frame[f"{policy}_logprob"].drop_nulls().head(_SAMPLE).cast(pl.Float64).to_numpy()
        if (grid := grid_of(values)) is not None:
            grids[policy] = grid
    return grids


@dataclass(frozen=True)
class TooCoarse:
    """The size of a gap that the digits of the file alone can make."""

    floor: float
    """K3 of rounding alone, nats/token: a smaller gap cannot be told from none."""
    because: str
    """Follows "not available": `because rollout holds 4 decimals`."""


def too_coarse(run: Run) -> dict[str, TooCoarse]:
    """Gap -> its floor, by the digits that the writer of the run stated; a gap whose sides hold all digits is absent."""
    grids = given_grids(run.info)
    floors = {gap: _floor(grids, sides(gap)) for gap in (*GAPS, *run.reading_gaps)} if grids else {}
    return {gap: TooCoarse(floor, _because(grids, sides(gap))) for gap, floor in floors.items() if floor}


def coarse_words(gap: str, known: TooCoarse) -> str:
    """The sentence on what the digits cannot show."""
    return f"{gap}: K3 below {known.floor:.2g} nats/token, and tails there, are not available, {known.because}"


def without_coarse(frame: pl.DataFrame, coarse: Mapping[str, TooCoarse]) -> pl.DataFrame:
    """The metric frame without the values of AFFECTED, and their errors, of groups whose K3 or K2 lies below the floor."""
    for gap, known in coarse.items():
        size = next((name for one in SIZES if (name := f"{gap}/{one}") in frame.columns), None)
        columns = [f"{gap}/{name}{end}" for name in AFFECTED for end in ("", "_se")]
        if size is not None:
            keep = pl.when(pl.col(size) >= known.floor)
            frame = frame.with_columns(keep.then(pl.col(name)).alias(name) for name in columns if name in frame.columns)
    return frame


def resolution_words(grids: Mapping[str, Grid]) -> list[str]:
    """The uses that the stored digits are too few for, a sentence per policy and gap, without full stops."""
    words = [f"{policy} is stored with {_named(grid)}" for policy, grid in grids.items()]
    for gap, both in GAPS.items():
        floor = _floor(grids, both)
        if floor:
            words.append(
                f"{gap}: K3 below {floor:.2g} nats/token and equality of bits are not available, because of these digits"
            )
    return words


def _floor(grids: Mapping[str, Grid], both: tuple[str, str]) -> float:
    """Half the variance of the rounding of both sides: K3 of two columns that differ by nothing else."""
    sizes = [grids[side].resolution for side in both if side in grids]
    return sum((2 * size) ** 2 / 24 for size in sizes if size is not None)


def _because(grids: Mapping[str, Grid], both: tuple[str, str]) -> str:
    coarse = [side for side in both if side in grids]
    names = " and ".join(dict.fromkeys(grids[side].name for side in coarse))
    return f"because {' and '.join(coarse)} {'holds' if len(coarse) == 1 else 'hold'} {names}"


def _named(grid: Grid) -> str:
    return grid.name if grid.resolution is None else f"{grid.name}: each log-prob is within {grid.resolution:.2g} nats"


def _stated(resolution: float) -> Grid:
    decimals = -math.log10(2 * resolution)
    is_decimal = math.isclose(decimals, round(decimals), abs_tol=1e-6) and decimals > 0.5
    return Grid(f"{round(decimals)} decimals" if is_decimal else "few digits", float(resolution))


def _is_size(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e3
