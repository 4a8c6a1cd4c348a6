"""Finds rows that two writers recorded under the same key, so that readers show one row and statistics count both.

Several rows with one key are right where each holds a part: a slice of the tokens (with `positions`), or other policies. They
are wrong where two rows hold the same policies, or where each holds both sides of one gap. A replayed minibatch has its own key.
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
"""Steps, and bytes of their files, that a run checks by itself: a rank with another rank's number has it at every step. A
convention. `verify` checks all steps."""
_BIT = {policy: 1 << place for place, policy in enumerate(POLICIES)}
_SIDES = tuple(_BIT[earlier] | _BIT[later] for earlier, later in GAPS.values())


@dataclass(frozen=True)
class Claims:
    """Rows that two writers claim, at the steps that were checked."""

    rows: int = 0
    """Rows that have the key of another row."""
    steps: tuple[int, ...] = ()
    looked_at: int = 0
    """Number of steps that were checked."""
    of: int = 0
    """At how many steps several writers hold the same policies: only these can have such rows."""
    writers: tuple[str, ...] = ()
    """Two writers that claim the same rows, or one that claims them twice."""

    @property
    def note(self) -> str:
        """The fault and the action to take, in words; "" where there is no fault."""
        if not self.rows:
            return ""
        where = f"step {self.steps[0]}" if len(self.steps) == 1 else f"{len(self.steps)} steps from {self.steps[0]} on"
        looked = "" if self.looked_at == self.of else f" ({self.looked_at} of {self.of} such steps were looked at)"
        claim = "claims sequences twice" if len(self.writers) == 1 else "claim the same sequences"
        return (
            f"{self.rows} rows of {where}{looked} bear the step, minibatch and sequence_id of another row: "
            f"{' and '.join(self.writers)} {claim}. One row of each is shown, statistics count all; {remedy(self.writers)}"
        )


@dataclass
class ClaimsOfRun:
    """Checks some steps of a run, and remembers the results."""

    rows: RecordRows
    _results: dict[tuple[str, ...], tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    """The files of a step -> what `claimed` found in them."""

    def of(self, files: Mapping[int, Sequence[TokenFile]]) -> Claims:
        """The claims at some steps. files: step -> its visible token files. Files that only a store has are left out."""
        doubtful = [step for step, of_step in files.items() if may_claim(of_step)]
        here = self.rows.files.is_here
        chosen = _few([step for step in doubtful if all(here(file.path) for file in files[step])], files)
        by_step: dict[int, tuple[int, tuple[str, ...]]] = {}
        results: dict[tuple[str, ...], tuple[int, tuple[str, ...]]] = {}
        for step in chosen:
            key = tuple(f"{file.path} {file.sha256}" for file in files[step])
            by_step[step] = results[key] = self._results.get(key) or claimed(files[step], self.rows.table)
        self._results = results
        wrong = {step: result for step, result in by_step.items() if result[0]}
        writers = next(iter(wrong.values()))[1] if wrong else ()
        return Claims(sum(rows for rows, _ in wrong.values()), tuple(wrong), len(chosen), len(doubtful), writers)


def remedy(writers: Sequence[str]) -> str:
    """The action against rows that these writers claim: one writer gave two samples the same id."""
    if len(writers) == 1:
        return "give every sample an id of its own: log(..., sequence_ids=ids)"
    return "give every rank a number of its own: Collector(..., rank=rank)"


def every_claim(catalog: Catalog) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """(step, rows claimed twice, two of their writers) for every visible step that has such rows."""
    rows = RecordRows(catalog.files, catalog.quarantine)
    for step, files in visible_files(catalog).token_files.items():
        if may_claim(files) and (result := claimed(files, rows.table))[0]:
            yield step, *result


def may_claim(files: Sequence[TokenFile]) -> bool:
    """True if several writers of the step hold the same policies, by their commits. The ranks of one job do."""
    policies = [_bits(own) for file in files for _, own in file.policies_by_writer]
    has_equal = len(set(policies)) < len(policies)
    return has_equal or any(_clash(one, other) for one, other in combinations(dict.fromkeys(policies), 2))


def claimed(
    files: Sequence[TokenFile], table: Callable[[Sequence[TokenFile], Sequence[str]], pa.Table]
) -> tuple[int, tuple[str, ...]]:
    """(rows of one step that claim what another row with their key holds, two of their writers)."""
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
    """The first and last of the steps and others in between, as many as fit into MOST_STEPS and MOST_BYTES.

    Their distance is a power of two, so that the next step of a growing run leaves all but the last as they are.
    """
    apart = 1 << (max(0, len(steps) - 2) // (MOST_STEPS - 1)).bit_length()
    places = sorted({*range(0, len(steps), apart), len(steps) - 1}) if steps else []
    chosen, left = list[int](), MOST_BYTES
    for step in (steps[place] for place in places):
        size = sum(file.bytes for file in files[step])
        if size <= left:
            chosen.append(step)
            left -= size
    return chosen


def _repeated(rows: pa.Table) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Groups of two or more rows with the same key, as row indices. Slices of sequences are left out."""
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
    """Number of rows that claim data which an earlier row holds. bits: the policies of each row with one key."""
    accepted: list[int] = []
    extra = 0
    for own in map(int, bits):
        is_claimed = any(_clash(own, other) for other in accepted)
        extra += is_claimed
        accepted += [] if is_claimed else [own]
    return extra


def _clash(one: int, other: int) -> bool:
    both = one & other
    return one == other or any(both & sides == sides for sides in _SIDES)


def _bits(policies: frozenset[str]) -> int:
    return sum(_BIT[policy] for policy in policies)


def _of_rows(rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    bits = np.zeros(len(rows), np.int64)
    for policy, bit in _BIT.items():
        bits |= np.where(pc.is_valid(rows[f"{policy}_logprobs"]).to_numpy(zero_copy_only=False), bit, 0)
    return bits
