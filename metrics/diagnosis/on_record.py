"""Facts of the record about a whole run, outside of its tokens: what they rule out, and what they show.

Digests, versions, settings and events come here from ingest. A proof that a referee wrote into the run belongs here, too: a code
in `shown` heads the diagnosis, one in `ruled_out` is never named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ratioscope.arrays import Booleans, Integers

from ..digits import first_few

Side = Literal["engine", "trainer"]
DELIVERY = ("never_synced", "sync_broke", "corrupted_load", "stuck_replica", "missed_syncs")
"""Codes of causes in which an engine does not hold the weights that it was sent."""
STALENESS = (
    "never_synced", "sync_broke", "missed_syncs", "version_lag", "stale_weights", "stale_prefix", "switch_inside",
)  # fmt: skip
"""Codes of causes in which one side is at older weights than the other. Weights that never change have no older ones."""
LAG_ABOVE = "record.lag_above_settings"
"""Key in `settings` of the largest lag that the settings of the trainer allow, if the record has a larger one."""
REGULAR = 3
"""So many equal distances between syncs in a row are a rhythm. A convention."""


@dataclass(frozen=True)
class SyncBreak:
    """A rhythm of weight syncs that the events on record begin with and then leave."""

    every: int
    """Recorded steps between two syncs of the rhythm."""
    last: int
    """Step of the last sync before the first one that is missing."""
    due: int
    """Step at which the first missing sync was due."""
    late: tuple[int, ...]
    """Steps of the later syncs."""
    spans: tuple[tuple[int, int], ...]
    """(first, last) step of each span in which a due sync is missing."""
    has_ended: bool
    """True if the rhythm never comes back; False if only some syncs are left out."""
    is_sure: bool = True
    """False if syncs may have come that are not on record: then the gap alone can confirm it."""

    def among(self, steps: Integers) -> Booleans:
        """True for each step in a span without the due sync."""
        late = [(steps >= first) & (steps <= last) for first, last in self.spans]
        return np.asarray(np.logical_or.reduce(late), np.bool_)

    @property
    def words(self) -> str:
        """The fact in one clause."""
        rhythm = f"every {self.every} steps" if self.every > 1 else "at every step"
        until = f"regular weight syncs, {rhythm}, ended at step {self.last}: the one due at step {self.due} is missing"
        if not self.has_ended:
            steps = first_few([str(first) for first, _ in self.spans])
            return f"weight syncs came {rhythm}, but none when one was due at step {steps}"
        if not self.late:
            return f"{until}, and none came later"
        steps = " and ".join(map(str, self.late)) if len(self.late) < 3 else f"{self.late[0]} to {self.late[-1]}"
        return f"{until}, and {len(self.late)} came late, at step {steps}"


def sync_break(syncs: Sequence[int], steps: Sequence[int]) -> SyncBreak | None:
    """The break of a rhythm of weight syncs; None if there was no rhythm, or it holds.

    syncs: steps with the event. steps: all steps on record, ascending; distances count these, so that a hole in the record breaks
    no rhythm. A sync that is due last may still come: two must be missing at the end.

    >>> sync_break([1, 3, 5, 7, 15], range(1, 21)).words
    'regular weight syncs, every 2 steps, ended at step 7: the one due at step 9 is missing, and 1 came late, at step 15'
    """
    known = np.asarray(steps, np.int64)
    at = np.unique(np.searchsorted(known, sorted(syncs)))
    at = at[at < len(known)]
    apart = np.diff(at)
    if len(apart) < REGULAR or (apart[:REGULAR] != apart[0]).any():
        return None
    every = int(apart[0])
    ends = np.append(at[1:], len(known))
    open_at = np.flatnonzero(np.append(apart >= 2 * every, len(known) - at[-1] > 2 * every))
    if not len(open_at):
        return None
    first, later = int(open_at[0]), apart[open_at[0] + 1 :]
    spans = tuple((int(known[at[i] + every]), int(known[ends[i] - 1])) for i in open_at)
    late = tuple(known[at[first + 1 :]].tolist())
    return SyncBreak(every, int(known[at[first]]), spans[0][0], late, spans, not (later <= every).any())


@dataclass(frozen=True)
class OnRecord:
    """Facts about a whole run. A fact that is not on record is empty, and then neither rules out nor shows anything."""

    ruled_out: Mapping[str, str] = field(default_factory=dict)
    """Code of a cause that the record rules out -> the fact that does, in words: a veto, however well its signature fits."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """Code of a cause that the record shows by itself -> the fact that does, in words."""
    side: Side | None = None
    """The side at fault, if a digest, a version, a referee, a parity or a replica tells it; None if nothing does."""
    side_because: str = ""
    """The fact that tells the side, in words."""
    side_of: tuple[str, ...] = ()
    """Codes of the causes whose side it is; empty: of every cause."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Dotted key -> value as JSON, as the newest attempt had them."""
    fixed_weights: str = ""
    """The fact that tells that no weight changed during the run, in words; empty if none does."""
    adapter: str = ""
    """The setting that tells of a low-rank adapter, in words; empty if none does."""
    syncs: SyncBreak | None = None
    """The break of a rhythm of weight syncs; None if no rhythm is on record, or it holds."""

    def side_at(self, code: str) -> Side | None:
        """The side at which this cause is; None if it is not known."""
        return self.side if not self.side_of or code in self.side_of else None
