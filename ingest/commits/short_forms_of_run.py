"""Short forms of commit logs: which a run may have, whether they say what their logs say, and whether they are enough."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields

from ratioscope.errors import SourceError
from ratioscope.inside import open_regular
from ratioscope.layout import COMMITS, decode_line, encode_line, writer_of

from .commit_log import CommitLog
from .entries import Segment, TokenFile
from .short_form import ShortForm, kept, omitted_files, short_form_lines, short_form_of_lines
from .writer_history import WriterHistory

_LONGEST_LINE = 1 << 19
_OWN = {"log", "token_files", "segments", "omitted", "short_forms", "_parts"}
"""Of a history what two readings of one log need not share, or what is compared by itself."""


def short_form(history: WriterHistory, gone: Collection[str]) -> ShortForm | None:
    """The log without the commits of files that are gone; None where that would leave out nothing, or change what is read."""
    mine = {path: item for path, item in _items(history).items() if path in gone and _is_own(item, history.log.writer)}
    log = CommitLog(history.log.root, history.log.writer)
    entries = log.advance() if mine and not history.omitted.files else None
    if entries is None or log.torn or log.reached != history.log.reached:
        return None
    digest = _digest(log)
    left = omitted_files(mine.values(), history.last_commit)
    every = tuple(kept(entries, frozenset(mine)))
    found = ShortForm(log.file, log.reached, digest, every, dict(history.times), left, log.chain.link)
    written = [encode_line(line) for line in short_form_lines(found)]
    if max(map(len, written)) > _LONGEST_LINE:
        return None
    read = short_form_of_lines([entry for line in written if (entry := decode_line(line)) is not None])
    return None if read is None or difference(history, read) != "" else read


def difference(history: WriterHistory, short: ShortForm) -> str | None:
    """What of the whole log the short form says otherwise, in words; "" if nothing; None where the log does not begin with the
    bytes that it is of, so that no reader believes it."""
    begun = WriterHistory(CommitLog(history.log.root, history.log.writer))
    try:
        if not begun.begin(short):
            return None
        begun.advance()
    except (OSError, SourceError) as error:
        return f"it cannot be read: {error}"
    every, named = _items(history), _items(begun)
    unnamed = [item for path, item in every.items() if path not in named]
    if begun.log.chain.link != history.log.chain.link:
        return "how far its lines hold together"
    if begun.omitted != omitted_files(unnamed, begun.omitted.last_commit):
        return "the counts of the files that it leaves out"
    if any(every.get(path) != item for path, item in named.items()):
        return "the files that it names"
    names = (field.name for field in fields(history) if field.name not in _OWN)
    return next((name for name in names if getattr(history, name) != getattr(begun, name)), "")


def new_short_forms(histories: Collection[WriterHistory], gone: Collection[str]) -> Iterator[ShortForm]:
    """Short forms that no verb's log says yet."""
    for history in (history for history in histories if not history.is_offline):
        short = short_form(history, gone)
        if short is not None and all(verb.short_forms.get(short.log) != short for verb in histories):
            yield short


def compared_with_logs(histories: Iterable[WriterHistory]) -> Iterator[tuple[str, str, str]]:
    """(log that says it, log that it is of, what differs, "" if nothing) of every short form that a reader would believe."""
    known = {history.log.file: history for history in histories}
    for verb in known.values():
        for file, short in verb.short_forms.items():
            told = difference(known[file], short) if file in known else None
            if told is not None:
                yield verb.log.file, file, told


def begun_from_short_form(log: CommitLog, histories: Iterable[WriterHistory]) -> WriterHistory:
    """What the short forms say of the log, the newest that holds; else nothing yet."""
    verbs = sorted((h for h in histories if log.file in h.short_forms), key=lambda h: h.opened or 0.0, reverse=True)
    for verb in verbs:
        fresh = WriterHistory(CommitLog(log.root, log.writer))
        if fresh.begin(verb.short_forms[log.file]):
            return fresh
    return WriterHistory(log)


def lacking_wanted_files(histories: Collection[WriterHistory], gone: Collection[str]) -> list[WriterHistory]:
    """Histories that leave out a file which is not gone: it must be read from the log after all."""
    short = [history for history in histories if history.omitted.files]
    if not short:
        return []
    named = {path for history in histories for path in (*history.token_files, *history.segments)}
    covered = Counter(writer_of(path) for path in gone if path not in named)
    return [history for history in short if covered[history.log.writer] < history.omitted.files]


def _items(history: WriterHistory) -> dict[str, TokenFile | Segment]:
    return {**history.token_files, **history.segments}


def _is_own(item: TokenFile | Segment, writer: str) -> bool:
    """Whether its name says whose it is: so is it told whether it is left out."""
    return item.writer == writer == writer_of(item.path)


def _digest(log: CommitLog) -> str:
    digest = hashlib.sha256()
    with open_regular(log.root, f"{COMMITS}/{log.writer}.jsonl") as file:
        digest.update(file.read(log.reached))
    return digest.hexdigest()
