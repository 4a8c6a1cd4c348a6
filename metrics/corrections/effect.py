"""The effect of a Correction on token rows: shares clipped and removed, effective sample size before and after, mean weight.

Effects are computed from sums that add up over steps, slices and files, like every other number here. Normalise is the one
exception: it divides by the mean of a batch, and the batch is the (attempt, step). threshold_effect.py computes the same
values for a single threshold from histograms, without token rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from ratioscope.arrays import Booleans, Floats, Integers

from ..distribution import BUCKETS, Histogram, bucket_of
from ..engines.arrow_columns import GapRows, gap_rows, step_groups
from ..engines.slices import Labels, labelled
from .corrected_tokens import CorrectedTokens, corrected_tokens
from .correction import Correction

SUMS = (
    "tokens", "sequences", "kept_tokens", "kept_sequences", "clipped_tokens", "sum_weight", "sum_square_weight",
    "sum_kept_weight", "sum_square_kept_weight", "sum_abs_change",
)  # fmt: skip
KEYS = ("attempt", "step", "correction", "gap", "key")


@dataclass(frozen=True)
class Effect:
    """The definition of one effect; w is the weight of a token before the correction, v its weight after."""

    name: str
    unit: str
    """1 for a plain number."""
    formula: str
    """The formula over w and v, as text."""
    meaning: str
    """The number in words."""


EFFECTS = (
    Effect("clipped_share", "1", "clipped tokens / sampled tokens", "tokens whose weight a bound changed"),
    Effect(
        "removed_share", "1", "1 - kept tokens / sampled tokens", "tokens taken out of the loss, by mask or zero weight"
    ),
    Effect("removed_share_sequence", "1", "1 - kept sequences / sequences", "sequences with no token left"),
    Effect("ess_before", "1", "(sum w)^2 / (n sum w^2), w = exp(x)", "token ESS share of the uncorrected weights"),
    Effect(
        "ess_after",
        "1",
        "(sum v)^2 / (n sum v^2), v what is left of the weights",
        "token ESS share after the correction",
    ),
    Effect(
        "mean_weight",
        "1",
        "sum v / n",
        "effective learning-rate factor: the share of the loss's total weight that is left",
    ),
    Effect("bias", "1", "sum |v - w| / n", "proxy of the bias: mean distance of the weights from the exact ones"),
    Effect("variance", "1", "sum v^2 / n - (sum v / n)^2", "proxy of the variance that weighting adds"),
)


def correction_sums(records: pa.Table, corrections: Sequence[Correction], labels: Labels | None = None) -> pa.Table:
    """One row per (attempt, step, correction, key) with the columns SUMS. A correction whose gap is not on record has no rows.

    labels: the key of each row, or a list with the key of each token; None: one key "". Corrections are applied to whole
    steps, whatever the keys.
    """
    parts = [_sums(records, correction, labels) for correction in corrections]
    return pa.concat_tables(parts) if parts else schema().empty_table()


def schema() -> pa.Schema:
    """The schema of `correction_sums`."""
    types = zip(KEYS, (pa.int32(), pa.int64(), pa.string(), pa.string(), pa.string()), strict=True)
    return pa.schema([*(pa.field(*key) for key in types), *(pa.field(name, pa.float64()) for name in SUMS)])


def effect_values(sums: dict[str, Floats]) -> dict[str, Floats]:
    """Name -> value of every one of EFFECTS, from float64 arrays of SUMS; NaN where the sums are 0."""
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


def compared_values(sums: dict[str, Floats]) -> dict[str, Floats]:
    """`effect_values` and mass_removed, the values by which token rows and distributions are compared.

    mass_removed = 1 - sum v / sum w (1): the share of the summed weight that is lost; negative where the correction adds
    more than it takes, NaN where every weight is 0.
    """
    with np.errstate(all="ignore"):
        removed = 1 - sums["sum_kept_weight"] / np.where(sums["sum_weight"] > 0, sums["sum_weight"], np.nan)
    return {**effect_values(sums), "mass_removed": removed}


def _ess(total: Floats, squares: Floats, n: Floats) -> Floats:
    return np.minimum(total**2 / (n * np.where(squares > 0, squares, np.nan)), 1.0)


@dataclass(frozen=True)
class CarriedOut:
    """A correction applied to one (attempt, step)."""

    attempt: int
    step: int
    correction: Correction
    result: CorrectedTokens
    """The weights and the mask that the correction leaves."""
    times: Floats | None
    """Number of sequences that each recorded sequence represents; None if every sequence is recorded."""
    token: Integers
    """Indices of its tokens among those of `arrow_columns.gap_rows`."""

    def sums(self) -> pa.Table:
        """One row of `schema()`: the sums over all its tokens."""
        everything = np.zeros(len(self.token), np.int64)
        return sums_table(
            self.attempt, self.step, self.correction, effect_sums(self.result, everything, 1, self.times), ("",)
        )


def carried_out(records: pa.Table, correction: Correction) -> Iterator[CarriedOut]:
    """The correction applied to each (attempt, step) of the records; nothing if its gap is not on record."""
    rows = gap_rows(records, correction.gap)
    return _carried_out(rows, records, correction) if len(rows.rows) else iter(())


def _carried_out(rows: GapRows, records: pa.Table, correction: Correction) -> Iterator[CarriedOut]:
    groups = step_groups(records, rows.rows)
    bounds = np.concatenate(([0], np.cumsum(rows.lengths)))
    log_ratio = rows.later.astype(np.float64) - rows.earlier.astype(np.float64)
    for group, (attempt, step) in enumerate(zip(groups.attempts.tolist(), groups.steps.tolist(), strict=True)):
        chosen = np.flatnonzero(groups.of_row == group)
        token = _tokens_of(chosen, bounds)
        sequence = np.repeat(np.arange(len(chosen)), rows.lengths[chosen])
        result = corrected_tokens(correction, log_ratio[token], sequence, rows.mask[token])
        times = None if rows.stands_for is None else rows.stands_for[chosen]
        yield CarriedOut(attempt, step, correction, result, times, token)


def _sums(records: pa.Table, correction: Correction, labels: Labels | None) -> pa.Table:
    rows = gap_rows(records, correction.gap)
    if not len(rows.rows):
        return schema().empty_table()
    if labels is None:
        return pa.concat_tables([each.sums() for each in _carried_out(rows, records, correction)])
    piece = labelled("key", labels, rows)
    codes = piece.codes if piece.by_token else np.repeat(piece.codes, rows.lengths)
    parts = []
    for each in _carried_out(rows, records, correction):
        sums = effect_sums(each.result, codes[each.token].astype(np.int64), len(piece.keys), each.times)
        parts.append(sums_table(each.attempt, each.step, correction, sums, piece.keys))
    return pa.concat_tables(parts)


def sums_table(attempt: int, step: int, correction: Correction, sums: Floats, keys: Sequence[str]) -> pa.Table:
    """A table of `schema()` for one step: one row per key that has a token. sums: shape (keys, SUMS)."""
    occupied = np.flatnonzero(sums[:, 0] > 0).tolist()
    names = ([value] * len(occupied) for value in (attempt, step, correction.name, correction.gap))
    columns = (*names, [keys[index] for index in occupied], *sums[occupied].T)
    return pa.table([pa.array(column, f.type) for column, f in zip(columns, schema(), strict=True)], schema=schema())


def _tokens_of(rows: Integers, bounds: Integers) -> Integers:
    if not len(rows):
        return np.empty(0, np.int64)
    spans = zip(bounds[rows].tolist(), bounds[rows + 1].tolist(), strict=True)
    return np.concatenate([np.arange(start, stop) for start, stop in spans])


def effect_sums(result: CorrectedTokens, codes: Integers, keys: int, times: Floats | None = None) -> Floats:
    """The sums of one batch, shape (keys, SUMS). codes: the key of each token, -1 for none.

    times: how many sequences each recorded sequence represents; None: one each.
    """
    each = None if times is None else times[result.sequence]
    sampled, kept = result.sampled & (codes >= 0), result.mask & (result.weight > 0) & (codes >= 0)
    with np.errstate(over="ignore"):
        raw = np.exp(np.where(sampled, result.log_ratio, -np.inf))
        left = np.where(kept, result.weight, 0.0)
        token_columns = (raw, raw**2, left, left**2, np.where(sampled, np.abs(left - raw), 0.0))
        columns = [
            _counted(sampled, codes, keys, each), _sequences(result, sampled, codes, keys, times),
            _counted(kept, codes, keys, each), _sequences(result, kept, codes, keys, times),
            _counted(result.clipped & sampled, codes, keys, each),
            *(_counted(sampled, codes, keys, values if each is None else values * each) for values in token_columns),
        ]  # fmt: skip
    return np.asarray(columns, np.float64).T


def _counted(flags: Booleans, codes: Integers, keys: int, values: Floats | None = None) -> Floats:
    """Per key, the sum of the values of the flagged tokens; None: their number."""
    return np.bincount(codes[flags], None if values is None else values[flags], keys).astype(np.float64)


def _sequences(result: CorrectedTokens, flags: Booleans, codes: Integers, keys: int, times: Floats | None) -> Floats:
    """Per key, the number of sequences with a flagged token."""
    pairs = np.unique(result.sequence[flags] * keys + codes[flags])
    return np.bincount(pairs % keys, None if times is None else times[pairs // keys], keys).astype(np.float64)


def corrected_weights(each: CarriedOut) -> tuple[Integers, Floats]:
    """(occupied buckets of log v, number of tokens in each); v > 0 is the weight of a token that is still in the loss.

    The counts are estimates if the recording budget kept rows by chance.
    """
    result = each.result
    kept = result.mask & (result.weight > 0)
    times = None if each.times is None else each.times[result.sequence][kept]
    counts = np.bincount(bucket_of(np.log(result.weight[kept])), times, BUCKETS).astype(np.float64)
    occupied = np.flatnonzero(counts)
    return occupied, counts[occupied]


def merged_weights(steps: pl.DataFrame) -> Histogram:
    """The weights that a correction leaves in all steps together, counts rounded to whole tokens, sums unknown (NaN).

    steps: one row per step with the lists `buckets` and `counts` of `corrected_weights`; null or empty where nothing is left.
    """
    merged = (
        steps.select("buckets", "counts")
        .explode("buckets", "counts")
        .drop_nulls()
        .group_by("buckets")
        .agg(pl.col("counts").sum())
        .sort("buckets")
    )
    unknown = np.full(len(merged), np.nan)
    counts = merged["counts"].to_numpy().round().astype(np.int64)
    return Histogram(merged["buckets"].to_numpy(), counts, unknown, unknown)
