"""The joined Records of one step with a few of their columns, in the Record's own Arrow types."""

from collections.abc import Iterable

import pyarrow as pa

from ratioscope.metrics.engines.join import joined
from ratioscope.record import POLICIES, arrow_schema

from ..rows.record_rows import KEYS
from ..run import Run


def step_table(run: Run, step: int, columns: Iterable[str]) -> pa.Table:
    """The step's rows with these columns, KEYS and the log-probs of the policies; empty where none were kept."""
    logprobs = (f"{policy}_logprobs" for policy in POLICIES)
    wanted = dict.fromkeys((*KEYS, *logprobs, *columns))
    schema = arrow_schema()
    rows = run.records([step]).select(list(wanted)).collect().to_arrow()
    # polars hands out lists with 64-bit offsets, which not every kernel takes
    return joined(rows.cast(pa.schema([schema.field(name) for name in wanted])))
