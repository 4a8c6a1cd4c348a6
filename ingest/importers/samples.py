"""Samples: rows as the arguments of `Collector.log`, each checked by itself. A row that does not hold together is rejected."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.errors import ConfigError, FieldError, UnsafeFile

from . import topk
from .containers import Content
from .groups import completions, names_each
from .repeats import REPEATED, is_known
from .restricted.inert import opened
from .row import Row, SetAside, Unreadable, flat, inside
from .steps import STEPS, TAKES_NONE, counted, number, text, whole
from .table import ColumnMapping, FileKind
from .token_rows import TokenRows, is_number
from .token_strings import TOKEN_TEXTS, demand_texts

LOGPROBS = ("rollout_logprobs", "old_logprobs", "current_logprobs")
PER_TOKEN = (*LOGPROBS, "reference_logprobs", "entropy", "mask", "loss_mask", "token_ids", "turns")
OF_TOKENS = (*PER_TOKEN, TOKEN_TEXTS)
"""Columns of one value per token; all are arrays, but for the texts."""
MASKS = ("mask", "loss_mask")
EITHER = ("advantages", "rollout_versions")
TEXTS = ("sequence_ids", "group_ids", "replica", "finish_reasons", "prompt_texts")
WHOLE = (
    "step", "minibatch", "trainer_version", "generation_step", "rollout_version_min", "rollout_version_max", "prompt_tokens",
    "cached_tokens",
)  # fmt: skip
UNFINISHED = "lines that do not end yet, each the last of its file"
_OF_ROWS = (*PER_TOKEN, *EITHER, *TEXTS, *WHOLE, "rewards", "prompt_ids")
_BOUNDS = {
    "step": (0, 10**9),
    "minibatch": (0, 2**31 - 1),
    "prompt_tokens": (0, 2**31 - 1),
    "cached_tokens": (0, 2**31 - 1),
}
_WITHIN: dict[str, type[np.signedinteger[Any]]] = {
    "token_ids": np.int32, "prompt_ids": np.int32, "turns": np.int16, "rollout_versions": np.int64,
}  # fmt: skip
"""Columns of whole numbers. A list of none has no type of its own, and one of a JSON file may have its numbers as 1.0."""


@dataclass(frozen=True)
class Rejected:
    """A row that is not imported."""

    file: str
    row: int | None
    """Its number in the file, from 0; None: the whole file."""
    field: str | None
    reason: str


@dataclass(frozen=True)
class _OtherCount:
    """A column with another number of entries than its file has rows."""

    entries: int
    rows: int


@dataclass
class RecordedRow:
    """A row: what it is recorded as, and the keys that it is joined by."""

    step: int | None
    values: dict[str, Any]
    """Column of the Record -> value."""
    keys: dict[str, Any]
    file: str
    row: int


def samples(
    part: FileKind, content: Content, file: str, facts: Mapping[str, Any]
) -> Iterator[RecordedRow | Rejected | SetAside]:
    """The rows of a file of this kind, in their order, and what is no sample of training."""
    known: set[int] = set()
    for index, values in _numbered(part, _rows(part, content)):
        if isinstance(values, Unreadable) and values.is_cut and part.grows:
            yield SetAside(UNFINISHED)
        elif isinstance(values, Unreadable):
            yield Rejected(file, index, None, values.reason)
        else:
            yield from _of_row(part, values, content.whole, file, {**facts, "row": index, "line": index}, known)


def _of_row(
    part: FileKind, values: Any, whole_file: Any, file: str, facts: Mapping[str, Any], known: set[int]
) -> Iterator[RecordedRow | Rejected | SetAside]:
    group = completions(values, part.columns, logprobs=LOGPROBS, per_token=PER_TOKEN) if part.grouped else None
    for place, one in enumerate(split_rows(part, values) if group is None else group):
        if isinstance(one, Unreadable):
            yield Rejected(file, facts["row"], None, one.reason)
        elif isinstance(one, SetAside):
            yield one
        else:
            found = sample(part, Row(one, whole_file, facts), file)
            if group is not None and isinstance(found, RecordedRow):
                _name(found, place, facts, is_named=names_each(values, part.columns))
            is_again = isinstance(found, RecordedRow) and is_known(
                inside(one, part.once) if part.once else None, inside(one, "place"), _logprobs(found), known
            )
            yield SetAside(REPEATED) if is_again else found


def _logprobs(row: RecordedRow) -> Iterator[bytes]:
    return (row.values[name].tobytes() for name in LOGPROBS if name in row.values)


def _name(row: RecordedRow, place: int, facts: Mapping[str, Any], *, is_named: bool) -> None:
    """Gives a completion its group, and an id of its own where the group has one. is_named: each completion has one already."""
    own = row.values.get("sequence_ids")
    at = "-".join(str(part) for part in (facts.get("source"), facts["row"]) if part is not None)
    row.values.setdefault("group_ids", at if own is None or is_named else own)
    if own is not None and not is_named:
        row.values["sequence_ids"] = f"{own}-{place}"


def _numbered(part: FileKind, rows: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    """The rows, each with its number. A table of tokens has a row for each sequence, with the number of its first token."""
    return TokenRows(part.columns, frozenset((*OF_TOKENS, *EITHER))).joined(rows) if part.of_tokens else enumerate(rows)


def split_rows(part: FileKind, values: Any) -> Iterator[Any]:
    """The rows that a row stands for: itself, or the samples of a conversation or response; Unreadable where it is neither."""
    if part.split is None:
        yield values
        return
    count = 0
    try:
        for one in part.split(values):
            count += 1
            yield one
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        yield Unreadable(f"the line is not of the form that is expected ({type(error).__name__}: {str(error)[:80]})")
    else:
        if not count:
            yield Unreadable("the line holds no sample")


def sample(part: FileKind, row: Row, file: str) -> RecordedRow | Rejected:
    """One row."""
    index = row.facts["row"]
    values: dict[str, Any] = {}
    for column in part.columns:
        try:
            if (value := _value(column, row)) is not None:
                values[column.into] = value
            elif column.required:
                raise FieldError("it is absent")
        except (FieldError, TypeError, ValueError, LookupError, OverflowError) as error:
            return Rejected(file, index, column.into, f"{' or '.join(column.places)}: {str(error)[:200]}")
    keys = {name.removeprefix("key."): values.pop(name) for name in list(values) if name.startswith("key.")}
    extra = {name.removeprefix("extra."): values.pop(name) for name in list(values) if name.startswith("extra.")}
    if extra:
        values["extra"] = extra
    if (fault := _fault(values) or ("whole_text" not in keys and _padding(values)) or None) is not None:
        return Rejected(file, index, *fault)
    return RecordedRow(values.pop("step", None), values, keys, file, index)


def _rows(part: FileKind, content: Content) -> Iterator[Any]:
    if content.rows is not None:
        yield from content.rows if not part.unwrapped else map(_unwrapped, content.rows)
        return
    whole_file = opened(content.whole)
    held = opened(inside(whole_file, part.rows)) if part.rows else whole_file
    if part.counted_by:
        yield from _rows_of_columns(held, part, whole_file)
    elif isinstance(held, (list, tuple)):
        yield from (item if isinstance(item, Mapping) else Unreadable("the row is no mapping") for item in held)
    else:
        raise UnsafeFile(f"it has no list of rows{f' at {part.rows}' if part.rows else ''}")


def _rows_of_columns(held: Any, part: FileKind, whole_file: Any) -> Iterator[Any]:
    """Rows of columns: of arrays or lists with one entry for each row. Anything of another length is of all rows."""
    if not isinstance(held, Mapping):
        raise UnsafeFile("it holds no columns")
    columns = {name: opened(column) for name, column in held.items()}
    counted = next((columns[name] for name in part.counted_by.split(" or ") if columns.get(name) is not None), None)
    if counted is None or not _has_entries(counted):
        raise UnsafeFile(f"it has no column {part.counted_by}")
    count = len(counted)
    own = {place for line in part.columns if line.into in _OF_ROWS for place in line.places}
    columns |= {
        name: _OtherCount(len(columns[name]), count) for name in own & columns.keys() if _is_other(columns[name], count)
    }
    padding = inside(whole_file, part.padding_rows) if part.padding_rows else 0
    split = {name for name, column in columns.items() if _has_entries(column) and len(column) == count}
    for index in range(count - (padding if isinstance(padding, int) and 0 <= padding <= count else 0)):
        yield {name: column[index] if name in split else column for name, column in columns.items()}


def _is_other(column: Any, count: int) -> bool:
    """True for a column of entries, more than one, that is not of all rows: nobody knows which row lacks one."""
    return _has_entries(column) and len(column) not in (1, count)


def _has_entries(column: Any) -> bool:
    return isinstance(column, (list, tuple)) or (isinstance(column, np.ndarray) and column.ndim > 0)


def _unwrapped(row: Any) -> Any:
    if isinstance(row, Unreadable):
        return row
    return {name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in row.items()}


def _value(column: ColumnMapping, row: Row) -> Any:
    value = next((found for place in column.places if (found := opened(row.at(place))) is not None), None)
    if isinstance(value, _OtherCount):
        raise FieldError(f"the column has {value.entries} entries, and the file has {value.rows} rows")
    for step in column.steps:
        if value is None and step.name not in TAKES_NONE:
            return None
        value = STEPS[step.name](value, row, *step.arguments)
    return None if value is None else _typed(column.into, value, row)


def _typed(into: str, value: Any, row: Row) -> Any:
    """The value in the form in which its column is recorded."""
    if into in LOGPROBS and is_number(value):
        kind = type(value).__name__
        raise FieldError(
            f"it is a {kind}; wanted one number per token, or rows of one token each and --map sequence_ids=FIELD"
        )
    if into == "advantages" and np.shape(value) == (1,):
        value = flat(value, "it")[0]  # in the Record, a list of one is the value of the whole sequence
    if into in PER_TOKEN or into == "prompt_ids" or (into in EITHER and np.ndim(value)):
        # the values, if they are such as the column may have: a truth is no log-prob
        array = flat(value, "it")
        if into not in MASKS and array.dtype.kind == "b":
            raise FieldError("it holds true and false; wanted one number per token")
        return _within(into, counted(array, "it") if into in MASKS else array)
    if into == TOKEN_TEXTS:
        return demand_texts(value)
    if into in topk.COLUMNS:
        return topk.demand_topk(value)
    if into in WHOLE or into == "rollout_versions":
        low, high = _BOUNDS.get(into, (-(2**63), 2**63 - 1))
        if not low <= (found := whole(value, row)) <= high:
            raise FieldError(f"it is {found}; wanted a whole number from {low} to {high}")
        return found
    if into == "rewards" or into == "advantages":
        return number(value, row)
    if into.startswith("key.") and isinstance(value, float) and value.is_integer():
        return str(int(value))  # pandas makes 3.0 of a 3 beside an empty cell
    if into in TEXTS or into.startswith("key."):
        return text(value, row)
    if into.startswith("extra."):
        return _jsonable(value)
    raise ConfigError(f"there is no column {into[:60]}; wanted one of {', '.join(targets())}")


def targets() -> tuple[str, ...]:
    """The names that the left side of a line of a table may have."""
    return (*OF_TOKENS, "prompt_ids", *EITHER, *topk.COLUMNS, *WHOLE, *TEXTS, "rewards", "extra.NAME", "key.NAME")


def is_target(into: str) -> bool:
    """True if a line of a table may begin so."""
    return into in targets() or into.startswith(("extra.", "key."))


def _within(into: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    kind = _WITHIN.get(into)
    if kind is None:
        return array
    bounds = np.iinfo(kind)
    is_within = not len(array) or np.isfinite(array).all() and bounds.min <= array.min() and array.max() <= bounds.max
    if not is_within or (array.dtype.kind == "f" and (array % 1).any()):
        raise FieldError(f"it holds a number that is no whole one from {bounds.min} to {bounds.max}")
    return array.astype(kind)


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (dict, list, str, int, float, bool)) else str(value)


def _fault(values: Mapping[str, Any]) -> tuple[str | None, str] | None:
    """The field that does not fit the others, and why; None if all fit."""
    first = next((name for name in LOGPROBS if name in values), None)
    if first is None:
        return None, f"it holds none of {', '.join(LOGPROBS)}"
    tokens = len(values[first])
    for name in (*OF_TOKENS, *EITHER):
        if isinstance(value := values.get(name), np.ndarray | list) and len(value) != tokens:
            return name, f"it has {len(value)} tokens, and {first} has {tokens}"
    return (first, "it has no token") if not tokens else None


def _padding(values: Mapping[str, Any]) -> tuple[str, str] | None:
    """The fault of token ids that are none, such as the -100 of a padded batch, at tokens that count."""
    ids = values.get("token_ids")
    if ids is None:
        return None
    odd = ids[(ids < 0) & values.get("mask", True)]
    if not len(odd):
        return None
    return "token_ids", (
        f"{len(odd)} of {len(ids)} ids are below 0, such as {odd[0]}: padding that would count as sampled; wanted ids of tokens:"
        " cut each list with --map, such as token_ids=token_ids|where(MASK), or name the mask with --map mask=MASK"
    )


def listed(rows: Iterable[RecordedRow | Rejected]) -> tuple[list[RecordedRow], list[Rejected]]:
    """Samples and rejected rows apart, for files that are small."""
    both = list(rows)
    return [one for one in both if isinstance(one, RecordedRow)], [one for one in both if isinstance(one, Rejected)]
