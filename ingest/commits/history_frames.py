"""The content of all commit logs as tables: writers, events, dropped sequences, times of steps."""

from collections.abc import Iterable, Mapping
from dataclasses import astuple
from typing import Any

import polars as pl

from .conservation import Ending, SequenceCounts, counts_by_writer, last_step
from .writer_history import WriterHistory

TIME = pl.Datetime("us", "UTC")
Text, Number = pl.String(), pl.Int64()
_WRITERS = pl.Schema(
    {
        "writer": Text, "rank": Number, "host": Text, "attempt": Number, "opened": TIME, "last_commit": TIME,
        "closed": TIME, "state": Text, "last_step": Number, "offered": Number, "written": Number, "left_out": Number,
        "dropped": Number, "pending": Number, "lost": Number, "ended": Text,
    }
)  # fmt: skip
_EVENTS = pl.Schema({"step": Number, "event": Text, "note": Text, "time": TIME, "writer": Text})
_TIMES = pl.Schema({"step": Number, "time": TIME})
_DROPS = pl.Schema({"step": Number, "sequences": Number, "tokens": Number, "reason": Text, "writer": Text})


def writers_frame(
    histories: Iterable[WriterHistory], ended: Mapping[str, Ending], heard: Mapping[str, Ending]
) -> pl.DataFrame:
    """One row per writer.

    closed: when it closed, null while it may still write. state: ok, degraded (it writes statistics only) or paused, as it last
    said; dead, silent or replaced for a writer that says no more. offered, written, left_out (by a budget), dropped, pending,
    lost: numbers of sequences. ended: how it ended (see conservation.Ending), null while it may still write. heard: the same, but
    with writers called silent that may still write.
    """
    every = list(histories)
    counted = counts_by_writer(every)
    rows = [_writer(each, ended.get(writer := each.log.writer), heard.get(writer), counted[writer]) for each in every]
    return pl.DataFrame(rows, schema=_WRITERS, orient="row").sort("attempt", "rank", "writer", nulls_last=True)


def events_frame(histories: Iterable[WriterHistory]) -> pl.DataFrame:
    """One row per event, by step. An event that several writers noted at one step is listed once, from the first of them."""
    events = [event for history in histories for event in history.events]
    rows = [(event.step, event.event, event.note, _micros(event.time), event.writer) for event in events]
    frame = pl.DataFrame(rows, schema=_EVENTS, orient="row").sort("step", "time", "writer", nulls_last=True)
    return frame.unique(["step", "event", "note"], keep="first", maintain_order=True)


def drops_frame(histories: Iterable[WriterHistory]) -> pl.DataFrame:
    """One row per drop: sequences that were offered and not written. Null: a step nobody knows, tokens nobody counted."""
    drops = [drop for history in histories for drop in history.drops]
    rows = [(drop.step, drop.sequences, drop.tokens or None, drop.reason, drop.writer) for drop in drops]
    return pl.DataFrame(rows, schema=_DROPS, orient="row").sort("step", "writer", nulls_last=True)


def times_frame(histories: Iterable[WriterHistory]) -> pl.DataFrame:
    """step, time: when a step was first committed, by the newest attempt that recorded it.

    A step without token rows has a time only if it is the last step of a statistics segment.
    """
    latest: dict[int, tuple[int, float]] = {}
    for history in histories:
        for step, time in history.times.items():
            newest = latest.get(step)
            if newest is None or (-history.attempt, time) < (-newest[0], newest[1]):
                latest[step] = history.attempt, time
    rows = [(step, _micros(time)) for step, (_, time) in sorted(latest.items())]
    return pl.DataFrame(rows, schema=_TIMES, orient="row")


def last_settled_step(histories: Iterable[WriterHistory]) -> int | None:
    """The last step that every open writer of the newest attempt has reached; None if all have closed.

    A writer that died counts as open, unless another one took over from it: the files on disk look the same.
    """
    every = list(histories)
    ended = {writer for history in every for writer in history.succeeds}
    present = [history for history in every if history.log.writer not in ended]
    newest = max((history.attempt for history in present), default=0)
    open_ones = [history for history in present if history.attempt == newest and history.closed is None]
    lasts = [last_step(history) for history in open_ones]
    return min((-1 if last is None else last for last in lasts), default=None)


def _writer(history: WriterHistory, ended: Ending | None, heard: Ending | None, own: SequenceCounts) -> tuple[Any, ...]:
    state = {None: history.state, "closed": history.state, "gone": "dead"}.get(heard, heard)
    times = (_micros(history.opened), _micros(history.last_commit), _micros(history.closed))
    facts = (history.log.writer, history.rank, history.host, history.attempt)
    left = (own.open, 0) if ended is None else (0, own.open)
    return (*facts, *times, state, last_step(history), *astuple(own), *left, ended)


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e6)
