"""The number of rows of each reading that fit the sequences on record."""

from collections.abc import Iterable, Mapping, Sequence

from ratioscope.metrics.engines.join import joined
from ratioscope.record import POLICIES

from ..commits.entries import TokenFile
from .reading_rows import Fit
from .readings import Readings
from .record_rows import RecordRows


def fits_of(
    readings: Readings,
    rows: RecordRows,
    token_files: Mapping[int, Sequence[TokenFile]],
    steps: Iterable[int] | None,
) -> dict[str, Fit]:
    """reading -> how its rows fit the sequences of these steps (None: all). This reads the rows. token_files: by step."""
    fits: dict[str, Fit] = {}
    for name, own in readings.files.items():
        for step in (step for step in own if steps is None or step in steps):
            columns = [f"{policy}_logprobs" for policy in POLICIES]
            records = joined(rows.table(token_files.get(step, ()), columns))
            fits[name] = fits.get(name, Fit()) + readings.fits(records, step, (name,))[name]
    return fits
