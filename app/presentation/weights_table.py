"""The table of weights that the engines hold, against those of the trainer."""

import polars as pl

from ratioscope.ingest.analysis.weight_arrivals import weight_arrivals
from ratioscope.ingest.run import Run

NO_DIGESTS = (
    "Not available, because no digests of weights are on record; call collector.sync(version, digests=...) in the trainer,"
    " and with replica= for each engine."
)
_SCHEMA = {
    "replica": pl.String, "version": pl.Int64, "state": pl.String, "finding": pl.String, "versions on record": pl.Int64,
    "that differ": pl.Int64, "not compared": pl.Int64,
}  # fmt: skip


def weights_table(run: Run) -> pl.DataFrame:
    """One row per engine with digests of its weights on record."""
    rows = [
        (one.newest.replica, one.newest.version, one.newest.state, one.words, one.versions, one.wrong, one.unknown)
        for one in weight_arrivals(run)
    ]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")
