"""Why a table of `ratioscope metrics` has no rows by a slice, or no column of a metric"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..presentation.digits import first_few

if TYPE_CHECKING:
    import polars as pl

    from ratioscope.ingest.analysis.resolution import TooCoarse
    from ratioscope.ingest.run import Run

STEP_KEYS = ("step", "attempt")
MOST_NAMED = 5


def sliced_by(keys: Sequence[str]) -> str:
    """The slice among the keys of a table; empty if there is none."""
    return next((key for key in keys if key not in STEP_KEYS), "")


def absent_rows(run: "Run", name: str) -> str:
    """Why no token has a key of this slice, to follow "because"."""
    from ratioscope.ingest.rows.slices import ON_DEMAND

    from ..pages.gap_slices import WANTED

    if run.no_tokens or name in WANTED:
        return run.no_tokens or WANTED[name]
    if not run.columns:
        return "the run has no token rows, which this slice needs; give the collector a larger budget"
    return f"{' and '.join(ON_DEMAND[name].columns)} is not on record; {ON_DEMAND[name].absent}"


def absent_metrics(
    run: "Run", gap: str, names: Collection[str], keys: Sequence[str], coarse: "Mapping[str, TooCoarse]"
) -> Iterator[tuple[list[str], str]]:
    """(metrics, "because ...") of those that have no value in the table, for each reason."""
    from ratioscope.ingest.analysis.resolution import AFFECTED

    unavailable = run.unavailable_of(gap) if names else {}
    by = sliced_by(keys)
    rest = f"because a slice by {by} has metrics of tokens only" if by else "because no step has a value"
    reasons: dict[str, list[str]] = {}
    for metric in names:
        other = coarse[gap].because if gap in coarse and metric in AFFECTED else rest
        reasons.setdefault(unavailable.get(f"{gap}/{metric}", other), []).append(f"{gap}/{metric}")
    yield from ((own, reason) for reason, own in reasons.items())


def unscored_rows(frame: "pl.DataFrame", gap: str, keys: Sequence[str]) -> str:
    """The keys of the rows whose tokens all lack a log-prob, in words; empty if there are none."""
    import polars as pl

    from ratioscope.metrics.definitions.validity import NON_FINITE

    if not keys or (column := f"{gap}/{NON_FINITE.name}") not in frame.columns:
        return ""
    rows = frame.filter((pl.col(f"{gap}/tokens") == 0) & (pl.col(column) > 0))
    named = [
        " ".join(f"{key} {value}" for key, value in zip(keys, row, strict=True)) for row in rows.select(keys).rows()
    ]
    return first_few(named, MOST_NAMED)
