"""The effect of a trainer's own correction on the steps of a run, in the same sums as for every Correction."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.arrays import Array, Floats, Integers
from ratioscope.errors import SchemaError

from ..corrections.corrected_tokens import CorrectedTokens
from ..corrections.correction import Correction, WeightedGap
from ..corrections.effect import CarriedOut, schema
from ..engines.arrow_columns import pc, row_keys, stands_for, step_groups
from . import dialect
from .batch import DialectBatch, batch_arrays
from .evaluation import Evaluation


def dialect_sums(
    records: pa.Table, name: str, config: Mapping[str, Any], *, version: str | None = None, title: str | None = None
) -> pa.Table:
    """A table of corrections.effect.SUMS per (attempt, step), see `dialect_carried_out`."""
    done = dialect_carried_out(records, name, config, version=version, title=title)
    return pa.concat_tables([schema().empty_table(), *(each.sums() for each in done)])


def dialect_carried_out(
    records: pa.Table, name: str, config: Mapping[str, Any], *, version: str | None = None, title: str | None = None
) -> Iterator[CarriedOut]:
    """For each (attempt, step): the trainer's own correction carried out.

    The gap is mismatch if the records have `old`, else total. SchemaError if the records lack an array that the weights or the
    mask are computed from.
    """
    for each in dialect_evaluations(records, name, config, version):
        if lacks := " and ".join(each.evaluation.lacks):
            raise SchemaError(f"the batch has no {lacks}, which this setting reads: log {lacks}")
        gap: WeightedGap = "mismatch" if each.batch.old_logprobs is not None else "total"
        rollout = each.batch.needed("rollout_logprobs").astype(np.float64)
        later = each.batch.needed("old_logprobs" if gap == "mismatch" else "current_logprobs")
        log_ratio = later.astype(np.float64) - rollout
        sampled = each.batch.mask & ~np.isnan(log_ratio)
        ones: Array = np.ones(each.batch.shape)
        weight = np.asarray(ones if each.evaluation.weights is None else ones * each.evaluation.weights, np.float64)
        result = CorrectedTokens(
            log_ratio=log_ratio.reshape(-1),
            sequence=np.repeat(np.arange(each.batch.shape[0]), each.batch.shape[1]),
            sampled=sampled.reshape(-1),
            weight=weight.reshape(-1),
            mask=(each.evaluation.mask & sampled).reshape(-1),
            clipped=_clipped(each.batch, weight, sampled).reshape(-1),
        )
        token = np.arange(len(result.sequence))
        yield CarriedOut(each.attempt, each.step, Correction(title or name, (), gap), result, each.times, token)


@dataclass(frozen=True)
class Evaluated:
    """A trainer's evaluation of one (attempt, step)."""

    attempt: int
    step: int
    batch: DialectBatch
    evaluation: Evaluation
    times: Floats | None
    """See CarriedOut."""


def dialect_evaluations(
    records: pa.Table, name: str, config: Mapping[str, Any], version: str | None = None
) -> Iterator[Evaluated]:
    """For each (attempt, step): the trainer's evaluation of its sequences, each as the first minibatch that has it reads it.

    A sequence that no minibatch has counts by its row without one. A step without a token that counts is left out: a
    trainer divides by the number of tokens there.
    """
    trainer = dialect(name)
    for (attempt, step), part in _steps(records).items():
        batch = batch_arrays(part)
        if batch.mask.any():
            times = stands_for(part, np.arange(len(part)))
            yield Evaluated(attempt, step, batch, trainer.evaluate(batch, config, version=version), times)


def _steps(records: pa.Table) -> dict[tuple[int, int], pa.Table]:
    first = records.take(_first_minibatch(records)).drop_columns(["minibatch"])
    groups = step_groups(first, np.arange(len(first)))
    keys = zip(groups.attempts.tolist(), groups.steps.tolist(), strict=True)
    return {key: first.filter(pa.array(groups.of_row == group)) for group, key in enumerate(keys)}


def _first_minibatch(records: pa.Table) -> Integers:
    """The index of one row per (attempt, step, sequence): that of its first minibatch, else the one without a minibatch."""
    minibatch = records["minibatch"]
    if minibatch.null_count == len(records):
        return np.arange(len(records))
    order = pc.fill_null(minibatch.cast(pa.int64()), np.iinfo(np.int64).max).to_numpy()
    keys = row_keys(records)
    rank = np.lexsort((order, keys))
    return np.sort(rank[np.diff(keys[rank], prepend=-1) != 0])


def _clipped(batch: DialectBatch, weight: Array, sampled: Array) -> Array:
    """True if each token's weight differs from the weight without bounds.

    An Evaluation does not contain the weight without bounds. A trainer may weigh per token, per sequence or by geometric
    mean, with old or current, and divide by the mean of the batch. The candidate that matches the most tokens up to a common
    factor is taken as the weight without bounds. The tolerance 1e-4 allows for float32.
    """
    if not sampled.any():
        return np.zeros_like(sampled)
    fits = []
    with np.errstate(all="ignore"):
        for raw in _unbounded(batch, sampled):
            factor = weight / raw
            fits.append(sampled & ~np.isclose(factor, np.median(factor[sampled]), rtol=1e-4, atol=0.0))
    return min(fits, key=np.count_nonzero)


def _unbounded(batch: DialectBatch, sampled: Array) -> Iterator[Array]:
    """The candidates for the weights without bounds, (rows, positions)."""
    yield np.ones(batch.shape)
    tokens = np.maximum(sampled.sum(axis=1, keepdims=True), 1)
    for later in (batch.old_logprobs, batch.current_logprobs):
        if later is not None:
            log_ratio = np.where(sampled, later.astype(np.float64) - batch.needed("rollout_logprobs"), 0.0)
            total = log_ratio.sum(axis=1, keepdims=True) + np.zeros(batch.shape)
            yield from (np.exp(log_ratio), np.exp(total), np.exp(total / tokens))
