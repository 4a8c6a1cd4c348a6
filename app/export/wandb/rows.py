"""The values of a step for W&B: a few dozen canonical numbers and, at some steps, histograms. Nothing here knows W&B."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ratioscope.ingest.analysis.grades import signal_grades
from ratioscope.ingest.analysis.judged_verdict import judged_verdict
from ratioscope.metrics.distribution import EDGES
from ratioscope.metrics.grading.finding import LABELS, Severity
from ratioscope.metrics.grading.severity import decided

from ...presentation.metric_places import names_at

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

PREFIX = "ratioscope"
STEP, SEVERITY = f"{PREFIX}/step", f"{PREFIX}/severity"
UNMEASURED = -1
"""The severity of a step of which too little is known: below that of a healthy one, so that no rule takes it for health."""
STATE = "run_state"
"""The name of the state of the run, which is one of LIVES."""
MOST_SCALARS = 40
"""Numbers of a row at most, the step and the severity among them: W&B's own guide to what a page of charts can take."""
_OWN = 2


@dataclass(frozen=True)
class StepRow:
    """The values of one step that are sent."""

    step: int
    scalars: Mapping[str, float]
    """`<gap>/<metric>` -> its value. Values that are absent or not finite are left out."""
    severity: int
    """0 healthy, 1 watch, 2 act; UNMEASURED for a step of which too little is known."""
    digest: str
    """A digest of the scalars: a step that a resumed run recorded again has another one."""

    def content(self) -> dict[str, float]:
        """The row under the names that W&B shows."""
        named: dict[str, float] = {STEP: self.step}
        named |= {f"{PREFIX}/{name}": value for name, value in self.scalars.items()}
        return {**named, SEVERITY: self.severity}


def columns_sent(gaps: Sequence[str]) -> tuple[str, ...]:
    """`<gap>/<metric>` of all that is sent: the metrics that have a chart, as many of each gap as MOST_SCALARS allows.

    >>> len(columns_sent(["mismatch", "total", "drift"])) <= MOST_SCALARS, columns_sent(["drift"])[0]
    (True, 'drift/ppo_kl')
    """
    each = (MOST_SCALARS - _OWN) // max(len(gaps), 1)
    return tuple(f"{gap}/{name}" for gap in gaps for name in names_at("chart", gap)[:each])


def step_rows(run: "Run", settled_only: bool) -> Iterator[StepRow]:
    """The rows of all steps in ascending order. settled_only: without steps that may still grow."""
    wanted = columns_sent(run.gaps)
    frame = run.metrics(by=("step",))
    growing = set(run.unsettled) if settled_only else set()
    grades = decided(signal_grades(run))
    severities = dict(zip(grades["step"], grades["severity"].cast(pl.String), strict=True)) if len(grades) else {}
    verdict = judged_verdict(run)
    if set(severities.values()) == {"healthy"} and verdict.severity > Severity.HEALTHY:
        severities = dict.fromkeys(severities, verdict.severity.label)  # a cause of the gap is known for sure
    known = [column for column in wanted if column in frame.columns]
    for row in frame.select("step", *known).sort("step").iter_rows(named=True):
        if row["step"] not in growing:
            yield step_row(row, severities.get(row["step"]))


def step_row(row: Mapping[str, float | None], label: str | None) -> StepRow:
    step = int(row["step"] or 0)
    scalars = {name: value for name, value in row.items() if name != "step" and value is not None}
    finite = {name: value for name, value in scalars.items() if math.isfinite(value)}
    digest = hashlib.sha256(json.dumps([step, finite], sort_keys=True).encode()).hexdigest()[:16]
    return StepRow(step, finite, UNMEASURED if label is None else LABELS.index(label), digest)


@dataclass(frozen=True)
class WandbHistogram:
    """A histogram of log-ratios with finite edges, in nats."""

    counts: tuple[int, ...]
    """Tokens in each bucket."""
    edges: tuple[float, ...]
    """One more than counts, ascending."""


def histograms(run: "Run", gap: str) -> dict[int, WandbHistogram]:
    """step -> its log-ratios of tokens from the first occupied bucket to the last; empty where the run has no histogram.

    The two outermost buckets have no far edge: they are drawn as wide as the range between all edges on their side.
    """
    by_step = run.distribution("token", gap).group_by("step", maintain_order=True)
    return {
        int(str(step)): bucket_counts(rows["bucket"].to_numpy(), rows["count"].to_numpy()) for (step,), rows in by_step
    }


_FINITE = np.concatenate(([2 * EDGES[0]], EDGES, [2 * EDGES[-1]]))


def bucket_counts(buckets: "np.typing.NDArray[np.int16]", counts: "np.typing.NDArray[np.int64]") -> WandbHistogram:
    first, last = int(buckets.min()), int(buckets.max())
    filled = np.zeros(last - first + 1, np.int64)
    filled[buckets - first] = counts
    return WandbHistogram(tuple(filled.tolist()), tuple(_FINITE[first : last + 2].tolist()))
