"""The readings of a run: which there are, what made them, and the gaps between any two of policies and readings.

Cache keys of what is computed from recorded files: digests of the digests in their commits.

They name recorded files. A merged file counts as those that it replaces, so that `compact` changes no key.
The number of rows of each reading that fit the sequences on record.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ratioscope.errors import SourceError
from ratioscope.metrics.engines.join import joined
from ratioscope.record import FIELDS, POLICIES, gap_between, sides
from ratioscope.topk import TOPK

from ..commits.entries import TokenFile
from ..commits.reading_files import ReadingFile, by_reading
from ..commits.visible_files import VisibleFiles
from ..files.parquet_files import ParquetFiles
from .reading_rows import Fit, ReadingRows
from .record_rows import RecordRows


@dataclass(frozen=True)
class Reading:
    """Further log-probs of recorded tokens, under a name."""

    name: str
    steps: tuple[int, ...]
    """Steps with a row of it, ascending."""
    sequences: int
    """Sequences that were read; one that was read twice counts twice."""
    tokens: int
    made_of: tuple[Mapping[str, Any], ...]
    """The models, versions and settings that made it, the newest first; several where it was made in several ways."""


@dataclass
class Readings:
    """The readings on record, as one state of the commit logs names them."""

    rows: ReadingRows | None
    files: Mapping[str, Mapping[int, Sequence[ReadingFile]]]
    """reading -> step -> its files."""
    topk: Mapping[int, Sequence[ReadingFile]] = field(default_factory=dict)
    """step -> its files of top-k."""

    @classmethod
    def none(cls) -> "Readings":
        return cls(None, {})

    @classmethod
    def of(cls, rows: ReadingRows, files: Iterable[ReadingFile]) -> "Readings":
        every = by_reading(files)
        topk = every.pop(TOPK, {})
        return cls(rows, every, topk)

    def facts(self) -> dict[str, Reading]:
        """name -> what is known of the reading without reading a file."""
        return {name: _reading(name, steps) for name, steps in self.files.items()}

    def has(self, names: Iterable[str]) -> bool:
        """True if all of these readings are on record."""
        return set(names) <= set(self.files)

    @property
    def hint(self) -> str:
        """The columns that readings add, in words that follow a list; "" where there are none."""
        return "".join(f", {name}_logprob, {POLICIES[0]}:{name}" for name in self.files)

    def beside(self, records: pa.Table, step: int, names: Sequence[str]) -> pa.Table:
        """Joined Records of a step with a column `<name>_logprobs` for each of these readings."""
        return records if self.rows is None else self.rows.added(records, self._of_step(step, names))[0]

    def fits(self, records: pa.Table, step: int, names: Sequence[str]) -> dict[str, Fit]:
        """reading -> how its rows of a step fit the joined Records of that step."""
        return {} if self.rows is None else self.rows.added(records, self._of_step(step, names))[1]

    def read_by(self, name: str, made_of: str) -> dict[int, frozenset[str]]:
        """step -> the sequences whose reading was made so. made_of: as JSON with sorted keys."""
        own = {
            step: [file for file in files if file.made_of == made_of]
            for step, files in self.files.get(name, {}).items()
        }
        tables = {step: self.rows.table(files)[0] for step, files in own.items() if files and self.rows is not None}
        return {step: frozenset(map(str, table["sequence_id"].to_pylist())) for step, table in tables.items()}

    def gaps(self, policies: Sequence[str]) -> tuple[str, ...]:
        """The gaps that readings add: each policy on record against each reading, then readings against each other."""
        names = list(self.files)
        pairs = [(policy, name) for name in names for policy in policies]
        pairs += [(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
        return tuple(gap_between(*pair) for pair in pairs)

    def pair(self, gap: str) -> "Pair":
        """The gap between two policies or readings. SourceError where a side is neither a policy nor on record."""
        for side in sides(gap):
            if f"{side}_logprobs" not in FIELDS and side not in self.files:
                known = ", ".join(self.files) or "no reading"
                raise SourceError(
                    f"gap {gap}: {side!r} is no policy and no reading of this run; wanted {', '.join(POLICIES)}, or one of"
                    f" its readings: {known}. `ratioscope rescore RUN --model PATH` makes one"
                )
        return Pair(gap, self, tuple(side for side in sides(gap) if side in self.files))

    def _of_step(self, step: int, names: Sequence[str]) -> dict[str, Sequence[ReadingFile]]:
        return {name: self.files.get(name, {}).get(step, ()) for name in names}


@dataclass(frozen=True)
class Pair:
    """A gap between two policies or readings, computed from token rows."""

    gap: str
    readings: Readings
    names: "tuple[str, ...]"
    """Those of its sides that are readings."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the Record that its sides are."""
        return tuple(f"{side}_logprobs" for side in sides(self.gap) if side not in self.names)

    def has(self, step: int) -> bool:
        """True if all its readings have rows of the step."""
        return all(step in self.readings.files.get(name, {}) for name in self.names)

    def digests(self, step: int) -> tuple[str, ...]:
        """The digests of the files of its readings at the step, for cache keys."""
        return tuple(file.sha256 for name in self.names for file in self.readings.files.get(name, {}).get(step, ()))

    def beside(self, records: pa.Table, step: int) -> pa.Table:
        """Joined Records with the columns of its readings."""
        return self.readings.beside(records, step, self.names)


def _reading(name: str, steps: Mapping[int, Sequence[ReadingFile]]) -> Reading:
    files = [file for own in steps.values() for file in own]
    newest = sorted(files, key=lambda file: -(file.time or 0.0))
    made_of = tuple(json.loads(said) for said in dict.fromkeys(file.made_of for file in newest))
    return Reading(name, tuple(steps), sum(file.rows for file in files), sum(file.tokens for file in files), made_of)


def run_digest(visible: VisibleFiles) -> str:
    """The key of results computed from all that is shown."""
    recorded = [pair for files in visible.token_files.values() for file in files for pair in file.recorded]
    recorded += [pair for segment in (*visible.segments, *visible.scalars) for pair in segment.recorded]
    return _digest(recorded)


def row_digest(token_files: Iterable[TokenFile], files: ParquetFiles, pair: Pair | None, step: int) -> str:
    """The key of results computed from the token files of a step and, with `pair`, from its readings.

    A file without a known digest counts with its signature.
    """
    recorded = [entry for file in token_files for entry in file.recorded]
    named = [(path, sha256 or str(files.signature(path))) for path, sha256 in recorded]
    return _digest([*named, *((digest, "") for digest in (pair.digests(step) if pair else ()))])


def reading_digest(pair: Pair, steps: Iterable[int]) -> str:
    """The key of results computed from the readings of these steps."""
    return _digest((digest, "") for step in steps for digest in pair.digests(step))


def _digest(recorded: Iterable[tuple[str, str | None]]) -> str:
    lines = sorted(f"{path} {sha256}" for path, sha256 in recorded)
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def fits_of(
    readings: Readings, rows: RecordRows, token_files: Mapping[int, Sequence[TokenFile]], steps: Iterable[int] | None
) -> dict[str, Fit]:
    """reading -> how its rows fit the sequences of these steps (None: all). This reads the rows. token_files: by step."""
    fits: dict[str, Fit] = {}
    for name, own in readings.files.items():
        for step in (step for step in own if steps is None or step in steps):
            columns = [f"{policy}_logprobs" for policy in POLICIES]
            records = joined(rows.table(token_files.get(step, ()), columns))
            fits[name] = fits.get(name, Fit()) + readings.fits(records, step, (name,))[name]
    return fits
