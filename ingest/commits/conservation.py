"""The account of a run: what became of every sequence that was offered. Header, pages, `info`, report and JSON tell this one.

Offered = written + left out + dropped + pending + lost. Pending is what a writer at work still holds; what a writer held that
ended without it is lost. Hidden and set aside are rows that were written and are not shown.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ratioscope.process import Here, here

from .open_writers import SILENT_SECONDS
from .writer_history import WriterHistory

UNSEEN = "not available, because the batch was never looked at"
UNTOLD = "its log does not say why"


@dataclass(frozen=True)
class Dropped:
    """Sequences that were dropped for one reason. tokens: of those that were looked at; unseen: sequences that never were, whose
    tokens nobody knows."""

    reason: str
    sequences: int
    tokens: int
    unseen: int


@dataclass(frozen=True)
class Lost:
    """Sequences that a writer had taken when it was last heard of, at its step, and that it ended without."""

    writer: str
    step: int | None
    sequences: int


@dataclass(frozen=True)
class Conservation:
    """Sequences over all writers and attempts, a sequence logged twice counted twice. left_out: by a budget; they are in the
    statistics. writers: of the newest attempt that nobody took over from; gone, silent: those of them that ended without closing,
    or that were not heard of for an hour from where nobody here can tell. hidden, set_aside: token rows on record that are not
    shown, because they were recorded again, or because their file cannot be read."""

    offered: int
    written: int
    left_out: int
    pending: int
    reasons: tuple[Dropped, ...] = ()
    losses: tuple[Lost, ...] = ()
    writers: int = 0
    gone: int = 0
    silent: int = 0
    hidden: int = 0
    set_aside: int = 0

    @property
    def dropped(self) -> int:
        return sum(part.sequences for part in self.reasons)

    @property
    def dropped_tokens(self) -> int | None:
        """Tokens of what was dropped; None where some of it was never looked at."""
        return None if any(part.unseen for part in self.reasons) else sum(part.tokens for part in self.reasons)

    @property
    def lost(self) -> int:
        return sum(part.sequences for part in self.losses)

    @property
    def is_whole(self) -> bool:
        """Whether all that was offered is on record, or left out by a budget, or still at work."""
        return not (self.dropped or self.lost)


@dataclass(frozen=True)
class Counts:
    """One writer's sequences: as it counted when it closed, else as far as its commits and gaps tell."""

    offered: int
    written: int
    left_out: int
    dropped: int

    @property
    def open(self) -> int:
        """Of which nothing is known to have become yet."""
        return max(0, self.offered - self.written - self.left_out - self.dropped)


Ending = Literal["closed", "replaced", "gone", "silent"]


def endings(
    histories: Iterable[WriterHistory], asking: Here | None = None, now: float | None = None
) -> dict[str, Ending]:
    """How writers ended that will write no more: closed, replaced by one that took over, gone, or silent for an hour where nobody
    here can tell."""
    every, asking, now = list(histories), asking or here(), time.time() if now is None else now
    replaced = {writer for history in every for writer in history.takes_over}
    found: dict[str, Ending] = {}
    for history in every:
        writer, life = history.log.writer, history.process.life(asking)
        silent = now - (history.last_commit or history.opened or 0.0)
        if history.closed is not None:
            found[writer] = "closed"
        elif writer in replaced:
            found[writer] = "replaced"
        elif life == "gone" or (life == "unknown" and silent >= SILENT_SECONDS):
            found[writer] = "gone" if life == "gone" else "silent"
    return found


def conservation(
    histories: Collection[WriterHistory], ended: Mapping[str, Ending], hidden: int = 0, set_aside: int = 0
) -> Conservation:
    """The account of these writers. ended: those that will write no more."""
    counted = {history.log.writer: counts(history) for history in histories}
    open_of = {writer: own.open for writer, own in counted.items()}
    newest = max((history.attempt for history in histories), default=0)
    ways = [ended.get(history.log.writer) for history in histories if history.attempt == newest]
    losses = [
        Lost(history.log.writer, last_step(history), open_of[history.log.writer])
        for history in histories
        if history.log.writer in ended and open_of[history.log.writer]
    ]
    return Conservation(
        offered=sum(own.offered for own in counted.values()),
        written=sum(own.written for own in counted.values()),
        left_out=sum(own.left_out for own in counted.values()),
        pending=sum(number for writer, number in open_of.items() if writer not in ended),
        reasons=_reasons(histories, counted),
        losses=tuple(losses),
        writers=len(ways) - ways.count("replaced"),
        gone=ways.count("gone"),
        silent=ways.count("silent"),
        hidden=hidden,
        set_aside=set_aside,
    )


def counts(history: WriterHistory) -> Counts:
    files, unnamed = history.token_files.values(), history.omitted
    written = unnamed.rows + sum(file.rows for file in files)
    left_out = unnamed.left_out + sum(file.left_out for file in files)
    if history.totals is not None:
        offered, closed, dropped = (history.totals[name] for name in ("offered", "written", "dropped"))
        left_out = left_out if (total := history.totals.get("left_out")) is None else total
        return Counts(offered or 0, written if closed is None else closed, left_out, dropped or 0)
    newest = [(file.offered or 0, file.step, file.dropped or 0) for file in files]
    offered, _, dropped = max([*newest, unnamed.newest or (0, 0, 0)])
    dropped = max(dropped, sum(drop.sequences for drop in history.drops))
    return Counts(max(offered, written + left_out + dropped), written, left_out, dropped)


def last_step(history: WriterHistory) -> int | None:
    """The last of which it committed token rows."""
    unnamed = [] if history.omitted.last_step is None else [history.omitted.last_step]
    return max((*unnamed, *(file.step for file in history.token_files.values())), default=None)


def _reasons(histories: Collection[WriterHistory], counted: Mapping[str, Counts]) -> tuple[Dropped, ...]:
    found: dict[str, Dropped] = {}

    def add(reason: str, sequences: int, tokens: int) -> None:
        known = found.get(reason, Dropped(reason, 0, 0, 0))
        unseen = 0 if tokens else sequences
        found[reason] = Dropped(reason, known.sequences + sequences, known.tokens + tokens, known.unseen + unseen)

    for history in histories:
        for drop in history.drops:
            add(drop.reason, drop.sequences, drop.tokens)
        untold = counted[history.log.writer].dropped - sum(drop.sequences for drop in history.drops)
        if untold > 0:
            add(UNTOLD, untold, 0)
    return tuple(found[reason] for reason in sorted(found) if found[reason].sequences)
