"""The sentinels of a run, read at few steps: those of the diagnosis, and those that the statistics of all steps point to."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from ratioscope.arrays import Integers
from ratioscope.metrics.diagnosis.causes.records import NEVER
from ratioscope.metrics.diagnosis.marked import since
from ratioscope.metrics.diagnosis.sentinels import Seen, Sentinels, seen, together
from ratioscope.metrics.engines.arrow_columns import flat_values, gap_rows, list_lengths
from ratioscope.metrics.pieces import places
from ratioscope.record import sides

from .non_finite import COLUMNS, FARTHEST, counts_by_step, tokens_of, worst_steps
from .step_rows import columns_of

if TYPE_CHECKING:
    from ..run import Run
    from .diagnosis import RunDiagnosis

MOST_HALVINGS = 12
"""At most so many more steps are read to find the first one with a constant in place of log-probs."""
OF_LOSS = ("loss_mask", "mask_reason")
LABELS = {
    "finish reason": COLUMNS["finish"], "replica": COLUMNS["replica"], "rank": COLUMNS["rank"], "minibatch": COLUMNS["minibatch"],
    "packed row": "pack_index",
}  # fmt: skip
"""Label of `sentinel_places.LABELS` -> its column of the Record."""


def sentinels_of(run: "Run", result: "RunDiagnosis") -> Sentinels | None:
    """The sentinels of the gap that was diagnosed; None if no statistic and no token that was read points to one."""
    counts, bad = _counts(run, result)
    if not (bad.any() or result.fillers):
        return None
    parts = {step: _seen(run, step, result) for step in sorted({*result.steps, *worst_steps(run, counts, bad)})}
    if result.fillers:
        _halve(run, result, parts)
    steps, asked = sorted(parts), _asked(run, result)
    whole = together([parts[step] for step in steps])
    if not whole.found.hit.any():
        return None
    read = ""
    if result.fillers or not bad.any():  # no statistic counts constants
        counts, index = np.unique(whole.found.steps, return_inverse=True)
        bad, read = np.bincount(index, whole.found.count), " of those read" if len(steps) < len(asked) else ""
    return Sentinels(whole, tuple(steps), len(asked), f"{words}{read}" if (words := since(counts, bad)) else "")


def _halve(run: "Run", result: "RunDiagnosis", parts: dict[int, Seen]) -> None:
    """Reads steps before the first one with a sentinel, back to the newest one without: each halves the steps between."""
    rows = sorted(set(run.row_digests()).intersection(_asked(run, result)))
    for _ in range(MOST_HALVINGS):
        first = min((step for step, own in parts.items() if own.found.hit.any()), default=None)
        before = max((step for step in parts if first is not None and step < first), default=None)
        between = [step for step in rows if first is not None and before is not None and before < step < first]
        if not between:
            return
        parts[between[len(between) // 2]] = _seen(run, between[len(between) // 2], result)


def _asked(run: "Run", result: "RunDiagnosis") -> list[int]:
    return [step for step in run.steps if result.among is None or step in result.among]


def _counts(run: "Run", result: "RunDiagnosis") -> tuple[Integers, Integers]:
    """(the steps, the tokens of each that have no finite log-prob, and one for a log-ratio that no token has honestly)."""
    name, frame = f"{result.gap}/{FARTHEST}", run.once(counts_by_step)
    frame = frame.filter(pl.col("step").is_in(_asked(run, result)))
    steps, bad = frame["step"].to_numpy(), np.zeros(len(frame), np.int64)
    if name in frame.columns:
        bad += frame[name].cast(pl.Float64).fill_null(0).to_numpy() > NEVER
    if (own := result.without) is not None:
        bad[np.isin(steps, own.steps)] += (own.without + own.impossible)[np.isin(own.steps, steps)]
    return steps, bad


def _seen(run: "Run", step: int, result: "RunDiagnosis") -> Seen:
    records = columns_of(run, step, ("mask", *OF_LOSS, *LABELS.values()))
    own = gap_rows(records, result.gap)
    lists = [list_lengths(records[f"{policy}_logprobs"].take(own.rows)) for policy in sides(result.gap)]
    tokens = tokens_of(records, own, LABELS)
    among = np.bincount(tokens.row, minlength=len(own.lengths))
    loss = [_flat(records, name, own.rows, own.lengths)[own.mask] for name in OF_LOSS]
    return seen(replace(tokens, position=places(among)), result.fillers, lists[0] - lists[1], loss)


def _flat(records: pa.Table, name: str, rows: Integers, lengths: Integers) -> Integers:
    """The whole number of each token; -1 where it is not known."""
    if name not in records.column_names:
        return np.full(int(lengths.sum()), -1)
    values: Any = flat_values(records[name].take(rows), lengths, None).cast(pa.int64())
    return np.asarray(values.fill_null(-1).to_numpy(zero_copy_only=False))
