"""The certificate of exactness: the share of tokens whose two log-probs are equal to the last bit, and the first that is not."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from ratioscope.errors import SourceError
from ratioscope.metrics.diagnosis.grid import Grid, grid_of
from ratioscope.metrics.engines.arrow_columns import measured_rows
from ratioscope.metrics.frame import value_in
from ratioscope.record import sides

from ..rows.token_frame import token_frame
from ..run import Run
from .diagnosis import SAMPLED, diagnosed_gap
from .feature_requirements import why_no_rows
from .resolution import given_grids
from .step_rows import columns_of

_SAMPLE = 2000
"""Log-probs of each step by which the grid of a column is told."""


@dataclass(frozen=True)
class FirstDifference:
    """The first token whose log-probs are not equal to the last bit."""

    step: int
    sequence: str
    position: int
    replica: str | None
    earlier: float | None
    """Its log-prob under the earlier policy, nats."""
    later: float | None
    """Its log-prob under the later policy, nats."""

    @property
    def words(self) -> str:
        """Its place and both log-probs."""
        replica = "" if self.replica is None else f", replica {self.replica}"
        values = " and ".join(
            "none" if value is None else f"{np.float32(value)!s}" for value in (self.earlier, self.later)
        )
        return f"step {self.step}, sequence {self.sequence}, position {self.position}{replica} ({values})"


@dataclass(frozen=True)
class StepExactness:
    """The tokens of one step."""

    step: int
    tokens: int
    """Sampled tokens with rows."""
    equal: int
    """Tokens with two finite log-probs that are equal to the last bit."""
    first: FirstDifference | None
    """None if all are equal."""


@dataclass(frozen=True)
class Exactness:
    """The certificate of one gap of a run."""

    gap: str
    steps: tuple[StepExactness, ...]
    unseen: int
    """Tokens of which only statistics are on record."""
    largest: float | None
    """Largest absolute log-ratio of all tokens, those of which only statistics are on record too; None if not known."""
    grids: Mapping[str, Grid]
    """Policy -> the coarse grid on which its log-probs are stored."""

    @property
    def tokens(self) -> int:
        return sum(step.tokens for step in self.steps)

    @property
    def equal(self) -> int:
        return sum(step.equal for step in self.steps)

    @property
    def first(self) -> FirstDifference | None:
        """The first difference of the run."""
        return next((step.first for step in self.steps if step.first is not None), None)

    @property
    def limits(self) -> str:
        """Why equal values do not certify equal bits, in words; empty if they do."""
        decimals = [f"{policy} has {grid.name}" for policy, grid in self.grids.items() if grid.resolution is not None]
        return f"bits cannot be certified, because the file holds few digits: {', '.join(decimals)}" if decimals else ""

    @property
    def is_certified(self) -> bool:
        """True if every token on record is equal to the last bit, and those without rows have a log-ratio of 0."""
        rows = self.tokens > 0 and self.equal == self.tokens
        return rows and not self.limits and (not self.unseen or self.largest == 0)

    @property
    def words(self) -> str:
        """The certificate in one sentence, without a full stop."""
        shown = f"{self.equal * 1_000_000 // self.tokens / 1e4:g}%"  # rounded down: 100% only if all are
        apart = sum(step.equal < step.tokens for step in self.steps)
        parts = [f"{shown} of {self.tokens:,} tokens are equal to the last bit"]
        if self.first is not None:
            parts += [f"{apart} of {len(self.steps)} steps have tokens that differ", f"the first is {self.first.words}"]
        if self.unseen:
            largest = "not known" if self.largest is None else f"{self.largest:.3g}"
            parts.append(f"{self.unseen:,} tokens have statistics only; the largest log-ratio of all is {largest}")
        floats = [f"{policy} on that of {grid.name}" for policy, grid in self.grids.items() if grid.resolution is None]
        parts += [f"log-probs lie on a grid: {', '.join(floats)}"] if floats else []
        return "; ".join([*parts, *([self.limits] if self.limits else [])])


def exactness_of(run: Run) -> Exactness:
    """The certificate of the mismatch, else of the total. SourceError without token rows of both sides."""
    chosen = diagnosed_gap(run, next((name for name in SAMPLED if name in run.gaps), None))
    steps: list[StepExactness] = []
    samples: dict[str, list[Any]] = {side: [] for side in sides(chosen)}
    for step in run.steps:
        frame = _tokens(run, step, chosen)
        if len(frame):
            steps.append(_step(step, frame))
            for side, column in zip(samples, ("earlier", "later"), strict=True):
                samples[side].append(frame[column].drop_nulls().head(_SAMPLE).cast(pl.Float64).to_numpy())
    if not steps and (reason := run.no_tokens):
        raise SourceError(f"{reason}, of which exactness is measured")
    if not steps:
        raise SourceError(f"the run {run.name} has no token rows with both sides of the {chosen}: {why_no_rows(run)}")
    told = {side: grid for side, parts in samples.items() if (grid := grid_of(np.concatenate(parts))) is not None}
    grids = told | {side: grid for side, grid in given_grids(run.info).items() if side in samples}
    whole = run.metrics(by=(), names=("tokens", "max_abs_log_ratio"))
    all_tokens, largest = (value_in(whole, f"{chosen}/{name}") for name in ("tokens", "max_abs_log_ratio"))
    unseen = max(0, int(all_tokens or 0) - sum(step.tokens for step in steps))
    return Exactness(chosen, tuple(steps), unseen, largest, grids)


def plain_exactness(exactness: Exactness) -> dict[str, Any]:
    """A certificate as values that JSON can hold."""
    return {
        "gap": exactness.gap, "certified": exactness.is_certified, "tokens": exactness.tokens, "equal": exactness.equal,
        "share": exactness.equal / exactness.tokens, "unseen": exactness.unseen, "words": exactness.words,
        "first": None if exactness.first is None else asdict(exactness.first),
        "resolution": {policy: asdict(grid) for policy, grid in exactness.grids.items()},
        "steps": [asdict(step) for step in exactness.steps],
    }  # fmt: skip


def _tokens(run: Run, step: int, gap: str) -> pl.DataFrame:
    """The sampled tokens of a step that the gap counts."""
    records = columns_of(run, step, ("mask", "replica"))
    if not len(records):
        return pl.DataFrame()
    earlier, later = (f"{side}_logprob" for side in sides(gap))
    frame = token_frame(
        records.take(measured_rows(records, gap)), ("sequence_id", "position", "mask", "replica", earlier, later)
    )
    return frame.rename({earlier: "earlier", later: "later"}).filter(pl.col("mask").fill_null(True))


def _step(step: int, frame: pl.DataFrame) -> StepExactness:
    bits = [frame[name].fill_null(float("nan")).to_numpy().astype(np.float32) for name in ("earlier", "later")]
    equal = (bits[0].view(np.uint32) == bits[1].view(np.uint32)) & np.isfinite(bits[0])
    return StepExactness(step, len(frame), int(equal.sum()), None if equal.all() else _first(step, frame, equal))


def _first(step: int, frame: pl.DataFrame, equal: Sequence[bool]) -> FirstDifference:
    row = frame.row(int(np.argmin(equal)), named=True)
    return FirstDifference(step, row["sequence_id"], row["position"], row["replica"], row["earlier"], row["later"])
