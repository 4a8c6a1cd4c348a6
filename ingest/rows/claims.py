"""Rows that bear the key of another row and are no part of it: two writers claim the same sequence, of which readers show one.

Parts of a row are slices (with `positions`) and other columns: what processes record that know different policies. Rows claim the
same where they hold the same policies, or both sides of one gap: a measurement counts twice then. A replayed minibatch is
another row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pyarrow as pa

from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.record import GAPS, POLICIES

from ..commits.catalog import Catalog
from ..commits.entries import TokenFile
from ..commits.visible_files import visible_files
from .record_rows import RecordRows

MOST_STEPS, MOST_BYTES = 12, 128 << 20
"""That are looked at unasked, of a run: a rank that bears another's number does so at every step. A convention."""
ADVICE = "give every rank a number of its own: Collector(..., rank=rank)"
_BIT = {policy: 1 << place for place, policy in enumerate(POLICIES)}
_SIDES = tuple(_BIT[earlier] | _BIT[later] for earlier, later in GAPS.values())


@dataclass(frozen=True)
class Claims:
    """rows: that bear the key of another, at these steps. looked_at: so many `of` the steps at which several writers hold the
    same policies. writers: two that claim the same."""

    rows: int = 0
    steps: tuple[int, ...] = ()
    looked_at: int = 0
    of: int = 0
    writers: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """What is wrong, and what to do; "" where nothing is."""
        if not self.rows:
            return ""
        where = f"step {self.steps[0]}" if len(self.steps) == 1 else f"{len(self.steps)} steps from {self.steps[0]} on"
        looked = "" if self.looked_at == self.of else f" ({self.looked_at} of {self.of} such steps were looked at)"
        return (
            f"{self.rows} rows of {where}{looked} bear the step, minibatch and sequence_id of another row: "
            f"{' and '.join(self.writers)} claim the same sequences. One row of each is shown, statistics count all; {ADVICE}"
        )


@dataclass
class ClaimsOfRun:
    """Looks at some steps of a run, and remembers what it saw."""

    rows: RecordRows
    _seen: dict[tuple[str, ...], tuple[int, tuple[str, ...]]] = field(default_factory=dict)

    def of(self, files: Mapping[int, Sequence[TokenFile]]) -> Claims:
        """files: those of each step that are shown."""
        doubtful = [step for step, present in files.items() if may_claim(present)]
        chosen = _few(doubtful, files)
        found: dict[int, tuple[int, tuple[str, ...]]] = {}
        seen: dict[tuple[str, ...], tuple[int, tuple[str, ...]]] = {}
        for step in chosen:
            key = tuple(f"{file.path} {file.sha256}" for file in files[step])
            found[step] = seen[key] = self._seen.get(key) or claimed(files[step], self.rows.table)
        self._seen = seen
        wrong = {step: told for step, told in found.items() if told[0]}
        writers = next(iter(wrong.values()))[1] if wrong else ()
        return Claims(sum(rows for rows, _ in wrong.values()), tuple(wrong), len(chosen), len(doubtful), writers)


def every_claim(catalog: Catalog) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """(step, rows, two of the files' writers) of every step that is shown and in which rows are claimed twice."""
    rows = RecordRows(catalog.files, catalog.quarantine)
    for step, files in visible_files(catalog).token_files.items():
        if may_claim(files) and (told := claimed(files, rows.table))[0]:
            yield step, *told


def may_claim(files: Sequence[TokenFile]) -> bool:
    """Whether several writers of the step hold the same policies, as their commits say; ranks of one job do."""
    held = [_bits(policies) for file in files for _, policies in file.policies_by_writer]
    return len(held) > 1 and any(_clash(one, other) for one, other in combinations(dict.fromkeys(held), 2)) | (
        len(set(held)) < len(held)
    )


def claimed(
    files: Sequence[TokenFile], table: Callable[[Sequence[TokenFile], Sequence[str]], pa.Table]
) -> tuple[int, tuple[str, ...]]:
    """How many rows of one step bear the key of another row and are no part of it, and whose the first are."""
    parts = [(file, table([file], ())) for file in files]
    rows = pa.concat_tables([part for _, part in parts])
    origin = np.repeat(np.arange(len(parts)), [len(part) for _, part in parts])
    groups = _repeated(rows)
    bits = np.array([_bits(file.policies) for file, _ in parts], np.int64)[origin] if parts else np.zeros(0, np.int64)
    if not any(_extra(bits[group]) for group in groups):
        return 0, ()
    exact = table([file for file, part in parts if len(part)], [f"{policy}_logprobs" for policy in POLICIES])
    if len(exact) < len(rows):  # a file was set aside meanwhile
        return 0, ()
    bits = _of_rows(exact)
    wrong = {place: extra for place, group in enumerate(groups) if (extra := _extra(bits[group]))}
    whose = [files[int(place)].writer for group in wrong for place in origin[groups[group]]]
    return sum(wrong.values()), tuple(dict.fromkeys(whose))[:2]


def _few(steps: Sequence[int], files: Mapping[int, Sequence[TokenFile]]) -> list[int]:
    """The first, the last, and others in between, as far as their files are not too large."""
    places = sorted({round(place) for place in np.linspace(0, len(steps) - 1, MOST_STEPS)}) if steps else []
    chosen, left = list[int](), MOST_BYTES
    for step in (steps[place] for place in places):
        size = sum(file.bytes for file in files[step])
        if size <= left:
            chosen.append(step)
            left -= size
    return chosen


def _repeated(rows: pa.Table) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Indices of rows, slices aside, that have one key: each list is of two rows or more."""
    whole = np.flatnonzero(pc.is_null(rows["positions"]).to_numpy(zero_copy_only=False))
    minibatch = pc.fill_null(rows["minibatch"].cast(pa.int64()), -1).to_numpy()
    ids = (
        pc.dictionary_encode(rows["sequence_id"].cast(pa.string()))
        .combine_chunks()
        .indices.to_numpy(zero_copy_only=False)
    )
    keys = np.stack([rows["attempt"].to_numpy(), minibatch, ids])[:, whole]
    if not keys.shape[1]:
        return []
    _, code, count = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    order = np.argsort(code.ravel(), kind="stable")
    return [whole[group] for group in np.split(order, np.cumsum(count)[:-1]) if len(group) > 1]


def _extra(bits: Iterable[int]) -> int:
    """How many of these rows of one key claim what an earlier one of them does."""
    kept: list[int] = []
    extra = 0
    for own in map(int, bits):
        is_claimed = any(_clash(own, other) for other in kept)
        extra += is_claimed
        kept += [] if is_claimed else [own]
    return extra


def _clash(one: int, other: int) -> bool:
    both = one & other
    return one == other or any(both & sides == sides for sides in _SIDES)


def _bits(policies: frozenset[str]) -> int:
    return sum(_BIT[policy] for policy in policies)


def _of_rows(rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found = np.zeros(len(rows), np.int64)
    for policy, bit in _BIT.items():
        found |= np.where(pc.is_valid(rows[f"{policy}_logprobs"]).to_numpy(zero_copy_only=False), bit, 0)
    return found
