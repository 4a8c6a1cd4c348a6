"""The folders and files of a run, and the lines of its commit logs. Writers (collectors) and readers (ingest) share this file.

    RUN/run.json                                    name, schema version, trainer, config, attempts
    RUN/tokens/step=000000123/<writer>.<part>.parquet   one row per sequence (record.RECORD)
    RUN/statistics/<writer>.<segment>.parquet       statistics of up to SEGMENT_STEPS steps (metrics.statistic)
    RUN/readings/<name>/step=000000123/<writer>.<part>.parquet   further log-probs of recorded tokens, under a name
    RUN/topk/step=000000123/<writer>.<part>.parquet   the likeliest tokens of each place, beside the sampled ones
    RUN/overall/<writer>.<number>.parquet           slice `all` of several segments once more, for readers of long runs
    RUN/scalars/<writer>.<part>.parquet             numbers that a trainer logged by step, under its names
    RUN/commits/<writer>.jsonl                      commits, drops and events: one line each
    RUN/quarantine/                                 unreadable files, put here by `ratioscope repair`

A file whose name begins with a dot is being written and is no part of the run. Files are immutable once named, save the
newest statistics segment of each writer, which is replaced whole.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .flat_json import loaded

RUN_FILE = "run.json"
RUN_MEMBERS = frozenset({"attempts", "schema_version"})
"""Every run.json of ours has one of them: another program may call its file so, too."""
TOKENS = "tokens"
STATISTICS = "statistics"
READINGS = "readings"
TOPK = "topk"
"""Folder of files of top-k, and the kind of the line that commits one: as READING, without a name and `made_of`."""
MOST_TOPK = 256
"""The most alternatives of one token: engines return 20 unless asked for more."""
OVERALL = "overall"
REJECTED = "import/rejected.jsonl"
"""The rows of the source that an import did not take, one a line, with file, row, field and reason."""
"""Folder of files of overall statistics, and the kind of the line that commits one: `file`, `bytes`, `sha256`, and `segments`:
the full segments (`file`, `sha256`) whose rows of slice `all` it repeats; its column SEGMENT is a place in this list. A reader
that cannot use the file, or does not know this kind, reads the segments."""
SEGMENT = "segment"
SCALARS = "scalars"
COMMITS = "commits"
STARTS = ".starts"
"""Folder of one small file per start of the job: who decided which folder it records into, see collectors/writing/starts.py."""
MIRROR_MARK = ".copy"
"""A file in the copy of a run that lies on a store: nothing may be written into that folder, see ingest/remote/mirror.py."""
SEGMENT_STEPS = 64
OVERALL_SEGMENTS = 8
"""Full segments whose statistics over all tokens are repeated in one file."""
_OFFLINE_WRITER = "offline-"

COMMIT = "commit"
"""A token file, statistics segment or file of scalars is complete: `file`, `rows`, `tokens`, `bytes`, `sha256`, `step`.

`tokens` counts response positions, masked ones too; `offered` and `dropped` are the writer's sequences up to then, `left_out`
those of this file's rows that the budget left to the statistics, `slices` its rows that hold a part of a sequence. `unmeasured`:
statistics on record are of earlier parts of the step alone, until the writer's next segment with the step."""
READING = "reading"
"""A file of a reading is complete: `file`, `reading` (its name), `attempt`, `step`, `rows`, `tokens`, `bytes`, `sha256`, and
`made_of`: what computed it, as a JSON object. It is no COMMIT, so that readers of before there were readings pass over it."""
ANNOUNCED = "announced"
"""The newest statistics segment is about to be replaced: `file`, `bytes`, `sha256` of the new segment. Until the commit
follows, or for ever if the writer ends before it, a file of either digest is as its writer wrote it."""
TAKEN = "taken"
"""Rows of `step` wait to be written: `offered` counts the writer's sequences so far, so a killed writer's loss is known."""
EVENT = "event"
"""An event of the run: `event` (weight_sync, resume, config_change, ...), `step`, `note`."""
NOTE = "note"
"""The event of a person: see `ratioscope note`."""
ACKNOWLEDGED, WITHDRAWN = "acknowledged", "acknowledgement withdrawn"
"""The events of a person who has seen an alert, from its first step, or takes that back; `note`: signal, grade and a number."""
VIEW = "view"
"""The event of a person who saved a view of the dashboard under a name, or took it away; `note`: JSON."""
TAG = "tag"
"""The event of a person who put a tag on the run, or took it away; `note`: JSON."""
REPRODUCED = "reproduced"
"""The event of `ratioscope rescore --try`: what reproduces a recorded column."""
REFEREE = "referee"
"""The event of `ratioscope rescore` for programs; `note`: JSON with `floors` (policy -> its precision and the referee's own
mean |x| there, nats/token) or `found` (the findings of --try). The newest one of either kind counts."""
IDENTITY = "identity"
"""The event of `ratioscope identity`: turns whose ids rendering gives, or does not give; `note`: JSON without any text of a turn.
The newest one counts."""
WEIGHTS_READ = "weights_read"
"""The event of `ratioscope weights`: which engines were asked for checksums of their weights, and how long each took."""
FIRST_ROWS = "first_rows"
"""The event every run has: what the first rows on disk are, and whether their two sides line up."""
TOPK_LEFT_OUT = "topk_left_out"
"""The event of a writer whose budget for top-k has no room for all sequences, at the first such step."""
STATE = "state"
"""The event of a writer that can no longer write all it should, or can again; `state`: ok, degraded or paused."""
CONTROL = "control"
"""The event of a changed budget: see collectors/budget.py."""
WEIGHTS = "weights"
"""Digests of the weights of the trainer or of an engine: `version`, `step`, `replica` (null: the trainer's), `tensors` (their
number), `digest` of all, `by` (who made them); `names`: the key of the table of names, and `each`: eight characters per entry of
it, absent if a line with this `digest` has them, or where a log would grow too long; `attempt`: of the job, in a verb's log."""
WEIGHT_NAMES = "weight_names"
"""A table of names, before the first line that refers to it: `names` (its key), `entries`: [name, dtype and shape] by name. A
large model has entries of several tensors: numbers in their names are replaced by *."""
DROPPED = "gap"
"""Sequences that were offered and not written: `step`, `sequences`, `tokens`, `reason`."""
OPEN = "open"
"""A writer began: `writer`, `rank`, `host`, `pid`, `started` (its process), `namespace` (of processes: a container has its own),
`attempt`, `time`, `launch` (which start of the job), `run` (the `id` in run.json), and `beside`: other logs that were there, a
few of them where they are many. CLOSE has `beside`, too, so that a log that goes missing is missed by others. `part_of`: the
process or pool of processes that it is one of many of; `ray_worker`: true if Ray started the process; `takes_over`: writers of
its rank and attempt that had ended and whose work it goes on with; `continues`: writers of the same collector whose processes had
ended: what they had taken and not written is in a DROPPED line of this log; `script`: the program."""
OFFLINE = "offline"
"""A verb began to work on a run that nobody writes (only `note`, which the dashboard's acknowledgements are too, `rescore`,
`weights` and `identity` write beside others): `verb`, `host`, `pid`, `time`. Its log is no writer's of the run.

Its commits may carry `writer` (whose rows they are), `attempt`, `replaces` (the files whose rows the new file holds: from
this line on they are no part of the run) and `measured` (of which writers, gaps and steps merged statistics are; or see
`together`)."""
PRUNED = "pruned"
"""Files that are deleted after this line, and are no part of the run from it on: `files`, `bytes`; `steps`: those whose token
rows are given up, in pairs of first and last, empty where other files hold the rows."""
MOVED = "moved"
"""A file that cannot be read is moved after this line: `file`, `to` (in QUARANTINE), `reason`. A file copied back counts
again."""
NOTED = "noted"
"""A commit log has `altered` lines and `tail` bytes that cannot be read, and what they named was restored: `log`."""
CONDENSED = "condensed"
"""The content of the first `bytes` of `log`, of digest `sha256`, without its commits of files that others replace or that
were pruned: `entries`, `times`, and in part 0 of its `parts` the numbers that those commits add to the writer's counts. See
ingest/commits/short_form.py."""
QUARANTINE = "quarantine"
FOLDERS = (TOKENS, STATISTICS, READINGS, TOPK, OVERALL, SCALARS, COMMITS, QUARANTINE, STARTS)
"""The sub-folders of a run."""
CLOSE = "close"
"""A writer ended in order: `offered`, `written`, `left_out` (by the budget), `dropped`: the sequences of this log."""


COMMIT_COPY = "ratioscope.commit"
"""In the footer of a file that replaces others: its commit without `bytes` and `sha256`, for the day that its log is lost."""


_ENDING = re.compile(rb', "crc32": "([0-9a-f]{8})"}')
_CHAIN = re.compile(rb'"chain": "([0-9a-f]{32})"')
_CHAIN_BEGINS, _CHAIN_LENGTH = b'"chain": "', 32
_ENDING_LENGTH = len(', "crc32": "01234567"}')


def token_file(step: int, writer: str, part: int) -> Path:
    """Path of a token file, relative to the run."""
    return Path(TOKENS) / f"step={step:09d}" / f"{writer}.{part:04d}.parquet"


def statistics_file(writer: str, segment: int) -> Path:
    """Path of a statistics segment, relative to the run."""
    return Path(STATISTICS) / f"{writer}.{segment:06d}.parquet"


def overall_file(writer: str, number: int) -> Path:
    """Path of a file of overall statistics, relative to the run."""
    return Path(OVERALL) / f"{writer}.{number:06d}.parquet"


def reading_file(name: str, step: int, writer: str, part: int) -> Path:
    """Path of a file of a reading, relative to the run."""
    return Path(READINGS) / name / f"step={step:09d}" / f"{writer}.{part:04d}.parquet"


def topk_file(step: int, writer: str, part: int) -> Path:
    """Path of a file of top-k, relative to the run."""
    return Path(TOPK) / f"step={step:09d}" / f"{writer}.{part:04d}.parquet"


def scalar_file(writer: str, part: int) -> Path:
    """Path of a file of scalars, relative to the run."""
    return Path(SCALARS) / f"{writer}.{part:06d}.parquet"


def commit_file(writer: str) -> Path:
    """Path of a writer's commit log, relative to the run."""
    return Path(COMMITS) / f"{writer}.jsonl"


def offline_writer(name: str) -> str:
    """The name under which a verb writes into a run; no writer of a trainer's has one like it."""
    return f"{_OFFLINE_WRITER}{name}"


def writer_of(path: str) -> str:
    """The writer that the name of a token file or segment begins with: <writer>.<part>.parquet."""
    return path.rsplit("/", 1)[-1].rsplit(".", 2)[0]


def joint_writer(rows: int) -> str:
    """Pseudo-writer of statistics that were computed jointly from all `rows` rows of a step."""
    return f"{_OFFLINE_WRITER}{rows}-rows"


def is_offline(writer: str) -> bool:
    """True if the name is that of a verb, and not of a process that recorded."""
    return writer.startswith(_OFFLINE_WRITER)


def step_spans(steps: Iterable[int]) -> list[int]:
    """The first and last step of each unbroken stretch of steps, one after the other.

    >>> step_spans([7, 1, 2, 3])
    [1, 3, 7, 7]
    """
    spans: list[int] = []
    for step in sorted(set(steps)):
        if spans and step == spans[-1] + 1:
            spans[-1] = step
        else:
            spans += [step, step]
    return spans


def encode_line(entry: Mapping[str, Any]) -> bytes:
    """One commit line: the entry as JSON, with the crc32 of its canonical form as its last member."""
    body = _canonical(entry)
    comma = ", " if entry else ""
    return f'{body[:-1]}{comma}"crc32": "{checksum(entry)}"}}\n'.encode()


def checksum(entry: Mapping[str, Any]) -> str:
    """The crc32 of an entry's canonical form, in hexadecimal: the member `crc32` of a commit line, and of run.json."""
    return f"{zlib.crc32(_canonical(entry).encode()):08x}"


def decode_line(line: bytes) -> dict[str, Any] | None:
    """The entry of a commit line; None if the line is torn or altered."""
    try:
        entry = loaded(line.decode())  # for bytes, json would detect the encoding first
    except ValueError:
        return None
    if not isinstance(entry, dict):
        return None
    crc32 = entry.pop("crc32", None)
    return entry if is_unaltered(line) or crc32 == checksum(entry) else None


def chained_line(entry: Mapping[str, Any], number: int, before: str) -> tuple[bytes, str]:
    """The entry as line `number` (from 0) of a log, and its digest. before: that of the line before it, "" for the first.

    `chain` is the first half of the sha256 of the entry's canonical form with `line`, and with the digest of the line before it
    as `chain`: whoever removes, adds, moves or changes a line breaks it there.
    """
    chain = _digest(_canonical({**entry, "line": number, "chain": before}).encode())
    return encode_line({**entry, "line": number, "chain": chain}), chain


def chain_of(line: bytes) -> str | None:
    """The digest that a line states; None where it states none, as in logs of before there were any."""
    match = _CHAIN.search(line)
    return None if match is None else match[1].decode()


def follows(line: bytes, before: str) -> str | None:
    """The digest of the line, if it is, byte for byte, as it was written after the line of the digest `before`."""
    start = line.find(_CHAIN_BEGINS) + len(_CHAIN_BEGINS)
    end = start + _CHAIN_LENGTH
    own = line[start:end]
    body = b"".join((line[:start], before.encode(), line[end : len(line) - _ENDING_LENGTH], b"}"))
    return own.decode("ascii", "replace") if _digest(body).encode() == own else None


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:_CHAIN_LENGTH]


def is_unaltered(line: bytes) -> bool:
    """True if the line is byte for byte as encode_line made it. Ten times as fast as the checksum of the entry."""
    line = line.rstrip(b"\n")
    match = _ENDING.fullmatch(line, max(0, len(line) - _ENDING_LENGTH))
    return match is not None and zlib.crc32(b"}", zlib.crc32(line[: match.start()])) == int(match[1], 16)


def _canonical(entry: Mapping[str, Any]) -> str:
    return json.dumps(dict(entry), sort_keys=True)
