"""The request that a log of responses holds beside a response: its prompt as text or ids, and the turn of a conversation."""

from collections.abc import Mapping
from typing import Any

from ratioscope.conversation import is_message

from ..row import inside

_PLACES = ("request.body", "request", "body")
_PROMPTS = ("messages", "prompt", "text", "input_ids")


def request_of(line: Any) -> Mapping[str, Any]:
    """The request beside a response, as proxies write it; {} where the line has none."""
    found = (inside(line, place) for place in _PLACES)
    return next(
        (each for each in found if isinstance(each, Mapping) and any(each.get(n) for n in _PROMPTS)), _own(line)
    )


def _own(line: Any) -> Mapping[str, Any]:
    """The messages or the prompt that stand in the line itself, beside its response or its choices."""
    if not isinstance(line, Mapping):
        return {}
    return {name: line[name] for name in ("messages", "prompt") if line.get(name)}


def of_request(line: Any, index: int = 0, choices: int = 1) -> dict[str, Any]:
    """`asked`, the request; `asked_text` or `asked_ids`, the prompt of the choice of this number; `asked_several` of several."""
    asked = request_of(line)
    prompt = next((asked[name] for name in _PROMPTS if asked.get(name)), None)
    found: dict[str, Any] = {"asked": asked}
    if isinstance(prompt, list) and prompt and all(isinstance(each, str | list) for each in prompt):
        found |= {"asked_several": len(prompt)} if len(prompt) > 1 else {}
        each, rest = divmod(choices, len(prompt))  # a call for several prompts has as many choices for each
        prompt = prompt[index // each] if each and not rest and 0 <= index < choices else None
    if isinstance(prompt, list) and prompt and all(type(each) is int for each in prompt):
        return {**found, "asked_ids": prompt}
    is_text = isinstance(prompt, str) or (isinstance(prompt, list) and bool(prompt) and all(map(is_message, prompt)))
    return {**found, "asked_text": prompt} if is_text else found


def turn_of(asked: Mapping[str, Any]) -> int | None:
    """The number of the assistant's turns before the one that was asked for; None where no conversation is on record."""
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages or not all(map(is_message, messages)):
        return None
    is_answer = [message["role"] == "assistant" for message in messages]
    goes_on = bool(is_answer[-1]) and asked.get("continue_final_message") is True
    return sum(map(bool, is_answer)) - goes_on
