"""The lines of a commit log, each kind with what it changes in the history of the log's writer."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.layout import (
    CLOSE,
    COMMIT,
    CONDENSED,
    DROPPED,
    EVENT,
    MOVED,
    NOTED,
    OFFLINE,
    OPEN,
    OVERALL,
    PRUNED,
    READING,
    STATE,
    TAKEN,
    TOPK,
    WEIGHT_NAMES,
    WEIGHTS,
)
from ratioscope.process import Process

from ..files.quarantine import printable
from .commit_log import CommitLog
from .entries import (
    Segment,
    TokenFile,
    committed,
    committed_overall,
    names,
    optional_count,
    seconds,
    step_spans,
    text,
    whole_number,
)
from .reading_files import committed_reading
from .short_form import ShortForm, short_form_of_lines
from .weight_entries import name_table, weight_digests
from .writer_history import Drop, Event, WriterHistory

_MORE_THAN_FILES = frozenset((OPEN, OFFLINE, CLOSE, PRUNED, MOVED, CONDENSED))
"""Kinds of lines that change what a run consists of by more than a file."""


def advance(history: WriterHistory) -> bool:
    """Reads the lines appended since the last call; True if there are any. A log that was replaced is read from its start."""
    before = history.log.faults
    entries = history.log.advance()
    if entries is None:
        fresh = WriterHistory(CommitLog(history.log.root, history.log.writer))
        advance(fresh)
        history.__dict__.update(fresh.__dict__)
        history.fresh = None
        return True
    for entry in entries:
        _take(history, entry)
    return bool(entries) or before != history.log.faults


def begin(history: WriterHistory, short: ShortForm) -> bool:
    """Takes the first bytes of the log from their short form. False, and nothing is taken, if the log begins otherwise."""
    try:
        if not history.log.skip(short.bytes, short.sha256, short.link):
            return False
    except (OSError, SourceError):
        return False
    history.times = dict(short.times)
    for entry in short.entries:
        _take(history, entry)
    history.omitted, history.last_commit = short.omitted, short.omitted.last_commit
    return True


def _take(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    """Changes the history by one line. A line that cannot be believed is refused, with the reason."""
    take = _TAKERS.get(str(entry.get("kind")))
    if take is None:  # a later version wrote this kind of line; it is no part of this schema
        return
    if entry["kind"] in _MORE_THAN_FILES:
        history.fresh = None
    try:
        take(history, entry)
    except SourceError as error:
        history.fresh = None
        history.refused[str(entry.get("file", history.log.file))[:200]] = str(error)


def _open(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    history.rank = optional_count(entry, "rank")
    history.host = None if entry.get("host") is None else printable(str(entry["host"]))
    history.process = Process(
        history.host, optional_count(entry, "pid"), _text_or_none(entry, "started"), _text_or_none(entry, "namespace")
    )
    history.attempt = optional_count(entry, "attempt") or 0
    history.launch = _text_or_none(entry, "launch")
    history.takes_over |= names(entry.get("takes_over"))
    history.continues |= names(entry.get("continues"))
    history.run, history.named_writer = _text_or_none(entry, "run"), _text_or_none(entry, "writer")
    _see(history, entry)
    history.opened = seconds(entry)
    history.closed, history.totals = None, None


def _commit(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    item = committed(entry, history.log.writer, history.attempt)
    history.refused.pop(item.path, None)
    if isinstance(item, TokenFile):
        _set_time(history, item.step, item.time)
        history.add(item)
        history.unmeasured |= {item.path} if item.unmeasured else set()
    elif item.is_scalars:  # it was logged before it was imported, so the time of its commit is none of its steps
        history.segments[item.path] = item
    else:  # a segment is committed again with every step, so its time belongs to its last step
        _set_time(history, max(item.steps, default=None), item.time)
        history.segments[item.path] = item
        # clears `unmeasured` for token files whose step the new segment covers
        for path in [path for path in history.unmeasured if history.token_files[path].step in item.steps]:
            history.token_files[path] = replace(history.token_files[path], unmeasured=False)
            history.unmeasured.remove(path)
            _add_fresh(history, history.token_files[path])
    _add_fresh(history, item)
    history.last_commit = item.time or history.last_commit


def _repeat(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    """Notes the file of overall statistics at its segments, as far as they are as they were when it was written."""
    file = committed_overall(entry)
    for path, sha256 in file.segments:
        if (segment := history.segments.get(path)) is not None and segment.sha256 == sha256:
            history.segments[path] = replace(segment, overall=file)
            _add_fresh(history, history.segments[path])


def _add_fresh(history: WriterHistory, item: TokenFile | Segment) -> None:
    if history.fresh is not None:
        history.fresh.append(item)


def _taken(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    history.taken = whole_number(entry, "offered"), whole_number(entry, "step")


def _reading(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    item = committed_reading(entry, history.log.writer, history.attempt)
    history.refused.pop(item.path, None)
    history.readings[item.path] = item


def _set_time(history: WriterHistory, step: int | None, time: float | None) -> None:
    if step is not None and time is not None and not history.is_offline:
        history.times.setdefault(step, time)


def _event(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    note = entry.get("note")
    if entry.get("event") == STATE and "state" in entry:
        history.state, history.state_note = printable(str(entry["state"])), printable(str(note))
    history.events.append(
        Event(
            whole_number(entry, "step"),
            printable(str(entry.get("event"))),
            "" if note is None else printable(str(note)),
            seconds(entry),
            history.log.writer,
        )
    )


def _weigh(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    history.weights.append(weight_digests(entry, history.attempt))


def _name_weights(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    key, table = name_table(entry)
    history.weight_tables[key] = table


def _drop(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    step = None if entry.get("step") is None else whole_number(entry, "step")
    sequences, tokens = optional_count(entry, "sequences") or 0, optional_count(entry, "tokens") or 0
    history.drops.append(Drop(step, sequences, tokens, printable(str(entry.get("reason", ""))), history.log.writer))


def _prune(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    files = entry.get("files")
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise SourceError(f"it prunes {str(files)[:60]!r}; wanted a list of files")
    history.pruned_steps |= set(step_spans(entry))
    history.pruned |= set(files)


def _move(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    history.moved[text(entry, "file")] = f"moved to {printable(text(entry, 'to'))}: {printable(text(entry, 'reason'))}"


def _note(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    faults = whole_number(entry, "altered"), whole_number(entry, "tail"), optional_count(entry, "breaks") or 0
    history.noted[text(entry, "log")] = faults


def _condense(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    if entry.get("part") == 0:
        history.short_form_parts = []
    history.short_form_parts.append(entry)
    if (
        entry.get("part") == whole_number(entry, "parts", least=1) - 1
        and (found := short_form_of_lines(history.short_form_parts)) is not None
    ):
        history.short_forms[found.log] = found
        history.short_form_parts = []


def _close(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    history.closed = seconds(entry)
    _see(history, entry)
    history.totals = {name: optional_count(entry, name) for name in ("offered", "written", "left_out", "dropped")}


def _see(history: WriterHistory, entry: Mapping[str, Any]) -> None:
    writers = entry.get("beside")
    history.beside |= {name for name in writers if isinstance(name, str)} if isinstance(writers, list) else set()


_TAKERS = {
    OPEN: _open, OFFLINE: _open, CLOSE: _close,
    COMMIT: _commit, READING: _reading, TOPK: _reading, OVERALL: _repeat,
    EVENT: _event, TAKEN: _taken, DROPPED: _drop,
    WEIGHTS: _weigh, WEIGHT_NAMES: _name_weights,
    PRUNED: _prune, MOVED: _move, NOTED: _note,
    CONDENSED: _condense,
}  # fmt: skip
"""Kind of line -> the function that takes it."""


def _text_or_none(entry: Mapping[str, Any], name: str) -> str | None:
    value = entry.get(name)
    return value if isinstance(value, str) else None
