"""A conversation as one text, as adapters and importers record a prompt: a line per message, its role before its content."""

from collections.abc import Iterable, Mapping
from typing import Any


def conversation_text(messages: Iterable[Any]) -> str:
    """One line per message; pictures and other media stand as their kind in brackets, calls of tools with their arguments.

    >>> conversation_text([{"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image_url"}]}])
    'user: Look: [image_url]'
    """
    return "\n".join(f"{each['role']}: {_content(each)}" if is_message(each) else str(each) for each in messages)


def is_message(part: Any) -> bool:
    """True for a mapping with a role."""
    return isinstance(part, Mapping) and "role" in part


def _content(message: Mapping[str, Any]) -> str:
    content, calls = message.get("content"), message.get("tool_calls")
    parts = content if isinstance(content, list) else [] if content is None else [content]
    return "".join((*map(_part, parts), *map(_call, calls if isinstance(calls, list) else ())))


def _part(part: Any) -> str:
    if not isinstance(part, Mapping):
        return str(part)
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part.get('type')}]"


def _call(call: Any) -> str:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    named = function if isinstance(function, Mapping) else {}
    return f"[{named.get('name')}({named.get('arguments')})]"
