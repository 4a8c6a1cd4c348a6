"""Log-probs above 0, in one sentence while training: the form that they most likely have, and what to log instead."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ratioscope.arrays import Floats
from ratioscope.metrics.columns import ROUNDING
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.record import POLICIES


def positive_note(rows: pa.Table) -> str:
    """A clause for each policy that has log-probs above 0 at unmasked tokens; "" without any."""
    return "; ".join(_clauses(rows))


def _clauses(rows: pa.Table) -> Iterator[str]:
    for policy in POLICIES:
        values = _unmasked(rows, f"{policy}_logprobs")
        above = int((values > ROUNDING).sum())
        if above:
            yield f"{above} of {len(values)} {policy}_logprobs are above 0, up to {values.max():.3g}: {_form(values)}"


def _unmasked(rows: pa.Table, column: str) -> Floats:
    """The finite values of a column at unmasked tokens."""
    whole = rows.filter(pc.is_valid(rows[column]))
    values, mask = (pc.list_flatten(whole[name]).to_numpy() for name in (column, "mask"))
    values = values[mask.astype(bool)] if len(mask) == len(values) else values
    return np.asarray(values[np.isfinite(values)], np.float64)


def _form(values: Floats) -> str:
    if values.min() < 0:
        return "others are below, so log each with its own sign, and no probability among them"
    if values.max() <= 1:
        return "all lie between 0 and 1, as probabilities (exp(logp)) do; log their logarithm"
    return "none is below, as with negated log-probs (-logp); log them with their own sign"
