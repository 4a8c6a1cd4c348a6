"""The fate of every sequence that was offered to the writers of a run. All faces show the numbers of this file.

Offered = written + left out + dropped + pending + lost. A running writer holds pending sequences; a writer that ended held
the lost ones. Hidden rows and rows set aside were written, and are not shown.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ratioscope.process import Here, here

from .liveness import PRESUMED_ENDED_SECONDS, patience
from .writer_history import WriterHistory

UNSEEN = "not available, because nobody counted them"
UNTOLD = "its log does not say why"


@dataclass(frozen=True)
class Dropped:
    """Sequences that were dropped for one reason."""

    reason: str
    sequences: int
    tokens: int
    """Tokens of those sequences whose tokens were counted."""
    unseen: int
    """Sequences whose tokens nobody counted."""


@dataclass(frozen=True)
class Lost:
    """Sequences that a writer had taken and not written when it ended."""

    writer: str
    step: int | None
    """The last step that the writer committed."""
    sequences: int
    taken: int | None = None
    """The newest step of which the writer had taken rows; None if the log does not record it."""


@dataclass(frozen=True)
class Conservation:
    """Numbers of sequences over all writers and attempts. A sequence that was logged twice counts twice."""

    offered: int
    """Sequences given to `log`."""
    written: int
    """Sequences in token rows."""
    left_out: int
    """Sequences that a budget left out of the token rows; the statistics count them."""
    pending: int
    """Sequences that running writers hold."""
    reasons: tuple[Dropped, ...] = ()
    losses: tuple[Lost, ...] = ()
    """Sequences of writers that ended without closing."""
    writers: int = 0
    """Writers of the newest attempt, without those that a later writer replaced."""
    gone: int = 0
    """Number of these writers that ended without closing."""
    silent: int = 0
    """Number of them without a commit for an hour, on a machine that cannot be seen from here."""
    quiet: int = 0
    """Number of further ones that every face calls silent, though they may still write."""
    hidden: int = 0
    """Token rows that are not shown because their step was recorded again."""
    set_aside: int = 0
    """Token rows that are not shown because their file cannot be read."""

    @property
    def dropped(self) -> int:
        return sum(part.sequences for part in self.reasons)

    @property
    def dropped_tokens(self) -> int | None:
        """Tokens of the dropped sequences; None where some of them were never counted."""
        return None if any(part.unseen for part in self.reasons) else sum(part.tokens for part in self.reasons)

    @property
    def lost(self) -> int:
        return sum(part.sequences for part in self.losses)

    @property
    def unheard(self) -> tuple[int, int]:
        """Writers that ended without closing, and those that are merely silent: what a verdict knows changes with them."""
        return self.gone + self.silent, self.quiet

    @property
    def is_whole(self) -> bool:
        """True if every sequence is written, left out by a budget, or pending."""
        return not (self.dropped or self.lost)


@dataclass(frozen=True)
class SequenceCounts:
    """One writer's numbers of sequences: its own totals if it closed, else the sums over its lines."""

    offered: int
    """Sequences given to `log`."""
    written: int
    """Sequences in token rows."""
    left_out: int
    dropped: int

    @property
    def open(self) -> int:
        """Sequences that were offered and have no known fate yet."""
        return max(0, self.offered - self.written - self.left_out - self.dropped)


Ending = Literal["closed", "replaced", "gone", "silent"]


def endings(
    histories: Iterable[WriterHistory],
    asking: Here | None = None,
    now: float | None = None,
    *,
    silence: float = PRESUMED_ENDED_SECONDS,
) -> dict[str, Ending]:
    """writer -> how it ended, for writers that will write no more.

    closed: in order. replaced: another writer took over. gone: its process does not run any more. silent: it did not commit for
    so many seconds of silence and for PAUSES of its usual pauses, and its process cannot be seen from here. asking: the machine
    that asks, this one unless given.
    """
    every, asking, now = list(histories), asking or here(), time.time() if now is None else now
    replaced = {writer for history in every for writer in history.succeeds}
    ended: dict[str, Ending] = {}
    for history in every:
        writer, life = history.log.writer, history.process.life(asking)
        silent = now - (history.last_commit or history.opened or 0.0)
        if history.closed is not None:
            ended[writer] = "closed"
        elif writer in replaced:
            ended[writer] = "replaced"
        elif life == "gone" or (life == "unknown" and silent >= patience(silence, history.pause)):
            ended[writer] = "gone" if life == "gone" else "silent"
    return ended


def conservation(
    histories: Collection[WriterHistory],
    ended: Mapping[str, Ending],
    heard: Mapping[str, Ending],
    hidden: int = 0,
    set_aside: int = 0,
) -> Conservation:
    """The fates of the sequences of these writers. ended: writers that will write no more, see `endings`; heard: the same, with
    those that are silent and may still write."""
    counted = counts_by_writer(histories)
    open_of = {writer: own.open for writer, own in counted.items()}
    newest = max((history.attempt for history in histories), default=0)
    current = [history.log.writer for history in histories if history.attempt == newest]
    ways = [ended.get(writer) for writer in current]
    losses = [
        Lost(
            history.log.writer,
            last_step(history),
            open_of[history.log.writer],
            None if history.taken is None else history.taken[1],
        )
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
        quiet=sum(heard.get(writer) == "silent" for writer in current) - ways.count("silent"),
        hidden=hidden,
        set_aside=set_aside,
    )


def counts_by_writer(histories: Collection[WriterHistory]) -> dict[str, SequenceCounts]:
    """writer -> its numbers. The sequences of a killed writer are in a line of the next writer of its collector."""
    told = {writer for history in histories for writer in history.continues}
    counted = {history.log.writer: counts(history) for history in histories}
    return {w: replace(own, offered=own.offered - own.open) if w in told else own for w, own in counted.items()}


def counts(history: WriterHistory) -> SequenceCounts:
    """The numbers of sequences of one writer."""
    files, unnamed = history.file_totals, history.omitted
    written, left_out = history.rows, unnamed.left_out + files.left_out
    if history.totals is not None:
        offered, closed, dropped = (history.totals[name] for name in ("offered", "written", "dropped"))
        left_out = left_out if (total := history.totals.get("left_out")) is None else total
        return SequenceCounts(offered or 0, written if closed is None else closed, left_out, dropped or 0)
    newest = [] if files.newest is None else [files.newest]
    newest += [] if history.taken is None else [(*history.taken, 0)]
    offered, _, dropped = max([*newest, unnamed.newest or (0, 0, 0)])
    dropped = max(dropped, sum(drop.sequences for drop in history.drops))
    return SequenceCounts(max(offered, written + left_out + dropped), written, left_out, dropped)


def last_step(history: WriterHistory) -> int | None:
    """The last step whose token rows the writer committed."""
    steps = history.omitted.last_step, history.file_totals.last_step
    return max((step for step in steps if step is not None), default=None)


def _reasons(histories: Collection[WriterHistory], counted: Mapping[str, SequenceCounts]) -> tuple[Dropped, ...]:
    by_reason: dict[str, Dropped] = {}

    def add(reason: str, sequences: int, tokens: int) -> None:
        known = by_reason.get(reason, Dropped(reason, 0, 0, 0))
        unseen = 0 if tokens else sequences
        by_reason[reason] = Dropped(reason, known.sequences + sequences, known.tokens + tokens, known.unseen + unseen)

    for history in histories:
        for drop in history.drops:
            add(drop.reason, drop.sequences, drop.tokens)
        unexplained = counted[history.log.writer].dropped - sum(drop.sequences for drop in history.drops)
        if unexplained > 0:
            add(UNTOLD, unexplained, 0)
    return tuple(by_reason[reason] for reason in sorted(by_reason) if by_reason[reason].sequences)
