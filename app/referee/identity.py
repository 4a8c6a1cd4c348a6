"""Conversation identity of a run: its sequences are read and compared in a child process, and the result is written into it."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ratioscope import layout
from ratioscope.collectors.writing.offline import OfflineWriter
from ratioscope.errors import MissingExtra, SourceError, not_writable
from ratioscope.ingest.analysis.conversation_identity import Identity
from ratioscope.ingest.importers.confinement import FileLimits
from ratioscope.ingest.importers.wall import Ended, apart
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.join import joined

from .choice import Wanted, chosen
from .rendered_turns import TESTED, Conversation, found_in

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

COLUMNS = ("token_ids", "prompt_ids", "mask", "loss_mask", "finish_reason", "extra", "token_texts")
MEMORY = FileLimits(nbytes=4 << 30)
"""Memory that a tokenizer and its template may take."""
TEXTS = 64
"""Texts of tokens of a sequence that show whose tokenizer it is."""
_LONGEST_NAME = 40


@dataclass(frozen=True)
class Examined:
    """The result of a call of the verb."""

    identity: Identity
    ids: Mapping[int, tuple[int, int]]
    """Id -> times that it vanishes, and times that rendering adds it."""
    texts: Mapping[int, str]
    """Id -> its text."""
    examples: tuple[Mapping[str, Any], ...]
    """The first differences: step, sequence_id, turn, class, place, way, and ids that are lost and gained."""


def examined(run: "Run", folder: Path, wanted: Wanted, progress: Callable[[int, int], None] | None = None) -> Examined:
    """The chosen sequences of the run against the tokenizer in a folder. SourceError for a tokenizer that is not the run's."""
    if find_spec("transformers") is None:
        raise MissingExtra("identity", "referee")
    choice = chosen(run, wanted)
    left_out = Counter[str]()
    conversations = [one for step, own in choice.items() for one in _conversations(run, step, own, left_out)]
    found: dict[str, Any] = {}
    if conversations:
        found = _apart(folder, conversations, progress)
    left_out.update(found.get("left_out", {}))
    ids = {int(id): (lost, added) for id, (lost, added) in found.get("ids", {}).items()}
    texts = {int(id): text for id, text in found.get("texts", {}).items()}
    classes = found.get("classes", {})
    identity = Identity(
        clean=classes.get("clean", 0), realigned=classes.get("realigned", 0), forked=classes.get("forked", 0),
        sequences=found.get("sequences", 0), steps=tuple(sorted({one.step for one in conversations})),
        is_rendered=found.get("is_rendered", False), tokenizer=folder.resolve().name, ways=found.get("ways", {}),
        special={texts[id][:_LONGEST_NAME]: ids[id] for id in found.get("special", ())}, left_out=dict(left_out),
    )  # fmt: skip
    return Examined(identity, ids, texts, tuple(found.get("examples", ())))


def _apart(
    folder: Path, conversations: list[Conversation], progress: Callable[[int, int], None] | None
) -> dict[str, Any]:
    """`Found` as the child's last frame holds it."""
    import_module("transformers").AutoTokenizer  # noqa: B018  # loaded here once, and not in each child; pyright would read all of it

    answer = b""
    try:
        for frame in apart(partial(found_in, folder, conversations), MEMORY):
            answer = bytes(frame)
            if progress is not None and answer.isdigit():
                progress(int(answer), len(conversations))
    except Ended as error:
        reason = str(error).partition(";")[0]
        raise SourceError(
            f"the tokenizer in {folder} failed, or took more time or memory than it may ({reason}); wanted a folder as"
            " save_pretrained writes it"
        ) from None
    found: dict[str, Any] = json.loads(answer)
    return found


def _conversations(run: "Run", step: int, own: Mapping[str, float], left_out: Counter[str]) -> Iterator[Conversation]:
    """The sequences in the order of their trajectories and turns. left_out: reason -> sequences, which it adds to."""
    rows = joined(run.rows(step, COLUMNS))
    rows = rows.filter(pc.is_in(rows["sequence_id"], pa.array(sorted(own))))
    found = dict[str, Conversation]()
    for place in range(len(rows)):
        (row,) = rows.slice(place, 1).to_pylist()
        if row["sequence_id"] in found:
            continue
        if reason := _unread(row):
            left_out[reason] += 1
        else:
            found[row["sequence_id"]] = _conversation(row, with_texts=len(found) < TESTED)
    yield from sorted(found.values(), key=lambda one: (one.trajectory or "", len(one.prompt)))


def _unread(row: Mapping[str, Any]) -> str:
    """Why a row cannot be compared, and what to do; "" where it can."""
    if not row["token_ids"]:
        return "token ids are not on record: record with text='ids' or 'full'"
    if not row["prompt_ids"]:
        return "prompt ids are not on record: log prompt_ids, or use an adapter that does"
    masks = [row[name] for name in ("mask", "loss_mask") if row[name] is not None]
    if any(len(mask) != len(row["token_ids"]) for mask in masks):
        return "their token ids are cut: fewer are on record than entries of the mask"
    return ""


def _conversation(row: Mapping[str, Any], *, with_texts: bool) -> Conversation:
    try:
        extra = json.loads(row["extra"] or "{}")
    except ValueError:
        extra = {}
    trajectory = extra.get("trajectory") if isinstance(extra, dict) else None
    texts = (row["token_texts"] or ())[:TEXTS] if with_texts else ()
    return Conversation(
        row["step"], row["sequence_id"], row["prompt_ids"], row["token_ids"], row["mask"], row["loss_mask"],
        row["finish_reason"] == "stop", None if trajectory is None else str(trajectory), texts,
    )  # fmt: skip


def record(run: "Run", identity: Identity) -> None:
    """Writes the result into the run: counts, and no text or id of a turn. SourceError if the run cannot be written."""
    note = json.dumps(asdict(identity) | {"at": time.time()})  # a note that is repeated would count from its first time
    entry = {"kind": layout.EVENT, "event": layout.IDENTITY, "step": min(identity.steps, default=0), "note": note}
    try:
        OfflineWriter(run.path, "identity").say(entry)
    except OSError as error:
        raise not_writable(run.path, error) from error
