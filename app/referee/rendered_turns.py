"""Turns of recorded conversations against what a tokenizer and its chat template give: the part that runs in a child process.

Tokenizer and template may be a stranger's. The child opens no socket, starts no program, and takes no more memory and time than
it may: see ingest/importers/wall.py.
"""

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.ingest.importers.confinement import allow
from ratioscope.metrics.analysis.conversation_identity import (
    CLASSES,
    Drift,
    Span,
    answers_in,
    common_prefix,
    differing,
    drifts,
    handed_on,
)

from .chat_form import ASSISTANT, ChatMessage, Message, form_of
from .inputs import SURE
from .model import tokenizer as tokenizer_in

SAME_TEXT, VANISH, ADDED, OTHER = "the same text in other ids", "ids vanish", "ids are added", "other ids"
"""The ways in which rendering differs from the record."""
UNREAD = "their beginning is not in the form of the chat template"
NOT_ASSISTANT = "an answer stands where the chat template has no assistant"
MANY = 256
"""Answers of a sequence at most: each is rendered with all before it."""
EXAMPLES, EXAMPLE_IDS = 10, 8
TESTED, LONG, LEAST = 64, 32, 4
"""Sequences that show whose tokenizer it is; the ids of a text that is long enough for it, and the fewest of such texts."""
WAYS: tuple[Mapping[str, Any], ...] = ({}, {"enable_thinking": False})
"""Options of templates. The run's is the one that gives most of a recorded prompt."""


@dataclass(frozen=True)
class Conversation:
    """One recorded sequence."""

    step: int
    sequence_id: str
    prompt: Sequence[int]
    response: Sequence[int]
    """Ids of the response, with those that are not sampled."""
    mask: Sequence[bool] | None = None
    """True at each sampled token of the response; None: all."""
    in_loss: Sequence[bool] | None = None
    """True at each token of the response in the loss; None: all."""
    is_whole: bool = False
    """True if the engine stopped by itself, so that the end of the last answer must be there."""
    trajectory: str | None = None
    """Sequences of one step and trajectory are turns of one conversation, each with its whole history as prompt."""
    texts: Sequence[str | None] = ()
    """The recorded text of each token of the response."""


@dataclass
class Found:
    """The sums over all conversations, as JSON passes them on."""

    classes: Counter[str] = field(default_factory=Counter)
    """Class -> trained turns."""
    ways: Counter[str] = field(default_factory=Counter)
    """Way -> differences."""
    ids: dict[int, list[int]] = field(default_factory=dict)
    """Id -> times that it vanishes, and times that it is added."""
    texts: dict[int, str] = field(default_factory=dict)
    """Id -> its text."""
    special: list[int] = field(default_factory=list)
    """Those of the ids that are special tokens."""
    examples: list[dict[str, Any]] = field(default_factory=list)
    """The first differences: step, sequence_id, turn, class, place, way, and ids that are lost and gained."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Reason -> sequences that were not compared."""
    sequences: int = 0
    """Sequences that were compared."""
    is_rendered: bool = False
    """True if conversations were rendered, and not only answers encoded."""


def found_in(folder: Path, conversations: Sequence[Conversation]) -> Iterator[bytes]:
    """A number and an empty frame after each conversation, and `Found` at last. SourceError for a tokenizer of another run."""
    own = ChatTokenizer(folder)
    demand_own(own, folder, conversations)
    compared = Comparison(own, conversations)
    for number, one in enumerate(conversations, start=1):
        allow(MANY * (len(one.prompt) + len(one.response)))
        compared.add(one)
        yield str(number).encode()
        yield b""
    yield json.dumps(vars(compared.closed())).encode()


class ChatTokenizer:
    """A tokenizer and its chat template."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = tokenizer_in(folder)
        if self.tokenizer is None:
            raise SourceError(
                f"{folder} has no tokenizer; wanted a folder with tokenizer.json, as save_pretrained writes it"
            )
        forms = (form_of(partial(self._text, way), self.tokenizer.bos_token or "") for way in WAYS)
        self.form = next((form for form in forms if form is not None), None)
        added = self.tokenizer.added_tokens_decoder
        self.special_ids = {*self.tokenizer.all_special_ids, *(id for id, token in added.items() if token.special)}

    def decoded(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode([*ids], skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def again(self, ids: Sequence[int]) -> list[int]:
        """The ids that encoding gives for their text."""
        return self._encoded(self.decoded(ids))

    def _encoded(self, text: str) -> list[int]:
        return [*self.tokenizer(text, add_special_tokens=False)["input_ids"]]

    def _text(self, way: Mapping[str, Any], messages: Sequence[ChatMessage], prompted: bool) -> str:
        own = {"tokenize": False, "add_generation_prompt": prompted, **way}
        return str(self.tokenizer.apply_chat_template([*messages], **own))

    def messages(self, text: str) -> list[Message]:
        """The messages of a text; none without a form, or if something but special tokens is before them."""
        before, messages = ("", []) if self.form is None else self.form.messages(text)
        for token in sorted(map(self.tokenizer.convert_ids_to_tokens, self.special_ids), key=len, reverse=True):
            before = before.replace(token, "")
        return [] if before.strip() else messages

    def behind_end(self) -> int | None:
        """Ids that the template gives behind the special token that ends an answer; None if no such token ends one."""
        foot = [] if self.form is None else self._encoded(self.form.feet[ASSISTANT])
        return next((place for place, id in enumerate(reversed(foot)) if id in self.special_ids), None)

    def rendered(self, way: Mapping[str, Any], messages: Sequence[Message], prompted: bool) -> list[int]:
        """SourceError if the template refuses the messages."""
        try:
            return self._encoded(self._text(way, [message.plain for message in messages], prompted))
        except Exception:  # a template raises what it likes, and its words may hold text of the conversation
            raise SourceError("the chat template refuses them") from None


def demand_own(own: ChatTokenizer, folder: Path, conversations: Sequence[Conversation]) -> None:
    """SourceError if the ids on record cannot be those of this tokenizer."""
    wanted = "it is another tokenizer than the run's; give the run's own: --tokenizer DIR"
    below = 1 + max(own.tokenizer.get_vocab().values(), default=-1)
    most = max(id for one in conversations for id in (*one.prompt, *one.response))
    if most >= below:
        raise SourceError(f"the run has token id {most}, the tokenizer in {folder} has ids below {below}: {wanted}")
    few = conversations[:TESTED]
    pairs = {(id, text) for one in few for id, text in zip(one.response, one.texts, strict=False) if text is not None}
    equal = sum(
        text.strip() in (own.decoded([id]).strip(), own.tokenizer.convert_ids_to_tokens(id)) for id, text in pairs
    )
    if equal < SURE * len(pairs):
        raise SourceError(f"{equal} of {len(pairs)} texts of tokens on record are those of {folder}: {wanted}")
    long = [ids for one in few for ids in (one.prompt, one.response) if len(ids) >= LONG]
    if len(long) >= LEAST and not any(own.again(ids) == [*ids] for ids in long):
        raise SourceError(
            f"none of {len(long)} prompts and responses comes back from {folder}, decoded and encoded: {wanted}"
        )


class Comparison:
    """Compares conversations, and sums up."""

    def __init__(self, own: ChatTokenizer, conversations: Sequence[Conversation]) -> None:
        self._own, self._found = own, Found()
        self._held: dict[tuple[int, str], tuple[list[int], Span]] = {}
        self._found.is_rendered = any(own.messages(own.decoded(one.prompt)) for one in conversations)

    def add(self, one: Conversation) -> None:
        """Compares the turns of a conversation."""
        ids, answers = [*one.prompt, *one.response], answers_in(one.mask, len(one.prompt), len(one.response))
        try:
            if not 0 < len(answers) <= MANY:
                raise SourceError(f"they have no answer, or more than {MANY}")
            answers, found = (
                self._rendered(ids, answers, one) if self._found.is_rendered else (answers, self._encoded(ids, answers))
            )
        except SourceError as error:
            self._found.left_out[str(error)] += 1
            return
        self._found.sequences += 1
        self._sum_up(one, ids, answers, [*self._handed(one, ids, answers), *found])

    def _encoded(self, ids: list[int], answers: Sequence[Span]) -> list[Drift]:
        """The answers whose ids encoding does not give back."""
        made = [
            (turn, begin, ids[begin:end], self._own.again(ids[begin:end])) for turn, (begin, end) in enumerate(answers)
        ]
        return [
            Drift(turn, "realigned", begin + same, *differing(before, after, same))
            for turn, begin, before, after in made
            if before != after and (same := common_prefix(before, after)) >= 0
        ]

    def _rendered(self, ids: list[int], answers: Sequence[Span], one: Conversation) -> tuple[list[Span], list[Drift]]:
        """The answers, one for each message of an assistant, and their differences."""
        text = self._own.decoded(ids)
        messages = self._own.messages(text)
        if not messages:
            raise SourceError(UNREAD)
        turns: dict[int, Span] = {}
        for begin, end in answers:
            at = len(self._own.decoded(ids[:begin]))
            place = sum(message.begin <= at for message in messages) - 1
            turns[place] = (turns[place][0] if place in turns else begin, end)
        if any(place < 0 or messages[place].role != ASSISTANT for place in turns):
            raise SourceError(NOT_ASSISTANT)
        way = max(WAYS, key=lambda way: self._given(way, messages[: min(turns)], one.prompt))
        made = [self._own.rendered(way, messages[:place], True) for place in turns]
        last = messages[: max(turns) + 1]
        every, spans = self._own.rendered(way, last, False), [*turns.values()]
        behind = self._own.behind_end() if one.is_whole and spans[-1][1] == len(ids) else None
        every = every[: len(every) - behind] if behind else every
        return spans, [*drifts(ids, spans, [*made, every], ends=behind is not None)]

    def _given(self, way: Mapping[str, Any], messages: Sequence[Message], prompt: Sequence[int]) -> int:
        """Ids of a prompt that rendering its messages with these options gives."""
        try:
            return common_prefix(self._own.rendered(way, messages, True), prompt)
        except SourceError:
            return -1

    def _handed(self, one: Conversation, ids: list[int], answers: Sequence[Span]) -> Iterator[Drift]:
        """The difference between the prompt and the turn before it of the same trajectory, which is another sequence."""
        if one.trajectory is None:
            return
        key = one.step, one.trajectory
        held, answer = self._held.get(key, ([], (0, 0)))
        self._held[key] = ids, answers[-1]
        if (kind := handed_on(held, answer, one.prompt)) != "clean":
            same = common_prefix(held, one.prompt)
            lost, rest = held[same : answer[1]], one.prompt[same:]
            size = len(self._own.decoded(lost))
            end = bisect_left(range(len(rest)), size, key=lambda end: len(self._own.decoded(rest[:end])))
            yield Drift(0, kind, same, *differing(lost, rest[:end], 0))

    def _sum_up(self, one: Conversation, ids: list[int], answers: Sequence[Span], found: Sequence[Drift]) -> None:
        begin = len(one.prompt)
        for turn, (first, end) in enumerate(answers):
            if one.in_loss is None or any(one.in_loss[first - begin : end - begin]):
                kinds = {drift.kind for drift in found if drift.turn == turn}
                self._found.classes[next((kind for kind in reversed(CLASSES) if kind in kinds), CLASSES[0])] += 1
        for drift in (drift for drift in found if drift.lost or drift.gained):
            way = self._way_of(drift)
            self._found.ways[way] += 1
            for place, side in enumerate((drift.lost, drift.gained)):
                for id, times in (Counter(side) - Counter((drift.gained, drift.lost)[place])).items():
                    self._found.ids.setdefault(id, [0, 0])[place] += times
            if len(self._found.examples) < EXAMPLES:
                few = {"lost": drift.lost[:EXAMPLE_IDS], "gained": drift.gained[:EXAMPLE_IDS]}
                own = {"step": one.step, "sequence_id": one.sequence_id, "turn": drift.turn, "class": drift.kind}
                self._found.examples.append({**own, "place": drift.place, "way": way, **few})

    def _way_of(self, drift: Drift) -> str:
        if not drift.lost:
            return ADDED
        if not drift.gained:
            return VANISH
        return SAME_TEXT if self._own.decoded(drift.lost) == self._own.decoded(drift.gained) else OTHER

    def closed(self) -> Found:
        """The sums, with the texts of the ids."""
        shown = {id for each in self._found.examples for id in (*each["lost"], *each["gained"])}
        self._found.texts = {id: self._own.decoded([id]) for id in {*self._found.ids, *shown}}
        self._found.special = [id for id in self._found.ids if id in self._own.special_ids]
        return self._found
