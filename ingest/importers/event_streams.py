"""Server-sent events: the parts of streamed responses of vLLM and SGLang, put together again, one mapping for each response.

A line may also be a part, or a whole response, as JSON alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ratioscope.flat_json import loaded

from .row import Unreadable, inside

_MOST_OPEN = 4096
"""Responses that may be under way at once; of more, the oldest ends."""
_OTHER_FIELDS = (b"", b"event", b"id", b"retry")
"""Fields of an event that hold no data; a line that begins with a colon is a comment."""
_OF_TOKENS = ("content", "token_logprobs", "tokens", "top_logprobs", "text_offset")
_OF_SGLANG = ("output_token_logprobs", "output_top_logprobs")


def event_rows(lines: Iterable[Any]) -> Iterator[Any]:
    """The responses of a stream, each once it ends: at [DONE], at the end of the file, or where too many are open."""
    held: dict[str, dict[str, Any]] = {}
    for line in lines:
        data = line if isinstance(line, Unreadable) else _data(line)
        if data is None:
            continue
        if not isinstance(data, Unreadable) and data.strip() == b"[DONE]":
            yield from [held.pop(name) for name in _ended(held)]
            continue
        part = data if isinstance(data, Unreadable) else _event(data)
        if isinstance(part, Unreadable):
            yield part
            continue
        if not isinstance(part.get("choices"), list) and not isinstance(part.get("meta_info"), Mapping):
            yield part  # an error, or a line of another program: no part of a response
            continue
        name = str(part.get("id") or inside(part, "meta_info.id"))
        held[name] = _joined(held[name], part) if name in held else _of_chunk(part)
        if len(held) > _MOST_OPEN:
            yield held.pop(next(iter(held)))
    yield from held.values()


def _data(line: bytes) -> Any:
    """The data of a line; None where it has none, Unreadable where it is no line of a stream."""
    if line.lstrip().startswith(b"{"):
        return line
    field, _, data = line.partition(b":")
    if field.strip() == b"data":
        return data
    return (
        None if field.strip() in _OTHER_FIELDS else Unreadable("the line is no server-sent event, and no JSON object")
    )


def _ended(held: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The responses that a [DONE] ends: the one that is open, or of several those that have a finish reason."""
    return [name for name, response in held.items() if len(held) == 1 or _is_finished(response)]


def _is_finished(response: Mapping[str, Any]) -> bool:
    if isinstance(listed := response.get("choices"), list):
        return all(choice.get("finish_reason") is not None for choice in listed)
    return inside(response, "meta_info.finish_reason") is not None


def _event(data: bytes) -> Any:
    try:
        part = loaded(data, each_name_once=True)
    except ValueError as error:
        return Unreadable(f"the event is no JSON ({str(error)[:80]})")
    return part if isinstance(part, dict) else Unreadable("the event is JSON, but no object")


def _of_chunk(part: dict[str, Any]) -> dict[str, Any]:
    """The first part of a response; choices by their number."""
    listed = part.get("choices")
    return {**part, "choices": _choices({}, listed)} if isinstance(listed, list) else _joined({}, part)


def _joined(held: dict[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """A response with one part more: of OpenAI's form a further piece, of SGLang's all so far or a further piece."""
    if isinstance(held.get("choices"), list):
        usage = part.get("usage") or held.get("usage")
        return {**held, "choices": _choices({"choices": held["choices"]}, part.get("choices")), "usage": usage}
    lists = {
        name: _longer(before, after)
        for name in _OF_SGLANG
        if isinstance(before := inside(held, f"meta_info.{name}"), list)
        and isinstance(after := inside(part, f"meta_info.{name}"), list)
    }
    facts = [
        each for each in (inside(held, "meta_info"), inside(part, "meta_info"), lists) if isinstance(each, Mapping)
    ]
    known = {name: value for each in facts for name, value in each.items() if value is not None}
    return {**held, **part, **({"meta_info": known} if known else {})}


def _longer(before: list[Any], after: list[Any]) -> list[Any]:
    """All tokens so far: the later list, if it begins with the earlier one, else one behind the other."""
    if before and len(after) >= len(before) and after[0] == before[0] and after[len(before) - 1] == before[-1]:
        return after
    before.extend(after)
    return before


def _choices(held: dict[str, Any], listed: Any) -> list[dict[str, Any]]:
    """The choices with the tokens of a further part behind theirs."""
    known = {each["index"]: each for each in held.get("choices", ())}
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, Mapping) and isinstance(index := one.get("index", 0), int):
            known[index] = _extended(known.get(index, {"index": index, "logprobs": {}}), one)
    return list(known.values())


def _extended(choice: dict[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    for name in _OF_TOKENS:
        if isinstance(new := inside(part, f"logprobs.{name}"), list):
            choice["logprobs"].setdefault(name, []).extend(new)
    if isinstance(ids := part.get("token_ids"), list):
        choice.setdefault("token_ids", []).extend(ids)
    if isinstance(prompt := part.get("prompt_token_ids"), list):
        choice.setdefault("prompt_token_ids", prompt)
    message = part.get("message")
    if isinstance(message, Mapping):  # a whole response among parts
        choice["message"] = message
    if part.get("finish_reason") is not None:
        choice["finish_reason"] = part["finish_reason"]
    return choice
