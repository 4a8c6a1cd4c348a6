"""The distance of two columns of log-probs: mean |x| and K3 over sampled tokens, with errors that take sequences as units."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ratioscope.arrays import Floats, Integers
from ratioscope.record import sides

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

KEYS = ("sequence_id", "minibatch", "mask", "inclusion_probability")


@dataclass(frozen=True)
class Distance:
    """The distance of a later column from an earlier one, both in nats."""

    tokens: int
    """Tokens that were compared."""
    set_aside: int
    """Tokens of which a log-prob is NaN or infinite."""
    mean: float
    """mean |x|, nats/token."""
    mean_error: float
    """Its standard error; NaN below two sequences."""
    k3: float
    """mean(exp(x) - 1 - x), nats/token: an estimate of KL(earlier || later) where the earlier policy sampled the tokens."""
    k3_error: float
    """Its standard error; NaN below two sequences."""
    largest: float
    """max |x|."""


@dataclass(frozen=True)
class SequenceSums:
    """Sums over the tokens of each sequence, weighted by the number of sequences that it stands for; they add over steps."""

    absolute: Floats
    """sum of |x|."""
    k3: Floats
    """sum of exp(x) - 1 - x."""
    counts: Floats
    """Tokens."""
    tokens: int
    """Tokens that were compared, each once."""
    set_aside: int
    """Tokens of which a log-prob is NaN or infinite."""
    largest: float
    """max |x|; NaN without a token."""

    @property
    def distance(self) -> Distance:
        """The distance over these sequences."""
        means = (ratio(self.absolute, self.counts), ratio(self.k3, self.counts))
        (mean, mean_error), (k3, k3_error) = means
        return Distance(self.tokens, self.set_aside, mean, mean_error, k3, k3_error, self.largest)


SumsByStep = Mapping[int, SequenceSums]


def distance(x: Floats, sequence: Integers, weight: Floats | None = None) -> Distance:
    """The distance from log-ratios. sequence: a number per token. weight: sequences that each token's sequence stands for."""
    return sequence_sums(x, sequence, weight).distance


def sequence_sums(x: Floats, sequence: Integers, weight: Floats | None = None) -> SequenceSums:
    known = np.isfinite(x)
    kept, times = x[known], np.ones(int(known.sum())) if weight is None else weight[known]
    _, code = np.unique(sequence[known], return_inverse=True)
    with np.errstate(over="ignore"):
        k3 = np.expm1(kept) - kept
    absolute = np.abs(kept)
    return SequenceSums(
        _added(code, times * absolute),
        _added(code, times * k3),
        _added(code, times),
        len(kept),
        int((~known).sum()),
        float(absolute.max()) if len(kept) else float("nan"),
    )


def sums_of(run: "Run", gaps: Iterable[str], steps: Iterable[int]) -> dict[str, SumsByStep]:
    """gap -> step -> the sums of its log-ratio. Steps without the gap are left out. The rows of a step are read once for all."""
    wanted = tuple(gaps)
    sums: dict[str, dict[int, SequenceSums]] = {gap: {} for gap in wanted}
    for step in steps:
        frame = run.tokens([step], [*KEYS, *wanted]).collect()
        sampled = frame.filter(pl.col("mask").fill_null(True))
        for gap in wanted:
            own, code, weight = rows_with(sampled, (gap,))
            if not own.is_empty():
                sums[gap][step] = sequence_sums(own[gap].to_numpy(), code, weight)
    return dict(sums)


def sums_of_steps(parts: Iterable[SequenceSums]) -> SequenceSums:
    """The sums of several steps; at least one."""
    every: Sequence[SequenceSums] = list(parts)
    return SequenceSums(
        np.concatenate([part.absolute for part in every]),
        np.concatenate([part.k3 for part in every]),
        np.concatenate([part.counts for part in every]),
        sum(part.tokens for part in every),
        sum(part.set_aside for part in every),
        max((part.largest for part in every if part.tokens), default=float("nan")),
    )


def distances_of(run: "Run", gap: str, steps: list[int]) -> dict[int | None, Distance]:
    """step -> the distance of the gap's sides there; None -> over all these steps. Steps without the gap are left out."""
    by_step = sums_of(run, (gap,), steps)[gap]
    whole: dict[int | None, Distance] = {None: sums_of_steps(by_step.values()).distance} if by_step else {}
    return whole | {step: own.distance for step, own in by_step.items()}


def rows_with(frame: pl.DataFrame, gaps: Sequence[str]) -> tuple[pl.DataFrame, Integers, Floats]:
    """The tokens that have all these gaps, a number per sequence, and how many sequences each token's one stands for."""
    own = frame.drop_nulls(list(gaps))
    if not any("current" in sides(gap) for gap in gaps):  # the same in every minibatch: a sequence counts once
        own = own.filter(
            pl.col("minibatch").fill_null(-1) == pl.col("minibatch").fill_null(-1).min().over("sequence_id")
        )
    code = own.select(pl.struct("sequence_id", "minibatch").rank("dense"))[:, 0].to_numpy().astype(np.int64)
    return own, code, 1 / own["inclusion_probability"].fill_null(1.0).to_numpy()


def _added(code: Integers, values: Floats) -> Floats:
    return np.bincount(code, values).astype(np.float64, copy=False)


def ratio(totals: Floats, counts: Floats) -> tuple[float, float]:
    """A mean over tokens and its standard error, by the ratio estimator over sequences."""
    if not len(totals):
        return float("nan"), float("nan")
    mean, number = float(totals.sum() / counts.sum()), len(totals)
    if number < 2:
        return mean, float("nan")
    spread = float(((totals - mean * counts) ** 2).sum() * number / (number - 1))
    return mean, float(np.sqrt(spread) / counts.sum())
