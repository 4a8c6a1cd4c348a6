"""Server-sent events: the parts of streamed responses of vLLM and SGLang, put together again, one mapping for each response."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ratioscope.flat_json import loaded

from .row import Unreadable, inside

_MOST_OPEN = 4096
"""Responses that may be under way at once; of more, the oldest ends."""


def event_rows(lines: Iterable[Any]) -> Iterator[Any]:
    """The responses of a stream, each once it ends: at [DONE], at the end of the file, or where too many are open."""
    held: dict[str, dict[str, Any]] = {}
    for line in lines:
        if isinstance(line, Unreadable):
            yield line
            continue
        field, _, data = line.partition(b":")
        if field.strip() != b"data":
            continue
        if data.strip() == b"[DONE]":
            yield from held.values()
            held = {}
            continue
        part = _event(data)
        if isinstance(part, Unreadable):
            yield part
            continue
        name = str(part.get("id") or inside(part, "meta_info.id"))
        held[name] = _joined(held[name], part) if name in held else _of_chunk(part)
        if len(held) > _MOST_OPEN:
            yield held.pop(next(iter(held)))
    yield from held.values()


def _event(data: bytes) -> Any:
    try:
        part = loaded(data, each_name_once=True)
    except ValueError as error:
        return Unreadable(f"the event is no JSON ({str(error)[:80]})")
    return part if isinstance(part, dict) else Unreadable("the event is JSON, but no object")


def _of_chunk(part: dict[str, Any]) -> dict[str, Any]:
    """The first part of a response; choices by their number."""
    listed = part.get("choices")
    return {**part, "choices": _choices({}, listed)} if isinstance(listed, list) else part


def _joined(held: dict[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """A response with one part more: of OpenAI's form a further piece, of SGLang's all so far or a further piece."""
    if isinstance(held.get("choices"), list):
        usage = part.get("usage") or held.get("usage")
        return {**held, "choices": _choices({"choices": held["choices"]}, part.get("choices")), "usage": usage}
    before, after = (inside(each, "meta_info.output_token_logprobs") for each in (held, part))
    if isinstance(before, list) and isinstance(after, list):
        return {**part, "meta_info": {**part["meta_info"], "output_token_logprobs": _longer(before, after)}}
    return {**held, **part}


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
    for name in ("content", "token_logprobs", "tokens"):
        if isinstance(new := inside(part, f"logprobs.{name}"), list):
            choice["logprobs"].setdefault(name, []).extend(new)
    if isinstance(ids := part.get("token_ids"), list):
        choice.setdefault("token_ids", []).extend(ids)
    if part.get("finish_reason") is not None:
        choice["finish_reason"] = part["finish_reason"]
    return choice
