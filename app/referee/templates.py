"""Alternatives of --try that read the prompt as the tokenizer's chat template makes it of the recorded text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .hypotheses import Hypothesis, Prompt
from .inputs import Sequence_

ChatMessage = dict[str, str]
_ROLE = re.compile(r"^(system|user|assistant|tool): ", re.MULTILINE)
_MEANING = "this side makes its prompts otherwise than the other: compare the chat templates and their arguments"


def template_hypotheses(sequences: Sequence[Sequence_], tokenizer: Any) -> Iterator[Hypothesis]:
    """One alternative per way to make a prompt of its text that gives other ids than those on record for some sequence."""
    if tokenizer is None:
        return
    conversations = {sequence.prompt: messages_of(sequence.text) for sequence in sequences if sequence.text}
    for name, options in _WAYS.items():
        made = {prompt: _rendered(tokenizer, messages, options) for prompt, messages in conversations.items()}
        others = {prompt: ids for prompt, ids in made.items() if ids and ids != prompt}
        if others:
            yield Hypothesis(name, _MEANING, group="prompt", prompt=lambda ids, others=others: others.get(ids, ids))  # type: ignore[misc]


_WAYS: Mapping[str, Mapping[str, Any]] = {
    "the template with a generation prompt": {"add_generation_prompt": True},
    "the template without a generation prompt": {"add_generation_prompt": False},
    "the template with an empty system message": {"add_generation_prompt": True, "system": ""},
    "the template without the system message": {"add_generation_prompt": True, "system": None},
    "the text of the messages without a template": {"plain": True},
}


def messages_of(text: str) -> list[ChatMessage]:
    """The conversation of a recorded prompt: lines that begin with a role begin a message; other text is a user's.

    >>> messages_of("system: be brief\\nuser: hello")
    [{'role': 'system', 'content': 'be brief'}, {'role': 'user', 'content': 'hello'}]
    """
    if not _ROLE.match(text):
        return [{"role": "user", "content": text}]
    starts = list(_ROLE.finditer(text))
    ends = [start.start() for start in starts[1:]] + [len(text) + 1]
    return [{"role": start[1], "content": text[start.end() : end - 1]} for start, end in zip(starts, ends, strict=True)]


def _rendered(tokenizer: Any, messages: list[ChatMessage], way: Mapping[str, Any]) -> Prompt | None:
    """The ids of the conversation; None if the tokenizer has no template, or one that refuses it."""
    options = dict(way)
    if options.pop("plain", False):
        text = "\n".join(message["content"] for message in messages)
        return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    if "system" in options:
        system = options.pop("system")
        messages = [message for message in messages if message["role"] != "system"]
        messages = messages if system is None else [{"role": "system", "content": system}, *messages]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    except Exception:  # a template raises what it likes: a role it does not know, no system message allowed, ...
        return None
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
