"""What a Correction does to a step: shares clipped and removed, effective sample size before and after, mean weight.

The effect is read from sums that merge over steps, slices and files, like every other number here. Normalise is the
one exception: it belongs to a batch, so its sums are those of the (attempt, step) it was carried out in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .arrow_columns import gap_rows, step_codes
from .corrected import Corrected, Flags, Floats, Integers, corrected
from .correction import Correction

SUMS = (
    "tokens", "sequences", "kept_tokens", "kept_sequences", "clipped_tokens", "sum_weight", "sum_square_weight",
    "sum_kept_weight", "sum_square_kept_weight", "sum_abs_change",
)  # fmt: skip
KEYS = ("attempt", "step", "correction", "gap")


@dataclass(frozen=True)
class Effect:
    """A value read from SUMS: `value` gets a mapping of float64 arrays by name and returns an array; NaN: nothing to read."""

    name: str
    unit: str
    formula: str
    meaning: str


EFFECTS = (
    Effect("clipped_share", "1", "clipped tokens / sampled tokens", "tokens whose weight a bound changed"),
    Effect(
        "removed_share", "1", "1 - kept tokens / sampled tokens", "tokens taken out of the loss, by mask or zero weight"
    ),
    Effect("removed_share_sequence", "1", "1 - kept sequences / sequences", "sequences of which no token is left"),
    Effect("ess_before", "1", "(sum w)^2 / (n sum w^2), w = exp(x)", "token ESS share of the uncorrected weights"),
    Effect(
        "ess_after",
        "1",
        "(sum v)^2 / (n sum v^2), v what is left of the weights",
        "token ESS share after the correction",
    ),
    Effect("mean_weight", "1", "sum v / n", "effective learning-rate factor: what is left of the loss's total weight"),
    Effect("bias", "1", "sum |v - w| / n", "proxy of the bias: mean change of the weights against exact ones"),
    Effect("variance", "1", "sum v^2 / n - (sum v / n)^2", "proxy of the variance that weighting adds"),
)


def correction_sums(records: pa.Table, corrections: Sequence[Correction]) -> pa.Table:
    """One row per (attempt, step, correction): the sums of SUMS. A correction whose gap is not on record gives no rows."""
    parts = [_sums(records, correction) for correction in corrections]
    return pa.concat_tables(parts) if parts else schema().empty_table()


def schema() -> pa.Schema:
    """The schema of `correction_sums`."""
    types = zip(KEYS, (pa.int32(), pa.int64(), pa.string(), pa.string()), strict=True)
    return pa.schema([*(pa.field(*key) for key in types), *(pa.field(name, pa.float64()) for name in SUMS)])


def effect_values(sums: dict[str, Floats]) -> dict[str, Floats]:
    """The value of every EFFECT from arrays of SUMS, NaN where there is nothing to read."""
    with np.errstate(all="ignore"):
        n = np.where(sums["tokens"] > 0, sums["tokens"], np.nan)
        mean = sums["sum_kept_weight"] / n
        return {
            "clipped_share": sums["clipped_tokens"] / n,
            "removed_share": 1 - sums["kept_tokens"] / n,
            "removed_share_sequence": 1
            - sums["kept_sequences"] / np.where(sums["sequences"] > 0, sums["sequences"], np.nan),
            "ess_before": _ess(sums["sum_weight"], sums["sum_square_weight"], n),
            "ess_after": _ess(sums["sum_kept_weight"], sums["sum_square_kept_weight"], n),
            "mean_weight": mean,
            "bias": sums["sum_abs_change"] / n,
            "variance": np.maximum(sums["sum_square_kept_weight"] / n - mean**2, 0.0),
        }


def _ess(total: Floats, squares: Floats, n: Floats) -> Floats:
    return np.minimum(total**2 / (n * np.where(squares > 0, squares, np.nan)), 1.0)


def _sums(records: pa.Table, correction: Correction) -> pa.Table:
    rows = gap_rows(records, correction.gap)
    if not len(rows.rows):
        return schema().empty_table()
    attempts, steps, groups = step_codes(records, rows.rows)
    bounds = np.concatenate(([0], np.cumsum(rows.lengths)))
    log_ratio = rows.later.astype(np.float64) - rows.earlier.astype(np.float64)
    table = np.zeros((len(steps), len(SUMS)))
    for group in range(len(steps)):
        chosen = np.flatnonzero(groups == group)
        token = _tokens_of(chosen, bounds)
        sequence = np.repeat(np.arange(len(chosen)), rows.lengths[chosen])
        table[group] = effect_sums(corrected(correction, log_ratio[token], sequence, rows.mask[token]), len(chosen))
    return sums_table(attempts, steps, correction.name, correction.gap, table)


def sums_table(attempts: Integers, steps: Integers, name: str, gap: str, sums: Floats) -> pa.Table:
    """A table of `schema()`: one row per (attempt, step); sums: (rows, SUMS)."""
    columns = (attempts, steps, [name] * len(steps), [gap] * len(steps), *sums.T)
    return pa.table([pa.array(column, f.type) for column, f in zip(columns, schema(), strict=True)], schema=schema())


def _tokens_of(rows: Integers, bounds: Integers) -> Integers:
    if not len(rows):
        return np.empty(0, np.int64)
    spans = zip(bounds[rows].tolist(), bounds[rows + 1].tolist(), strict=True)
    return np.concatenate([np.arange(start, stop) for start, stop in spans])


def effect_sums(result: Corrected, sequences: int) -> list[float]:
    """The values of SUMS for one batch; `sequences` counts those without tokens, too."""
    n, kept = result.sampled, result.mask & (result.weight > 0)
    raw = np.exp(np.where(n, result.log_ratio, -np.inf))
    left = np.where(kept, result.weight, 0.0)
    with np.errstate(over="ignore"):
        return [
            float(n.sum()), float(_count(result, n, sequences)), float(kept.sum()), float(_count(result, kept, sequences)),
            float(result.clipped.sum()), float(raw.sum()), float((raw**2).sum()), float(left.sum()), float((left**2).sum()),
            float(np.abs(left - raw)[n].sum()),
        ]  # fmt: skip


def _count(result: Corrected, flags: Flags, sequences: int) -> int:
    return int((np.bincount(result.sequence, flags, minlength=sequences) > 0).sum())
