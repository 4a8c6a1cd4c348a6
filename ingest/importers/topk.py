"""The likeliest tokens at each place of a response, as engines log them: one array of a row, until the row is recorded.

The array is int32: the number of tokens, then place, id and the bits of the float32 log-prob of each alternative. Each side of a
row has one. Alternatives without ids, such as texts of tokens, are left out: a text may be that of several tokens.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ratioscope.arrays import Array, Integers
from ratioscope.errors import FieldError
from ratioscope.metrics.pieces import places
from ratioscope.record import POLICIES
from ratioscope.topk import IDS, LOGPROBS, MOST_TOPK

COLUMNS = dict(zip((f"{policy}_topk" for policy in POLICIES), LOGPROBS, strict=True))
"""Column of a table -> the argument of `Collector.log` that its log-probs become."""
_MOST = MOST_TOPK // 2
"""The most alternatives of a side: a place has those of two."""
_ID = "token_id:"
"""The beginning of a token that vLLM returns with return_tokens_as_token_ids."""


def topk(value: Any, row: object) -> Array | None:
    """The likeliest tokens of each place, with ids and log-probs; nothing where no place has any. 128 a place, the likeliest.

    value: for each token a mapping from ids, a list of mappings with token and logprob, or a list of [logprob, id, text]; or
    mappings with such lists as `top_logprobs`.
    """
    found = [_of_place(place) for place in value] if isinstance(value, list) else []
    if not any(found):
        return None
    counts = np.array([len(place) for place in found], np.int64)
    ids = np.array([i for place in found for i, _ in place], np.int32)
    with np.errstate(over="ignore"):
        logprobs = np.array([logprob for place in found for _, logprob in place], np.float32)
    at = np.repeat(np.arange(len(found)), counts)
    return np.concatenate([[len(found)], at, ids, logprobs.view(np.int32)]).astype(np.int32)


def places_of_texts(value: Any) -> int:
    """The number of places whose likeliest tokens are texts without ids, which `topk` leaves out."""
    places = (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else ()
    listed = (each.get("top_logprobs") if "logprob" in each else each for each in places)
    return sum(any(i is None for i, _ in _pairs(place)) for place in listed)


def _of_place(place: Any) -> list[tuple[int, float]]:
    """(id, log-prob) of the alternatives of a token; none if one of them has no id, or no log-prob."""
    if isinstance(place, Mapping) and "top_logprobs" in place:
        place = place["top_logprobs"]
    pairs = list(_pairs(place))
    if not all(_is_id(i) and type(logprob) in (int, float) and logprob == logprob for i, logprob in pairs):
        return []
    return sorted(pairs, key=lambda pair: -pair[1])[:_MOST]


def _pairs(place: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(place, Mapping):
        for name, value in place.items():
            is_by_id = isinstance(value, Mapping)  # prompt_logprobs; else the name is the text of a token
            yield (_number(name) if is_by_id else named_id(name)), (value.get("logprob") if is_by_id else value)
    elif isinstance(place, list | tuple):
        for each in place:
            if isinstance(each, Mapping):
                yield each.get("token_id", named_id(each.get("token"))), each.get("logprob")
            elif isinstance(each, list | tuple) and len(each) >= 2:
                yield each[1], each[0]


def named_id(token: Any) -> int | None:
    """The id of a token that vLLM spells as `token_id:5`; None for any other."""
    return _number(token.removeprefix(_ID)) if isinstance(token, str) and token.startswith(_ID) else None


def _number(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 11 else None


def _is_id(found: Any) -> bool:
    return type(found) is int and 0 <= found < 1 << 31


def demand_topk(value: Any) -> Array:
    """The value, as `topk` made it. FieldError for anything else."""
    if not isinstance(value, np.ndarray) or value.dtype != np.int32 or len(value) % 3 != 1:
        raise FieldError(
            "it is no list of alternatives; wanted FIELD|topk, of a field with the likeliest tokens of each place"
        )
    return value


def last_places(packed: Array, tokens: int) -> Array:
    """The alternatives of the last tokens."""
    count, (at, ids, bits) = int(packed[0]), packed[1:].reshape(3, -1)
    kept = at >= count - tokens
    return np.concatenate([[tokens], at[kept] - (count - tokens), ids[kept], bits[kept]]).astype(np.int32)


def topk_arguments(rows: Iterable[tuple[Mapping[str, Any], int]]) -> dict[str, list[Array | None]]:
    """The arguments of `Collector.log` for top-k of rows, each with its number of tokens; {} where no row has any.

    An id that both sides have stands twice in its place, once for each; readers put the two together.
    """
    laid_out = [
        _laid_out({name: values[name] for name in COLUMNS if name in values}, tokens) for values, tokens in rows
    ]
    names = [name for name in (IDS, *LOGPROBS) if any(name in each for each in laid_out)]
    return {name: [each.get(name, _absent(each)) for each in laid_out] for name in names}


def _absent(laid_out: Mapping[str, Array]) -> Array | None:
    return np.full(laid_out[IDS].shape, np.nan, np.float32) if laid_out else None


def _laid_out(packed: Mapping[str, Array], tokens: int) -> dict[str, Array]:
    own = {name: array[1:].reshape(3, -1) for name, array in packed.items() if array[0] == tokens}
    if not own:
        return {}
    at, ids = (np.concatenate([parts[place] for parts in own.values()]) for place in (0, 1))
    slot: Integers = np.empty(len(at), np.int64)
    counts = np.bincount(at, minlength=tokens)
    slot[np.argsort(at, kind="stable")] = places(counts)
    shape = tokens, int(counts.max(initial=0))
    grids: dict[str, Array] = {IDS: np.full(shape, -1, np.int32)}
    grids[IDS][at, slot] = ids
    ends = np.cumsum([parts.shape[1] for parts in own.values()])
    for (name, parts), end in zip(own.items(), ends, strict=True):
        grid, here = np.full(shape, np.nan, np.float32), slice(end - parts.shape[1], end)
        grid[at[here], slot[here]] = np.ascontiguousarray(parts[2]).view(np.float32)
        grids[COLUMNS[name]] = grid
    return grids
