"""The form of a chat template: the text before and after the messages of each role, found by rendering messages of known content.

With it the text of a recorded conversation is taken apart into messages, which the template can render again.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix

ChatMessage = dict[str, str]
Render = Callable[[Sequence[ChatMessage], bool], str]
"""(messages, whether the beginning of an answer follows) -> text. It raises for messages that the template refuses."""
ASSISTANT = "assistant"
_S, _U, _A, _V, _T = (f"{letter}1 {letter.lower()}2" for letter in "SUAVT")


@dataclass(frozen=True)
class Message:
    """A message of a recorded conversation."""

    role: str
    """system, user, assistant or tool."""
    content: str
    """Its text, without the head and the end that the template gives it."""
    begin: int
    """The place in the text right behind its head, before any white space that ends the head."""

    @property
    def plain(self) -> ChatMessage:
        return {"role": self.role, "content": self.content}


@dataclass(frozen=True)
class ChatForm:
    """The text around the messages of each role."""

    heads: Mapping[str, str]
    """Role -> the text before its content."""
    feet: Mapping[str, str]
    """Role -> the text behind its content."""

    def messages(self, text: str) -> tuple[str, list[Message]]:
        """The text before the first message, and the messages. A message may lack its end, or a part of it."""
        found = list(re.finditer("|".join(self._patterns()), text))
        if not found:
            return text, []
        ends = [each.start() for each in found[1:]] + [len(text)]
        messages = [
            self._message(each, text[each.end() : end], end == len(text)) for each, end in zip(found, ends, strict=True)
        ]
        return text[: found[0].start()], messages

    def _patterns(self) -> Iterator[str]:
        """One per role, the longest head first. White space at the end of a head may lack."""
        for role, head in sorted(self.heads.items(), key=lambda each: -len(each[1])):
            own = head.rstrip()
            yield f"(?P<{role}>{re.escape(own)})(?:{re.escape(head[len(own) :])})?"

    def _message(self, head: re.Match[str], content: str, is_last: bool) -> Message:
        role = str(head.lastgroup)
        foot = self.feet[role]
        own = foot.rstrip()
        ends = (foot, own) if is_last else (foot, own, foot[len(own) :])  # the last answer may have been cut off
        end = next((end for end in ends if end and content.endswith(end)), "")
        return Message(role, content.removesuffix(end), head.end(role))


def form_of(render: Render, bos: str = "") -> ChatForm | None:
    """The form of a template; None for a template whose messages cannot be told apart. bos: the text that begins all."""
    try:
        heads, feet = _of_users(render)
    except Exception:  # a template raises what it likes
        return None
    for role, around in (("system", _of_system), ("tool", _of_tool)):
        try:
            head, foot = around(render, heads["user"], feet[ASSISTANT])
        except Exception:  # a role that it does not know
            continue
        head = head if heads["user"].startswith(bos) else head.removeprefix(bos)
        more = ChatForm({**heads, role: head}, {**feet, role: foot})
        if head.strip() and head not in heads.values() and _reads(more, render, role):
            heads, feet = dict(more.heads), dict(more.feet)
    own = ChatForm(heads, feet)
    return own if _reads(own, render) else None


def _of_users(render: Render) -> tuple[dict[str, str], dict[str, str]]:
    """The text around the messages of users and assistants: the part of it that is the same wherever such a message stands."""
    user, first, last = _message("user", _U), _message(ASSISTANT, _A), _message("user", _V)
    alone, prompted = render([user], False), render([user], True)
    _, between, end = _cut(render([user, first], False), _U, _A)
    _, again, after, _ = _cut(render([user, first, last], False), _U, _A, _V)
    foot = _shared(_cut(alone, _U)[1], between, again)
    head = own = _shared(between[len(foot) :], again[len(foot) :])
    if len(prompted) > len(alone):  # before an answer that is asked for, more may stand, such as <think>
        head = _shared(own, _cut(prompted, _U)[1][len(foot) :])
    head = head if own[len(head) :].strip() else own
    if not head.strip():
        head, foot = _shared(between, again), ""
    end = _shared(end, after)
    found = {"user": after[len(end) :], ASSISTANT: head}
    if not all(each.strip() for each in found.values()):
        raise ValueError("nothing stands between two messages")
    return found, {"user": foot, ASSISTANT: end}


def _of_system(render: Render, user_head: str, _: str) -> tuple[str, str]:
    head, between, _ = _cut(render([_message("system", _S), _message("user", _U)], False), _S, _U)
    if not between.endswith(user_head):
        raise ValueError("the system's message is part of the user's")
    return head, between[: len(between) - len(user_head)]


def _of_tool(render: Render, user_head: str, end: str) -> tuple[str, str]:
    own = [_message("user", _U), _message(ASSISTANT, _A), _message("tool", _T)]
    _, _, between, foot = _cut(render(own, False), _U, _A, _T)
    head = between.removeprefix(end)
    if head.startswith(user_head):
        raise ValueError("a tool's message is a user's")
    return head, foot


def _cut(text: str, *contents: str) -> list[str]:
    """The text before, between and behind these contents. ValueError if one of them is not there once."""
    parts = [text]
    for content in contents:
        before, _, after = parts.pop().partition(content)
        if content not in text or content in after:
            raise ValueError(f"{content} is not there once")
        parts += [before, after]
    return parts


def _message(role: str, content: str) -> ChatMessage:
    return {"role": role, "content": content}


def _reads(form: ChatForm, render: Render, role: str = "") -> bool:
    """True if a prompt that was rendered is taken apart into its messages, and these are rendered as they were."""
    sent = [_message("user", 'U1 "u2"'), _message(ASSISTANT, "A1"), _message("user", _V)]
    if role == "system":
        sent = [_message(role, 'S1 "s2"'), *sent]
    elif role:
        sent[2] = _message(role, 'T1 "t2"')
    try:
        text = render(sent, True)
        found = [each.plain for each in form.messages(text)[1]]
        found = found[:-1] if found[-1]["role"] == ASSISTANT else found
        own = zip(sent, found[-len(sent) :], strict=True)  # a template may put a message of its own before them
        same = all(one["role"] == each["role"] and one["content"] in each["content"] for one, each in own)
        return same and render(found, True) == text
    except Exception:  # a template raises what it likes
        return False


def _shared(*texts: str) -> str:
    """The equal beginning of the texts, without a part of a word or of a token in angle brackets.

    >>> _shared("<|end|>\\n<|user|>", "<|end|>\\n<|assistant|>")
    '<|end|>\\n'
    """
    return "".join(commonprefix([re.findall(r"<[^<>\s]*>|\s|[^<\s]+|<", text) for text in texts]))
