"""The effect of the option `text`: the columns that a setting leaves out, and the parts of others that "ids" and "none" keep.

extra           numbers, true, false and null, with their keys; a text becomes null; a key that is no name becomes its digest
ids             of sequences, groups and engines: names stay; anything else, a prompt for example, becomes its digest, so that
                equal ids stay equal
finish_reason   a word stays; anything else becomes null
errors          their type; their words may quote what could not be read
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from ratioscope.topk import ARGUMENTS

from .breaths import listed
from .token_columns import strings

Text = Literal["full", "ids", "none"]
_NAME = re.compile(r"[\w.:/@+=,~%\[\]-]{1,80}", re.ASCII)
"""A name: a uid, path, host or list of them, short and without blanks."""
_REASON = re.compile(r"[a-z_-]{1,24}", re.ASCII | re.IGNORECASE)
_QUOTES = re.compile(r"(?!SchemaError:|OSError:)([A-Za-z_]\w*): .*", re.DOTALL)
"""An error of a type that is neither ours nor the system's, with its words."""
_DEPTH = 12


def without_texts(records: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without any text that could contain a part of a prompt or response."""
    for name, part_of in KEPT.items():
        at = records.schema.get_field_index(name)
        if at < 0 or records.column(at).null_count == len(records):
            continue
        values = (None if value is None else part_of(value) for value in listed(records.column(at)))
        records = records.set_column(at, records.schema.field(at), strings(values))
    return records


def without_words(detail: str) -> str:
    """The part of an error that may be recorded: its kind alone, unless it is one of ours.

    >>> without_words("ValueError: cannot read 'What is 2 + 2?'")
    'ValueError'
    """
    match = _QUOTES.fullmatch(detail)
    return detail if match is None else match[1]


def name_or_digest(text: str) -> str:
    """The text if it is a name, else a digest of it, which distinguishes it from others.

    >>> name_or_digest("7f3a-0/12"), name_or_digest("What is 2 + 2?")
    ('7f3a-0/12', 'text:38d46ad3618826cf')
    """
    return text if _NAME.fullmatch(text) else f"text:{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:16]}"


def _numbers_alone(text: str) -> str | None:
    try:
        return json.dumps(_without_texts(json.loads(text), 0))
    except (ValueError, RecursionError):  # it was given as a text of its own
        return None


def _without_texts(value: Any, depth: int) -> Any:
    if isinstance(value, dict) and depth < _DEPTH:
        return {name_or_digest(key): _without_texts(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list) and depth < _DEPTH:
        return [_without_texts(item, depth + 1) for item in value]
    return value if isinstance(value, (int, float)) else None


def _reason(text: str) -> str | None:
    return text if _REASON.fullmatch(text) else None


KEPT: dict[str, Callable[[str], str | None]] = {
    "sequence_id": name_or_digest,
    "group_id": name_or_digest,
    "replica": name_or_digest,
    "finish_reason": _reason,
    "extra": _numbers_alone,
}
"""Column -> the part of its value that stays."""


@dataclass(frozen=True)
class TextPolicy:
    """The data that one value of the option `text` allows to be recorded."""

    left_out: frozenset[str] = frozenset()
    """Arguments of `log` that are not looked at."""
    rows: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda records: records
    """Removes from rows what may not be recorded."""
    detail: Callable[[str], str] = str
    """Removes from the words of an error what may not be recorded."""
    name: Callable[[str], str] = str
    """The part of an engine's or a tensor's name that may be recorded."""


_WRITTEN = frozenset({"token_texts", "prompt_texts"})
TEXTS: dict[Text, TextPolicy] = {
    "full": TextPolicy(),
    "ids": TextPolicy(_WRITTEN, without_texts, without_words, name_or_digest),
    "none": TextPolicy(
        _WRITTEN | {"token_ids", "sampled_ids", "prompt_ids", "prompt_mask", *ARGUMENTS},
        without_texts,
        without_words,
        name_or_digest,
    ),
}
