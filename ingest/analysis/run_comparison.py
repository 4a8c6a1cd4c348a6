"""Two runs compared: prompt by prompt, and the first step from which they are apart."""

from dataclasses import dataclass

import numpy as np

from ratioscope.metrics.analysis.comparison import Paired, first_apart, paired
from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.record import GAPS

from ..files.progress import OnProgress
from ..run import Run
from .prompt_tables import KEYS, METRICS, PromptKey, of_metric, prompt_table

BY_ITSELF: tuple[PromptKey, ...] = ("prompt_text", "group_id")
"""Keys that are tried unless one is named. A sequence_id tells nothing of the prompt."""


@dataclass(frozen=True)
class PairedRuns:
    """Two runs compared prompt by prompt."""

    key: PromptKey
    """The column by which rows were paired."""
    metric: str
    pairs: Paired
    """The pairs, and the difference over them."""

    @property
    def caution(self) -> str:
        """The facts that partners have in common, and when that is sound."""
        return KEYS[self.key]


@dataclass(frozen=True)
class Parting:
    """The first step from which two runs are apart."""

    step: int
    a: float
    """The value of the first run at the step."""
    b: float
    """The value of the second run."""
    compared: int
    """Number of steps that both runs have."""


def paired_runs(
    a: Run, b: Run, gap: str, key: PromptKey | None = None, *, progress: OnProgress | None = None
) -> PairedRuns | None:
    """The comparison by prompt; None if no key has two partners. key: None tries those of BY_ITSELF. Reads all token rows."""
    metric = size_metric(gap) if size_metric(gap) in METRICS else "abs_log_ratio"
    for name in BY_ITSELF if key is None else (key,):
        tables = [prompt_table(run, _all(run), name, gap, progress=progress) for run in (a, b)]
        pairs = paired(*(of_metric(table, metric) for table in tables))
        if pairs.pairs > 1:
            return PairedRuns(name, metric, pairs)
    return None


def parting(a: Run, b: Run, gap: str) -> Parting | None:
    """The first of two adjacent common steps on which the gap's size differs beyond chance; None if there is none."""
    column = f"{gap}/{size_metric(gap)}"
    frames = [run.metrics(by=("step",), names=(size_metric(gap),), gap=asked_gap(gap)) for run in (a, b)]
    if not all(column in frame.columns and f"{column}_se" in frame.columns for frame in frames):
        return None
    one, other = (frame.select("step", value=column, error=f"{column}_se") for frame in frames)
    both = one.join(other, on="step", suffix="_b").sort("step").drop_nulls(["value", "value_b"])
    values = [both[name].cast(float).fill_null(np.nan).to_numpy() for name in ("value", "error", "value_b", "error_b")]
    at = first_apart(*values)
    return None if at is None else Parting(both["step"][at], values[0][at], values[2][at], len(both))


def asked_gap(gap: str) -> str | None:
    """The gap that Run.metrics is asked for: one with a reading; None for all of GAPS at once."""
    return None if gap in GAPS else gap


def _all(run: Run) -> range:
    return range(run.steps[0], run.steps[-1] + 1) if run.steps else range(0)
