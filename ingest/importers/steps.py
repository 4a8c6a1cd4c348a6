"""The steps of a table: each takes the value so far and the row, and returns the value after it.

A step that takes `mask` takes the name of a field with one number per token; a token counts where the number is not 0.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ratioscope.arrays import Array, Booleans
from ratioscope.conversation import conversation_text, is_message
from ratioscope.errors import FieldError

from .csv_rows import parsed
from .row import Row, flat
from .token_strings import spelled_ids, token_texts
from .topk import topk

Apply = Callable[..., Any]


def _mask(row: Row, name: str) -> Booleans:
    return counted(flat(row.at(name), name), name)


def counted(values: Array, name: str) -> Booleans:
    """True where a mask counts a token. FieldError where it says neither."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise FieldError(
            f"{name} holds a value that is no number; wanted 1 where a token counts and 0 where it does not"
        )
    return np.asarray(values != 0)


def _length(row: Row, name: str) -> int:
    """A count: a number in the table or in the row, or as many as a field has that are not 0."""
    value = int(name) if name.isdigit() else row.at(name)
    if isinstance(value, (list, tuple, np.ndarray)) and np.ndim(value) == 1:
        return int(np.count_nonzero(flat(value, name)))
    count = whole(value, row, name)
    if count < 0:
        raise FieldError(f"{name} is {count}; wanted 0 or more tokens")
    return count


def _fitting(values: Array, mask: Booleans, name: str) -> Array:
    if len(values) != len(mask):
        raise FieldError(f"it has {len(values)} tokens and {name} has {len(mask)}")
    return values


def span(value: Any, row: Row, mask: str) -> Any:
    """The tokens from the first to the last that the mask counts."""
    counted = _mask(row, mask)
    places = np.flatnonzero(counted)
    values = _fitting(flat(value, "it"), counted, mask)
    return values[places[0] : places[-1] + 1] if len(places) else values[:0]


def before(value: Any, row: Row, mask: str) -> Any:
    """The tokens before the first that the mask counts."""
    counted = _mask(row, mask)
    values = _fitting(flat(value, "it"), counted, mask)
    return values[: int(counted.argmax())] if counted.any() else values[:0]


def where(value: Any, row: Row, mask: str) -> Any:
    """The tokens that the mask counts, without the others: padding on either side is cut off."""
    counted = _mask(row, mask)
    return _fitting(flat(value, "it"), counted, mask)[counted]


def last(value: Any, row: Row, length: str) -> Any:
    """The last tokens: as many as the length says."""
    values, count = flat(value, "it"), _length(row, length)
    if count > len(values):
        raise FieldError(f"it has {len(values)} tokens, fewer than the {count} of {length}")
    return values[len(values) - count :]


def but_last(value: Any, row: Row, length: str) -> Any:
    """The tokens before the last ones: all but as many as the length says."""
    values, count = flat(value, "it"), _length(row, length)
    if count > len(values):
        raise FieldError(f"it has {len(values)} tokens, fewer than the {count} of {length}")
    return values[: len(values) - count]


def first(value: Any, row: Row, length: str) -> Any:
    """The first tokens: as many as the length says."""
    values, count = flat(value, "it"), _length(row, length)
    if count > len(values):
        raise FieldError(f"it has {len(values)} tokens, fewer than the {count} of {length}")
    return values[:count]


def spread_over(value: Any, row: Row, mask: str) -> Any:
    """One value for each token that the mask counts, laid out over all tokens: NaN at the others."""
    counted, values = _mask(row, mask), flat(value, "it")
    if len(values) != counted.sum():
        raise FieldError(f"it has {len(values)} values for the {counted.sum()} tokens that {mask} counts")
    spread = np.full(len(counted), np.nan)
    spread[counted] = values
    return spread


def shift(value: Any, row: Row, by: str) -> Any:
    """The values moved by so many tokens, to the right if positive. NaN where nothing comes in."""
    values, places = flat(value, "it").astype(np.float64), int(by)
    moved = np.full(len(values), np.nan)
    if places >= 0:
        moved[places:] = values[: max(len(values) - places, 0)]
    else:
        moved[:places] = values[-places:]
    return moved


def padded(value: Any, row: Row, pad: str) -> Any:
    """The values without the padding behind them: repetitions of one number."""
    values = flat(value, "it")
    kept = np.flatnonzero(values != float(pad))
    return values[: int(kept[-1]) + 1 if len(kept) else 0]


def absent_if_zero(value: Any, row: Row) -> Any:
    """Nothing, where all values are 0: a placeholder of what was not computed."""
    return None if not flat(value, "it").any() else value


def zero_if_zero(value: Any, row: Row, switch: str) -> Any:
    """Zeros, where a number of the whole sequence is 0: it was taken out of the loss."""
    values, kept = flat(value, "it"), row.at(switch)
    return values if kept is None or number(kept, row) != 0 else np.zeros_like(values)


def nonzero(value: Any, row: Row) -> Any:
    """True where the number is not 0."""
    return counted(flat(value, "it"), "it")


def ones(value: Any, row: Row, like: str) -> Any:
    """True for each token of another field, where this one is absent."""
    if value is not None:
        return value
    other = row.at(like)
    return None if other is None else np.ones(len(flat(other, like)), bool)


def number(value: Any, row: Row) -> float:
    """A number."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0].item()
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError as error:
            raise FieldError(f"{value[:40]!r} is no number") from error
    if isinstance(value, (int, float, np.number, np.bool_)):
        return float(value)
    raise FieldError(f"it is a {type(value).__name__}; wanted a number")


def whole(value: Any, row: Row, what: str = "it") -> int:
    """A whole number, from a number or a text of one."""
    if isinstance(value, str):
        if not value.strip().removeprefix("-").isdigit() or len(value) > 18:
            raise FieldError(f"{what} is {value[:40]!r}; wanted a whole number")
        return int(value)
    value_as_number = number(value, row)
    if not value_as_number.is_integer() or abs(value_as_number) >= 2**63:
        raise FieldError(f"{what} is {value_as_number}; wanted a whole number")
    return int(value) if isinstance(value, (int, np.integer)) else int(value_as_number)


def lowest(value: Any, row: Row) -> Any:
    """The lowest of some whole numbers, or of texts of them; nothing of none, or where one is a name."""
    return None if names(value, row) else min((whole(item, row) for item in value), default=None)


def highest(value: Any, row: Row) -> Any:
    """The highest of some whole numbers, or of texts of them; nothing of none, or where one is a name."""
    return None if names(value, row) else max((whole(item, row) for item in value), default=None)


def names(value: Any, row: Row) -> Any:
    """The values, if one of them is a text of no number, such as a version with a name; else nothing."""
    return value if any(isinstance(item, str) and not _is_number(item) for item in value) else None


def if_number(value: Any, row: Row) -> Any:
    """A number, or a text of one; nothing of anything else, such as a version with a name, or the parts of a reward."""
    return value if _is_number(value) else None


def unless_number(value: Any, row: Row) -> Any:
    """Anything else than a number or a text of one; nothing of those."""
    return None if _is_number(value) else value


def _is_number(value: Any) -> bool:
    try:
        number(value, Row(None, None, {}))
    except FieldError:
        return False
    return True


def text(value: Any, row: Row) -> str:
    """A text: of a number its digits, of a conversation its messages."""
    if isinstance(value, (list, tuple)):
        return conversation_text(value)
    if isinstance(value, np.ndarray) and value.ndim:
        raise FieldError(f"it has the shape {value.shape}; wanted one text or number")
    single = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    if isinstance(single, float) and single != single:
        raise FieldError("it is nan; wanted a text or number")
    return str(single)


def role(value: Any, row: Row, name: str) -> Any:
    """The content of the last message of a role in a conversation."""
    messages = [part for part in value if is_message(part) and part["role"] == name] if isinstance(value, list) else []
    return messages[-1].get("content") if messages else None


def item(value: Any, row: Row, index: str) -> Any:
    """One of a list."""
    place = int(index)
    return value[place] if isinstance(value, (list, tuple, np.ndarray)) and -len(value) <= place < len(value) else None


def pick(value: Any, row: Row, index: str) -> Any:
    """One entry of each of a list of lists, or of a list of mappings."""
    try:
        return [part[index] if isinstance(part, Mapping) else part[int(index)] for part in value]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise FieldError(f"an entry has no {index}") from error


def numbers_of(value: Any, row: Row, name: str) -> Any:
    """A number of each of a list of mappings, or the list itself where it is one of numbers."""
    return pick(value, row, name) if isinstance(value, list) and value and isinstance(value[0], Mapping) else value


def interval(value: Any, row: Row) -> Any:
    """The number of the interval that holds the row, among pairs of first row and row after the last."""
    at = row.facts["row"]
    pairs = [pair for pair in value if isinstance(pair, (list, tuple)) and len(pair) == 2]
    return next((index for index, (start, end) in enumerate(pairs) if start <= at < end), None)


def named(value: Any, row: Row, *names: str) -> Any:
    """The value with names before it that are there, so that it is unique in the run: `12` of step 3 becomes `3-12`.

    If none is there, the path of the file is before it, where the source has several files.
    """
    before = [part for name in names if (part := row.at(name)) is not None] or [row.at("@source")]
    return "-".join(text(part, row) for part in (*before, value) if part is not None)


def run_lengths(value: Any, row: Row) -> Any:
    """Values, each repeated as often as the number beside it says."""
    pairs = [(whole(pair[0], row), whole(pair[1], row)) for pair in value]
    if any(count < 0 or count > 1 << 24 for _, count in pairs):
        raise FieldError("it repeats a value a negative number of times, or more often than any response is long")
    return np.repeat([each for each, _ in pairs], [count for _, count in pairs])


def lists(value: Any, row: Row) -> Any:
    """A list, from a text of JSON, as a cell of a CSV file or of a database holds it, or from one that Python printed."""
    if not isinstance(value, (str, bytes)):
        return value
    try:
        return parsed(value)
    except ValueError as error:
        raise FieldError("its text is no list in JSON") from error


STEPS: dict[str, Apply] = {
    step.__name__: step
    for step in (
        span, before, where, last, but_last, first, spread_over, shift, padded, absent_if_zero, zero_if_zero, nonzero, ones,
        number, whole, lowest, highest, names, if_number,
        unless_number, text, role, item, pick, numbers_of, interval, named, run_lengths, lists, topk,
        token_texts, spelled_ids,
    )
}  # fmt: skip
TAKES_NONE = frozenset(("ones",))
"""Steps that are asked of an absent value, too."""
