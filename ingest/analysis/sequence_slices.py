"""The key of each sequence of a step, for slices with one key per sequence."""

import polars as pl
import pyarrow as pa

from ratioscope.metrics.engines.arrow_columns import encoded

from ..rows.slices import COLUMNS, ON_DEMAND, labels_of
from ..run import Run
from .step_rows import columns_of

_LAG = ("trainer_version", "rollout_version_min")


def sequence_keys(run: Run, step: int, name: str) -> pl.DataFrame | None:
    """Columns sequence_id, minibatch and key (as in frames of metrics; null: no key) for the rows of the step.

    None where the slice has a key per token, or does not exist.
    """
    if name == "lag":
        needed: tuple[str, ...] = _LAG
    elif name in ON_DEMAND:
        needed = ON_DEMAND[name].columns
    elif name in COLUMNS:
        needed = (name,)
    else:
        return None
    records = columns_of(run, step, needed)
    labels = labels_of(name, records)
    assert isinstance(labels, pa.Array | pa.ChunkedArray)
    if pa.types.is_list(labels.type):
        return None
    keys, codes = encoded(labels)
    return pl.DataFrame(
        {
            "sequence_id": pl.Series(records["sequence_id"].to_pylist(), dtype=pl.String),
            "minibatch": pl.Series(records["minibatch"].to_pylist(), dtype=pl.Int32),
            "key": pl.Series([keys[code] if code >= 0 else None for code in codes.tolist()], dtype=pl.String),
        }
    )
