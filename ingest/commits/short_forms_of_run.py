"""Makes short forms of commit logs, compares them with their logs, and tells when a reader needs the full log after all."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields

from ratioscope.errors import SourceError
from ratioscope.inside import open_regular
from ratioscope.layout import COMMITS, decode_line, encode_line, writer_of

from .commit_log import CommitLog
from .entries import Segment, TokenFile
from .history_lines import advance, begin
from .short_form import ShortForm, kept, omitted_files, short_form_lines, short_form_of_lines
from .writer_history import WriterHistory

_LONGEST_LINE = 1 << 19


def short_form(history: WriterHistory, gone: Collection[str]) -> ShortForm | None:
    """The short form that omits the commits of files that are gone. None where it would omit nothing or read differently."""
    mine = {path: item for path, item in _items(history).items() if path in gone and _is_own(item, history.log.writer)}
    log = CommitLog(history.log.root, history.log.writer)
    entries = log.advance() if mine and not history.omitted.files else None
    if entries is None or log.torn or log.reached != history.log.reached:
        return None
    digest = _digest(log)
    left = omitted_files(mine.values(), history.last_commit)
    every = tuple(kept(entries, frozenset(mine)))
    candidate = ShortForm(log.file, log.reached, digest, every, dict(history.times), left, log.chain.link)
    written = [encode_line(line) for line in short_form_lines(candidate)]
    if max(map(len, written)) > _LONGEST_LINE:
        return None
    read = short_form_of_lines([entry for line in written if (entry := decode_line(line)) is not None])
    return None if read is None or difference(history, read) != "" else read


def difference(history: WriterHistory, short: ShortForm) -> str | None:
    """The difference of the short form from the log, in words; "" if there is none.

    None where the log does not begin with the bytes of the short form: then no reader uses it.
    """
    begun = WriterHistory(CommitLog(history.log.root, history.log.writer))
    try:
        if not begin(begun, short):
            return None
        advance(begun)
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
    names = (field.name for field in fields(history) if field.compare)
    return next((name for name in names if getattr(history, name) != getattr(begun, name)), "")


def new_short_forms(histories: Collection[WriterHistory], gone: Collection[str]) -> Iterator[ShortForm]:
    """Short forms that can be made of these logs and that no log of a verb holds yet."""
    for history in (history for history in histories if not history.is_offline):
        short = short_form(history, gone)
        if short is not None and all(verb.short_forms.get(short.log) != short for verb in histories):
            yield short


def compared_with_logs(histories: Iterable[WriterHistory]) -> Iterator[tuple[str, str, str]]:
    """(log with the short form, log it stands for, what differs or "") for every short form that a reader would use."""
    by_file = {history.log.file: history for history in histories}
    for verb in by_file.values():
        for file, short in verb.short_forms.items():
            words = difference(by_file[file], short) if file in by_file else None
            if words is not None:
                yield verb.log.file, file, words


def begun_from_short_form(log: CommitLog, histories: Iterable[WriterHistory]) -> WriterHistory:
    """A history begun from the newest short form that fits the log; an empty history where none does."""
    verbs = sorted((h for h in histories if log.file in h.short_forms), key=lambda h: h.opened or 0.0, reverse=True)
    for verb in verbs:
        fresh = WriterHistory(CommitLog(log.root, log.writer))
        if begin(fresh, verb.short_forms[log.file]):
            return fresh
    return WriterHistory(log)


def lacking_wanted_files(histories: Collection[WriterHistory], gone: Collection[str]) -> list[WriterHistory]:
    """Histories whose short form omits a file that the run still needs. Their full logs must be read."""
    short = [history for history in histories if history.omitted.files]
    if not short:
        return []
    named = {path for history in histories for path in (*history.token_files, *history.segments, *history.readings)}
    covered = Counter(writer_of(path) for path in gone if path not in named)
    return [history for history in short if covered[history.log.writer] < history.omitted.files]


def _items(history: WriterHistory) -> dict[str, TokenFile | Segment]:
    return {**history.token_files, **history.segments}


def _is_own(item: TokenFile | Segment, writer: str) -> bool:
    """True if the file's name begins with its writer: only then can a reader count omitted files by writer."""
    return item.writer == writer == writer_of(item.path)


def _digest(log: CommitLog) -> str:
    digest = hashlib.sha256()
    with open_regular(log.root, f"{COMMITS}/{log.writer}.jsonl") as file:
        digest.update(file.read(log.reached))
    return digest.hexdigest()
